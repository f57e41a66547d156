"""One node as the driver works on it: where things are on the host, where they are seen from here, and by which means.

A path of the host is a text such as `/dev/nvidia0`; containers and the container runtime know it by that name. `here`
is where the same file lies for us, below the node's root.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dra_driver_gpu.effects import Command, Effects
from dra_driver_gpu.library import Library
from dra_driver_gpu.nvml.real.binding import LIBRARY_DIRS, SONAME, inside
from dra_driver_gpu.settings import GpuSettings
from dra_sdk import HardwareError
from dra_sdk.hardware import Host, optional, read_text

BINARY_DIRS: Final = ("opt/bin", "usr/bin", "usr/sbin", "bin", "sbin", "usr/local/bin")


@dataclass(frozen=True, slots=True)
class Clock:
    """Time, so that a test need not wait."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    interval: float = 0.1

    def until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Asks `done` until it is so, or so many seconds have passed; whether it came to be so."""
        end = self.now() + seconds
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
        return self.root / path.lstrip("/")

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

    @property
    def state(self) -> Path:
        """Where the driver keeps what it changed, as seen from here."""
        return self.here(self.settings.state_dir)

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
        if self.whole_host:
            return Command(["chroot", str(self.root), self.of_driver(program), *args], stdin, env or {})
        return Command([str(program), *args], stdin, {**self._preload(), **(env or {})})

    @property
    def whole_host(self) -> bool:
        """Whether the driver belongs to a host whose root is mounted here, so that its programs must run in it."""
        return self.root != Path("/") and self.settings.driver_root == "/" and self.here("bin/sh").exists()

    def seen_by_tools(self, path: str) -> str:
        """A path of the host as a program that `tool` runs sees it."""
        return path if self.whole_host else str(self.here(path))

    def _preload(self) -> dict[str, str]:
        """NVML of a driver root other than `/`: its directory may hold a C library too, so only this one is named."""
        if self.driver_root == Path("/"):
            return {}
        found = (inside(self.driver_root, Path(each, SONAME)) for each in LIBRARY_DIRS)
        library = next((each for each in found if each is not None and each.stat().st_size), None)
        return {"LD_PRELOAD": str(library)} if library else {}
