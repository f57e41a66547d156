"""The state files of a driver: their names, what can be read from one, and how an operator repairs or removes one.

A claim whose file cannot be read keeps its devices, because a container may use them, until an operator decides.
`repair` writes a readable file with everything that the damaged one still contains; `forget` frees the claim's devices.
Both keep the old file under a name that begins with a dot, which drivers ignore. If they are killed at any step, the
damaged file is unchanged or the work is done; they can be called again. `skip` names a step of a claim's undo that need
not succeed; the file of a claim that ended without it is kept as well.

A running driver looks at unreadable files at every call and reads those that changed, so it needs no restart. It never
changes such a file. The commands hold the claim's lock while they do.
"""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Final

from dra_sdk.errors import StateError
from dra_sdk.model.claim import HeldClaim
from dra_sdk.node.files import Files, private_directory, read, safe_id
from dra_sdk.node.prepare.checkpoint import Checkpoint, decode, encode, format_of, salvage

log = logging.getLogger(__name__)
SUFFIX: Final = ".json"
DURABLE: Final = "claims"
"""The directory of state that survives a reboot; `claims-<boot id>` is that of state which a reboot makes void."""
UNDOING: Final = stat.S_IRUSR
"""The mode of a file that says PrepareCompleted, but whose claim is being undone. A write gives the file 0600 again."""
_PRIVATE: Final = 0o700
_DAMAGED: Final = ".damaged-"
_FORGOTTEN: Final = ".forgotten-"
_SKIPPED: Final = ".skipped-"
_SKIPS: Final = ".skips-"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A state file that cannot be read or trusted. Its claim keeps its devices until an operator decides.

    path: the file, in `<driver>/claims/` or `<driver>/claims-<boot id>/`.
    reason: the problem, with the file's path.
    state: the claim, as far as the file can be read; None if its devices are unknown, so that it may hold any device.
    format: the format version in its header; None if that cannot be read.
    io_failed: it was not read at all, so that it may be readable later without a change.
    """

    path: Path
    reason: str
    state: Checkpoint | None = None
    format: int | None = None
    io_failed: bool = False

    @property
    def claim(self) -> HeldClaim:
        """The claim that the file is of, as far as that is known: at least its `safe_id`, which names the file."""
        unknown = HeldClaim("", "", self.path.name.removesuffix(SUFFIX), complete=False)
        return replace(self.state.claim if self.state else unknown, damaged=True)

    @property
    def advice(self) -> str:
        """The reason, and the command for the operator."""
        return f"{self.reason}; `dra-sdk state {self.path.parent.parent.name}` shows, repairs or forgets it"

    @property
    def not_repairable(self) -> str:
        """Why the file cannot be repaired; empty if it can."""
        if self.state is None:
            return "it does not say which claim it belongs to and which devices that holds"
        claim = self.state.claim
        if file_name(claim.uid) != self.path.name:
            return f"it belongs to claim {claim.uid}, whose file is {file_name(claim.uid)}"
        return "" if claim.devices else "it does not say which devices the claim holds"


def file_name(uid: str) -> str:
    """Return the name of the state file of a claim."""
    return safe_id(uid) + SUFFIX


def is_state_file(name: str) -> bool:
    """Return whether a file has the name of a state file. Temporary and kept files begin with a dot."""
    return name.endswith(SUFFIX) and not name.startswith(".")  # a `safe_id` does not begin with a dot


def read_checkpoint(path: Path) -> Checkpoint | Unreadable:
    """Return the claim of a state file, or why it cannot be read. FileNotFoundError if there is no file."""
    try:
        mode = path.lstat().st_mode
        content = read(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        return Unreadable(path, f"state file {path} cannot be read: {error.strerror}", io_failed=True)
    try:
        state = decode(content, str(path))
    except StateError as error:
        return Unreadable(path, str(error), salvage(content), format_of(content))
    uid = state.claim.uid
    if file_name(uid) != path.name:
        reason = f"state file {path} belongs to claim {uid}, its name says otherwise"
        return Unreadable(path, reason, state, format_of(content))
    return state.undoing() if stat.S_IMODE(mode) == UNDOING else state


def state_files(data: Path) -> list[Path]:
    """Return the state files under a driver's plugin data directory, those of earlier boots included.

    SettingsError for a directory of state files that others may write, and for a link or a file in its place.
    """
    files: list[Path] = []
    for place in sorted(data.glob(f"{DURABLE}*")):
        if place.name == DURABLE or place.name.startswith(f"{DURABLE}-"):
            private_directory(place, _PRIVATE)
            files += sorted(path for path in place.iterdir() if is_state_file(path.name))
    return files


def read_checkpoints(data: Path) -> list[Checkpoint]:
    """Return the claims of `state_files`. StateError, with advice for the operator, for a file that cannot be read."""
    claims = []
    for path in state_files(data):
        claim = read_checkpoint(path)
        if isinstance(claim, Unreadable):
            raise StateError(claim.advice)
        claims.append(claim)
    return claims


def repair(path: Path, files: Files) -> Path:
    """Replace a damaged file by a readable one; returns the path under which the damaged one is kept.

    The claim is in PrepareStarted then, without the data and the journal of its hook, and its next call undoes it. Call
    this with the claim's lock held. StateError if the file is not damaged, lacks too much, or cannot be written.
    """
    damaged = read_checkpoint(path)
    if isinstance(damaged, Checkpoint):
        raise StateError(f"state file {path} is not damaged, so there is nothing to repair")
    if damaged.not_repairable or damaged.state is None:
        raise StateError(f"{damaged.reason}, and cannot be repaired: {damaged.not_repairable}; nothing was changed")
    try:
        content = read(path)
        kept = _kept(path, content)
        files.write(kept, content)
        if read(path) != content:
            raise StateError(f"state file {path} has just changed; nothing was repaired, look at it again")
        files.write(path, encode(damaged.state))
    except OSError as error:
        raise StateError(f"cannot repair state file {path}: {error.strerror or error}; try again") from error
    return kept


def forget(path: Path, spec: Path, files: Files) -> Path:
    """Rename a state file, so that its claim no longer holds devices; returns the new path.

    The claim's CDI spec is removed first, so that no container starts with devices that another claim may get. Call
    this with the claim's lock held; for a file that is not damaged, while no driver runs. StateError if that fails.
    """
    try:
        files.remove(spec)
        name = next(free.name for free in _names(path, _FORGOTTEN) if not os.path.lexists(free))
        return files.rename(path, name)
    except OSError as error:
        raise StateError(f"cannot forget state file {path}: {error.strerror or error}; try again") from error


def skips(path: Path) -> frozenset[str]:
    """Return the steps that an operator does without when the claim of a state file is undone.

    A file that cannot be read is none, with a warning: then the claim stays held.
    """
    place = _skips(path)
    try:
        return frozenset(map(str, json.loads(read(place))))
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError, TypeError, RecursionError) as error:
        log.warning("%s cannot be read, so no step is skipped: %s", place, error)
        return frozenset()


def skip(path: Path, step: str, files: Files) -> None:
    """Do without a step when the claim of a state file is undone next. StateError if that cannot be written.

    The driver may run: it reads this file, which is beside the claim's, and never writes it.
    """
    try:
        files.write(_skips(path), json.dumps(sorted({*skips(path), step})).encode())
    except OSError as error:
        raise StateError(f"cannot write {_skips(path)}: {error.strerror or error}; try again") from error


def set_aside(path: Path, files: Files) -> None:
    """Rename the state file of a claim that ended without a step, so that what was before is not lost. OSError."""
    files.rename(path, next(free.name for free in _names(path, _SKIPPED) if not os.path.lexists(free)))


def forget_skips(path: Path, files: Files) -> None:
    """Remove what `skip` wrote, once the claim holds nothing. OSError."""
    files.remove(_skips(path), survive_power_loss=False)


def skips_of_no_claim(directory: Path) -> Iterator[Path]:
    """Yield the state files that do not exist, but for which a step was to be skipped."""
    for place in directory.glob(f"{_SKIPS}*{SUFFIX}"):
        path = place.with_name(place.name.removeprefix(_SKIPS))
        if not os.path.lexists(path):
            yield path


def _skips(path: Path) -> Path:
    return path.with_name(f"{_SKIPS}{path.name}")


def _kept(path: Path, content: bytes) -> Path:
    """Return the path for the damaged file: that of an earlier repair of the same content, or a free one."""
    return next(kept for kept in _names(path, _DAMAGED) if not os.path.lexists(kept) or _has(kept, content))


def _has(path: Path, content: bytes) -> bool:
    try:
        return read(path) == content
    except OSError:
        return False


def _names(path: Path, prefix: str) -> Iterator[Path]:
    for number in count(1):
        yield path.with_name(f"{prefix}{path.name.removesuffix(SUFFIX)}-{number}{SUFFIX}")
