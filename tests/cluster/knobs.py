"""What a test can change about a running driver, and what the driver records about its hooks: files in a directory.

The test and the driver's process use the same class. Several instances of one driver may share a directory.
"""

from __future__ import annotations

import ctypes
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

DEFAULTS: dict[str, Any] = {
    "devices": "lamps",  # a name in knob_driver.DEVICES
    "fail": [],  # hooks that raise: "prepare", or "prepare <claim>" for one claim only
    "hold": [],  # hooks that begin and then wait until they are removed from this list
    "unhealthy": {},  # device name → message; all others are healthy
    "blocked": False,  # discovery blocks the whole process, until `unblock`
}
_POLL = 0.05


class Call(NamedTuple):
    """A line of the driver's record.

    pid: its process.
    hook: `discover`, `prepare` or `unprepare`.
    claim: the name of the claim, or of the node for `discover`.
    event: `begin`, `done` or `failed`.
    at: when, as `time.monotonic` counts.
    """

    pid: int
    hook: str
    claim: str
    event: str
    at: float


class Knobs:
    """The knobs in one directory, which are read at each use.

    directory: where they are.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._file, self._calls, self._pipe = (directory / name for name in ("knobs.json", "calls", "pipe"))
        directory.mkdir(exist_ok=True)

    def __getitem__(self, name: str) -> Any:
        """Returns the setting of a knob."""
        return self._read()[name]

    def set(self, **values: Any) -> None:
        """Sets some knobs and leaves the others."""
        assert values.keys() <= DEFAULTS.keys()
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps({**self._read(), **values}))
        new.rename(self._file)

    def reset(self) -> None:
        """Sets all knobs to their defaults."""
        self.set(**DEFAULTS)

    @contextmanager
    def hook(self, hook: str, claim: str) -> Iterator[None]:
        """The context in which the driver runs a hook: records it, and waits or raises as the knobs say."""
        self._record(hook, claim, "begin")
        try:
            while self._has("hold", hook, claim):
                time.sleep(_POLL)
            self._fail(hook, claim)
            yield
        except BaseException:
            self._record(hook, claim, "failed")
            raise
        self._record(hook, claim, "done")

    def block(self) -> None:
        """Blocks the whole process, if the knob says so, in a C call that keeps the interpreter's lock."""
        if self["blocked"]:
            os.mkfifo(self._pipe)
            pipe = os.open(self._pipe, os.O_RDWR)
            ctypes.PyDLL(None).read(pipe, ctypes.create_string_buffer(1), 1)
            os.close(pipe)
            self._pipe.unlink()

    def unblock(self) -> None:
        """Ends the call that blocks the driver."""
        self.set(blocked=False)
        self._pipe.write_bytes(b"!")

    def calls(self, hook: str, event: str, claim: str | None = None) -> list[Call]:
        """Returns the record of one hook, the oldest first."""
        return [
            call
            for call in self._recorded()
            if (call.hook, call.event) == (hook, event) and claim in (None, call.claim)
        ]

    def _fail(self, hook: str, claim: str) -> None:
        if self._has("fail", hook, claim):
            raise RuntimeError(f"the knob for {hook} is set to fail")

    def _has(self, knob: str, hook: str, claim: str) -> bool:
        return bool({hook, f"{hook} {claim}"} & set(self[knob]))

    def _read(self) -> dict[str, Any]:
        return {**DEFAULTS, **(json.loads(self._file.read_text()) if self._file.exists() else {})}

    def _record(self, *words: str) -> None:
        with self._calls.open("a") as calls:
            calls.write(" ".join([str(os.getpid()), *words, str(time.monotonic())]) + "\n")

    def _recorded(self) -> Iterator[Call]:
        for line in self._calls.read_text().splitlines() if self._calls.exists() else ():
            pid, hook, claim, event, at = line.split()
            yield Call(int(pid), hook, claim, event, float(at))
