"""Faults of a host's files: what a driver's discovery must survive, one file after the other.

    def test_one_odd_file_costs_at_most_its_own_card(dra_node):
        write_cards(dra_node)
        driver = Driver.of(CardDriver())
        check_each_file(lambda: driver.discover(dra_node.node), lambda path, device: device.name in str(path))

A discovery without faults shows which files it reads. Then each of them is answered in each wrong way, and compared:
other devices are published as before, the device of the file may lack what the file describes, or be absent, and what
is left out is named. This needs no root: the answers are given in the kernel's place.
"""

from __future__ import annotations

import errno
import os
import random
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, TypeVar

from dra_sdk.errors import DraError
from dra_sdk.hardware.host import HostFiles, answered_by
from dra_sdk.model.device import Device, ResourcePool
from dra_sdk.model.omissions import Omission, collecting_omissions

_T = TypeVar("_T")
FAULTS: Final = ("missing", "empty", "EINVAL", "EIO", "EACCES", "EAGAIN", "ENODEV", "garbage", "huge", "loop")
"""Every wrong way to answer."""
_NUMBERS: Final = {"missing": errno.ENOENT, "loop": errno.ELOOP, "huge": errno.EFBIG}
_GARBAGE: Final = "\ufffd?=\x00garbage\n" * 20
_SILENT: Final = frozenset({"missing", "empty"})  # a fact that is absent or empty is no fault
_ODD_CONTENT: Final = frozenset({"empty", "garbage", "huge"})
_UNCHECKED: Final = frozenset({"empty", "garbage"})  # text is published as it is

Discover = Callable[[], Sequence[ResourcePool]]
Concerns = Callable[[Path, Device], bool]


@dataclass(frozen=True, slots=True)
class HostFault:
    """A file, directory or link that is answered for wrongly.

    path: its path.
    kind: one of `FAULTS`.
    """

    path: Path
    kind: str

    def __str__(self) -> str:
        return f"{self.path}: {self.kind}"


class RecordingFiles(HostFiles):
    """Answers as the kernel does, and keeps what was read, each path once."""

    def __init__(self) -> None:
        self.paths: dict[Path, None] = {}

    def content(self, path: Path, limit: int) -> bytes:
        """See `HostFiles.content`."""
        return self._kept(path, super().content(path, limit))

    def beginning(self, path: Path, size: int) -> bytes:
        """See `HostFiles.beginning`."""
        return self._kept(path, super().beginning(path, size))

    def names(self, directory: Path) -> list[str]:
        """See `HostFiles.names`."""
        return self._kept(directory, super().names(directory))

    def target(self, link: Path) -> str:
        """See `HostFiles.target`."""
        return self._kept(link, super().target(link))

    def real(self, path: Path) -> Path:
        """See `HostFiles.real`."""
        return self._kept(path, super().real(path))

    def status(self, path: Path) -> os.stat_result:
        """See `HostFiles.status`."""
        return self._kept(path, super().status(path))

    def _kept(self, path: Path, answer: _T) -> _T:
        self.paths[path] = None
        return answer


class FaultyFiles(HostFiles):
    """Answers as the kernel does, except for the path of a fault."""

    def __init__(self, fault: HostFault) -> None:
        self._fault = fault

    def content(self, path: Path, limit: int) -> bytes:
        """See `HostFiles.content`."""
        if path != self._fault.path:
            return super().content(path, limit)
        match self._fault.kind:
            case "empty":
                return b""
            case "garbage":
                return _GARBAGE.encode()
            case "huge":
                return super().content(Path("/dev/zero"), limit)
        raise self._refusal

    def beginning(self, path: Path, size: int) -> bytes:
        """See `HostFiles.beginning`."""
        if path != self._fault.path or self._fault.kind == "huge":
            return super().beginning(path, size)
        return self.content(path, size)[:size]

    def names(self, directory: Path) -> list[str]:
        """See `HostFiles.names`."""
        if directory != self._fault.path:
            return super().names(directory)
        if self._fault.kind == "garbage":
            return [*super().names(directory), "\ufffd?", "-1"]
        raise self._refusal

    def target(self, link: Path) -> str:
        """See `HostFiles.target`."""
        if link != self._fault.path:
            return super().target(link)
        if self._fault.kind == "garbage":
            return "\ufffd?"
        raise self._refusal

    def real(self, path: Path) -> Path:
        """See `HostFiles.real`."""
        if path != self._fault.path:
            return super().real(path)
        raise self._refusal

    def status(self, path: Path) -> os.stat_result:
        """See `HostFiles.status`. Of a file with odd content the status is as ever."""
        if path != self._fault.path or self._fault.kind in _ODD_CONTENT:
            return super().status(path)
        raise self._refusal

    @property
    def _refusal(self) -> OSError:
        kind = self._fault.kind
        number: int = _NUMBERS[kind] if kind in _NUMBERS else getattr(errno, kind, errno.ENOENT)
        return OSError(number, os.strerror(number))


@contextmanager
def injected(fault: HostFault) -> Iterator[None]:
    """Let a fault be there, for all threads."""
    with answered_by(FaultyFiles(fault)):
        yield


def check_each_file(
    discover: Discover,
    concerns: Concerns,
    *,
    needed: Collection[str] = (),
    unset: Collection[str] = (),
    seed: int | None = None,
) -> int:
    """Check that a fault of a file costs at most its own device; return how many faults were tried.

    discover: discovers once; without a fault always the same.
    concerns: whether a file is about a device.
    needed: patterns of files without which it is not known which devices there are: the discovery may fail for these,
        or find others.
    unset: names of files that have no value at times, for which EINVAL is no fault.
    seed: draws one fault for each file; None: each file has every fault.

    Raises AssertionError with all that is wrong.
    """
    with answered_by(recorded := RecordingFiles()):
        before = _published(discover())
    tried = [
        HostFault(path, kind)
        for path in sorted(recorded.paths)
        for kind in (FAULTS if seed is None else [drawn(seed, [path])[1]])
    ]
    check = _Check(before, discover, concerns, needed, unset)
    wrong = [f"{fault}: {text}" for fault in tried for text in check.problems(fault)]
    if wrong:
        raise AssertionError("\n".join([f"{len(wrong)} of {len(tried)} faults cost too much:", *wrong]))
    return len(tried)


def drawn(seed: int, paths: Sequence[Path]) -> tuple[Path, str]:
    """Draw one of some files, and a fault for it: the same ones wherever the test has its files."""
    chance = random.Random(f"{seed} {paths[0].parts[-4:]}")  # noqa: S311 (drawn again by the same seed)
    kind = chance.choice(FAULTS)
    return chance.choice(paths), kind


@dataclass(frozen=True)
class _Check:
    before: dict[str, Device]
    discover: Discover
    concerns: Concerns
    needed: Collection[str]
    unset: Collection[str]

    def problems(self, fault: HostFault) -> Iterator[str]:
        is_needed = any(fnmatchcase(str(fault.path), f"*{pattern}") for pattern in self.needed)
        with injected(fault), collecting_omissions() as omissions:
            try:
                after = _published(self.discover())
            except DraError as error:
                if not is_needed:
                    yield f"nothing is published: {error}"
                elif str(fault.path) not in str(error):
                    yield f"the error does not name it: {error}"
                return
        if is_needed:
            return
        is_unset = fault.kind == "EINVAL" and fault.path.name in self.unset
        is_unset |= fault.kind == "empty" and (fault.path.is_dir() or fault.path.is_symlink())  # answered as missing
        is_named = any(_names(omission, fault.path) for omission in omissions)
        for name in sorted({*self.before, *after}):
            text = self._problem(fault, self.before.get(name), after.get(name), named=is_unset or is_named)
            if text:
                yield f"{name} {text}"

    def _problem(self, fault: HostFault, old: Device | None, new: Device | None, *, named: bool) -> str:
        text = ""
        if old is None:
            text = "is published only now"
        elif new is not None and _shown(old) == _shown(new):
            text = ""
        elif not self.concerns(fault.path, old):
            text = f"changes, which it is not about: {_difference(old, new)}"
        elif new is None:
            text = "" if named or fault.kind == "missing" else "is left out, and nothing says why"
        elif not named and fault.kind not in _SILENT and _lacks(old, new):
            text = f"lacks something, and nothing says why: {_difference(old, new)}"
        elif fault.kind not in {"missing", *_UNCHECKED} and not _is_less(old, new):
            text = f"says something else: {_difference(old, new)}"
        return text


def _names(omission: Omission, path: Path) -> bool:
    """Return whether an omission names a file, or the part of it that is about one device."""
    text = f"{omission.subject} {omission.reason}"
    return str(path) in text or not set(omission.subject.split()).isdisjoint(path.parts)


def _published(pools: Sequence[ResourcePool]) -> dict[str, Device]:
    return {device.name: device for pool in pools for device in pool.devices}


def _shown(device: Device) -> dict[str, Any]:
    capacity = {f"capacity {name}": repr(value) for name, value in device.capacity.items()}
    return {**{name: str(value) for name, value in device.attributes.items()}, **capacity, "": repr(device.consumes)}


def _lacks(old: Device, new: Device) -> bool:
    return bool(_shown(old).keys() - _shown(new).keys())


def _is_less(old: Device, new: Device) -> bool:
    """Return whether a device has no attribute that it did not have before; one may be less than it was.

    That is a smaller number, false instead of true, or a list without some of its texts.
    """
    return all(
        name in old.attributes and _is_same_or_less(old.attributes[name], value)
        for name, value in new.attributes.items()
    )


def _is_same_or_less(old: object, new: object) -> bool:
    if isinstance(old, str) and isinstance(new, str):
        return set(re.split("[,_]", new)) <= set(re.split("[,_]", old))
    if isinstance(old, Sequence) and isinstance(new, Sequence):
        return set(new) <= set(old)
    return new == old or (isinstance(old, int) and isinstance(new, int) and new < old)


def _difference(old: Device, new: Device | None) -> str:
    if new is None:
        return "it is not published"
    was, now = _shown(old), _shown(new)
    return ", ".join(
        f"{name or 'counters'} was {was.get(name)}, is {now.get(name)}"
        for name in sorted({*was, *now})
        if was.get(name) != now.get(name)
    )
