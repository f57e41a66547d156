"""Faults of a host's files while health is read: each changes at most the health of its own device.

    def test_one_odd_file_costs_at_most_the_health_of_its_own_card(dra_node):
        write_cards(dra_node)
        check_health(lambda: Driver.of(CardDriver()), dra_node.node, lambda path, name: name in str(path))

As `dra_sdk.testing.host_faults` does for discovery, which has the faults: the files that the hook reads are recorded,
and then each is answered wrongly.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Event
from typing import Final, cast

from dra_sdk.hardware.host import answered_by
from dra_sdk.loader import Driver
from dra_sdk.model.driver import Node
from dra_sdk.model.status import DeviceHealth
from dra_sdk.testing.host_faults import FAULTS, HostFault, RecordingFiles, drawn, injected

Concerns = Callable[[Path, str], bool]
"""Whether a file is about a device, by the device's name."""
_DIGITS: Final = re.compile(r"[0-9a-f]*\d[0-9a-f]*")
_READINGS: Final = 3  # readings of health without a fault, in which it becomes what it stays


def check_health(
    make: Callable[[], Driver],
    node: Node,
    concerns: Concerns,
    *,
    needed: Collection[str] = (),
    seed: int | None = None,
    most: int | None = None,
) -> int:
    """Check that a fault of a file changes at most the health of its own device; return how many were tried.

    make: makes the driver, as a new process does.
    needed: patterns of files without which nothing is known of any device: there may be no report for these.
    seed: draws one file of those that are alike but for numbers, and one fault for it; None: each file, each fault.
    most: how many of these are drawn on a large machine; None: all.

    Raises AssertionError with all that is wrong.
    """
    with answered_by(recorded := RecordingFiles()):
        running = _Health(make(), node)
        before = running.settled()
    faults, wrong = _faults(recorded.paths, seed, most), list[str]()
    for fault in faults:
        with injected(fault):
            now = running.read()
        if now == before:
            continue
        running = _Health(make(), node)
        running.settled()
        if _matches(fault.path, needed):
            continue
        if now is None:
            wrong.append(f"{fault}: no health at all is reported")
            continue
        wrong += [
            f"{fault}: {name}, which it is not about, was {before[name]}, is {now.get(name)}"
            for name in sorted(before)
            if now.get(name) != before[name] and not concerns(fault.path, name)
        ]
    _raise(wrong, faults)
    return len(faults)


def _faults(paths: Collection[Path], seed: int | None, most: int | None) -> list[HostFault]:
    """Return what is tried: of files that are alike but for numbers a drawn one with a drawn fault, or everything."""
    if seed is None:
        faults = [HostFault(path, kind) for path in sorted(paths) for kind in FAULTS]
    else:
        alike: dict[str, list[Path]] = {}
        for path in sorted(paths):
            alike.setdefault(_DIGITS.sub("#", str(path)), []).append(path)
        faults = [HostFault(path, kind) for path, kind in (drawn(seed, group) for group in alike.values())]
    return faults if most is None else random.Random(seed).sample(faults, min(most, len(faults)))  # noqa: S311


def _matches(path: Path, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(str(path), f"*{pattern}") for pattern in patterns)


def _raise(wrong: Sequence[str], faults: Sequence[HostFault]) -> None:
    if wrong:
        raise AssertionError("\n".join([f"{len(wrong)} of {len(faults)} faults cost too much:", *wrong]))


class _Health:
    """`dra_device_health` as it runs, reading by reading."""

    def __init__(self, driver: Driver, node: Node) -> None:
        self._stop = _Turn()
        self._reports = driver.device_health(node, self._stop)

    def settled(self) -> dict[str, str]:
        """Return the health after some readings. AssertionError if there is none."""
        reports = [self.read() for _ in range(_READINGS)]
        if (last := reports[-1]) is None:
            raise AssertionError("no health is reported, without any fault")
        return last

    def read(self) -> dict[str, str] | None:
        """Read once: the health of each device, in words; None if there is no report."""
        self._stop.begin()
        report = cast("Sequence[DeviceHealth] | None", next(self._reports, None))
        return (
            None if report is None else {health.device: f"{health.status.name} {health.message}" for health in report}
        )


class _Turn(Event):
    """The `stop` of a hook that waits only between two readings: nothing is waited for, and a second wait ends it."""

    def begin(self) -> None:
        """Allow one reading."""
        self._waits = 0

    def wait(self, timeout: float | None = None) -> bool:
        """See Event.wait."""
        del timeout
        self._waits += 1
        if self._waits > 1:
            self.set()
        return self.is_set()
