"""What a test may change about a running driver, and what the driver tells about its hooks: files in one directory.

The test holds one end, the driver's process the other; several instances of one driver may share a directory.
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
    "hold": [],  # hooks that wait, once they have begun, until they are taken out of here
    "unhealthy": {},  # device name → message; all others are healthy
    "deaf": False,  # let discovery hold the interpreter, so that nothing is answered, until `hear`
}
_POLL = 0.05


class Call(NamedTuple):
    """One line of the driver: `discover`, `prepare` or `unprepare`; the claim's name; `begin`, `done` or `failed`."""

    pid: int
    hook: str
    claim: str
    event: str


class Knobs:
    """Both ends. Everything is read anew at each use."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._file, self._calls, self._ear = (directory / name for name in ("knobs.json", "calls", "ear"))
        directory.mkdir(exist_ok=True)

    def __getitem__(self, name: str) -> Any:
        """What a knob is set to."""
        return self._read()[name]

    def set(self, **values: Any) -> None:
        """Turn some knobs and leave the others."""
        assert values.keys() <= DEFAULTS.keys()
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps({**self._read(), **values}))
        new.rename(self._file)

    def reset(self) -> None:
        """Let everything go its ordinary way."""
        self.set(**DEFAULTS)

    @contextmanager
    def hook(self, hook: str, claim: str) -> Iterator[None]:
        """What the driver runs a hook in: notes it, and waits or raises as the knobs say."""
        self._note(hook, claim, "begin")
        try:
            while self._has("hold", hook, claim):
                time.sleep(_POLL)
            self._fail(hook, claim)
            yield
        except BaseException:
            self._note(hook, claim, "failed")
            raise
        self._note(hook, claim, "done")

    def be_deaf(self) -> None:
        """Block the whole process in one C call that keeps the interpreter's lock, if the knob says so."""
        if self["deaf"]:
            os.mkfifo(self._ear)
            ear = os.open(self._ear, os.O_RDWR)
            ctypes.PyDLL(None).read(ear, ctypes.create_string_buffer(1), 1)
            os.close(ear)
            self._ear.unlink()

    def hear(self) -> None:
        """End the driver's deafness."""
        self.set(deaf=False)
        self._ear.write_bytes(b"!")

    def calls(self, hook: str, event: str, claim: str | None = None) -> list[Call]:
        """What the driver noted of one hook, oldest first."""
        return [
            call for call in self._noted() if (call.hook, call.event) == (hook, event) and claim in (None, call.claim)
        ]

    def _fail(self, hook: str, claim: str) -> None:
        if self._has("fail", hook, claim):
            raise RuntimeError(f"the knob for {hook} is turned to fail")

    def _has(self, knob: str, hook: str, claim: str) -> bool:
        return bool({hook, f"{hook} {claim}"} & set(self[knob]))

    def _read(self) -> dict[str, Any]:
        return {**DEFAULTS, **(json.loads(self._file.read_text()) if self._file.exists() else {})}

    def _note(self, *words: str) -> None:
        with self._calls.open("a") as calls:
            calls.write(" ".join([str(os.getpid()), *words]) + "\n")

    def _noted(self) -> Iterator[Call]:
        for line in self._calls.read_text().splitlines() if self._calls.exists() else ():
            pid, *words = line.split()
            yield Call(int(pid), *words)
