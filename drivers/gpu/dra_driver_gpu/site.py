"""One node as the driver works on it: where things are on the host, where they are seen from here, and by which means.

A path of the host is a text such as `/dev/nvidia0`; containers and the container runtime know it by that name. `here`
is where the same file lies for us, below the node's root.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from dra_driver_gpu.effects import Command, Effects
from dra_driver_gpu.library import CLOSING, OPENING, Library
from dra_driver_gpu.nvml import Nvml
from dra_driver_gpu.nvml.real.binding import LIBRARY_DIRS, SONAME, inside
from dra_driver_gpu.rooted import follow
from dra_driver_gpu.settings import GpuSettings
from dra_sdk import HardwareError
from dra_sdk.hardware import Host, optional, read_text

_AT_LEAST: Final = 1.0  # seconds for a tool although the time is over: it may be one that undoes something
BINARY_DIRS: Final = ("opt/bin", "usr/bin", "usr/sbin", "bin", "sbin", "usr/local/bin")


@dataclass(frozen=True, slots=True)
class Clock:
    """Time, so that a test need not wait. Nobody waits beyond `end`: whoever called us has gone by then."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    interval: float = 0.1
    end: float = math.inf

    def within(self, seconds: float) -> Clock:
        """The same clock for a call that may take so long, all its waits together."""
        return replace(self, end=min(self.end, self.now() + seconds))

    def left(self, seconds: float) -> float:
        """So many seconds, or fewer where the call has to end before."""
        return max(0.0, min(seconds, self.end - self.now()))

    def until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Asks `done` until it is so, or so many seconds have passed; whether it came to be so."""
        end = self.now() + self.left(seconds)
        while not done():
            if self.now() >= end:
                return False
            self.sleep(self.interval)
        return True


@dataclass(frozen=True, slots=True)
class Site:
    """A node, its settings, and what can be done to it."""

    root: Path
    settings: GpuSettings
    library: Library
    effects: Effects
    clock: Clock = field(default_factory=Clock)

    def within(self, seconds: float) -> Site:
        """The same node for a call that may wait so long, all its waits together."""
        return replace(self, clock=self.clock.within(seconds))

    def nvml(self) -> AbstractContextManager[Nvml]:
        """See `Library.use`, in what is left of the time."""
        return self.library.use(self.clock.left(OPENING))

    def without_nvml(self) -> AbstractContextManager[None]:
        """See `Library.closed`, in what is left of the time."""
        return self.library.closed(self.clock.left(CLOSING))

    @property
    def host(self) -> Host:
        """For the readers of `/sys`, `/proc` and `/dev`."""
        return Host(self.root)

    @property
    def boot_id(self) -> str:
        """Of the current boot; empty where the kernel does not tell."""
        return optional(read_text, self.host.proc / "sys/kernel/random/boot_id") or ""

    def here(self, path: str) -> Path:
        """Where a path of the host lies for us."""
        return Path(path) if self.root == Path("/") else follow(self.root, path)

    @property
    def driver_root(self) -> Path:
        """Where the NVIDIA driver is installed, as seen from here."""
        return self.here(self.settings.driver_root)

    def of_driver(self, found: Path) -> str:
        """The path on the host of a file below the driver root."""
        return f"{self.settings.driver_root.rstrip('/')}/{found.relative_to(self.driver_root)}"

    @property
    def dev_root(self) -> str:
        """What comes before `/dev` in the host's paths of the NVIDIA device nodes; empty for `/`."""
        named, driver = self.settings.dev_root, self.settings.driver_root
        if not named:
            named = driver if (self.driver_root / "dev/nvidiactl").exists() else "/"
        return named.rstrip("/")

    def binary(self, name: str) -> Path | None:
        """A program of the NVIDIA driver, as seen from here."""
        return next((found for each in BINARY_DIRS if (found := inside(self.driver_root, Path(each, name)))), None)

    def tool(self, name: str, *args: str, stdin: str = "", env: Mapping[str, str] | None = None) -> Command:
        """A program of the NVIDIA driver, run where it finds its libraries. HardwareError where it is not installed."""
        program = self.binary(name)
        if program is None:
            raise HardwareError(
                f"{name} is not under driver root {self.driver_root} (looked in {', '.join(BINARY_DIRS)})"
            )
        if self.own_root:
            inner = f"/{program.relative_to(self.driver_root)}"
            return Command(["chroot", str(self.driver_root), inner, *args], stdin, env or {})
        return Command([str(program), *args], stdin, {**self._preload(), **(env or {})})

    def run(self, command: Command) -> str:
        """Run a tool to its end and give its output, in what is left of the time. CommandError tells what it said."""
        timeout = max(self.clock.left(command.timeout), _AT_LEAST)
        return self.effects.run(replace(command, timeout=timeout))

    @property
    def own_root(self) -> bool:
        """Whether the driver lies in a root file system that is not ours, so that its programs must run in that one.

        So it is with a host whose root is mounted here, and with a driver container; not with a bare directory.
        """
        return self.driver_root != Path("/") and inside(self.driver_root, Path("bin/sh")) is not None

    def _preload(self) -> dict[str, str]:
        """NVML of a driver root other than `/`: its directory may hold a C library too, so only this one is named."""
        if self.driver_root == Path("/"):
            return {}
        found = (inside(self.driver_root, Path(each, SONAME)) for each in LIBRARY_DIRS)
        library = next((each for each in found if each is not None and each.stat().st_size), None)
        return {"LD_PRELOAD": str(library)} if library else {}
