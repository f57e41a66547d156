"""A node with an NVIDIA driver: where the driver is installed, its programs and device nodes, and its NVML."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from dra_driver_gpu.fabric_manager import FabricManager
from dra_driver_gpu.nvml import Nvml
from dra_driver_gpu.nvml.library import CLOSE_SECONDS, OPEN_SECONDS, NvmlLibrary
from dra_driver_gpu.nvml.real.library import SONAME
from dra_driver_gpu.settings import GpuSettings
from dra_sdk import HardwareError
from dra_sdk.hardware import file_status
from dra_sdk.hardware.host import exists
from dra_sdk.hardware.host_paths import LIBRARY_DIRS, PROGRAM_DIRS, file_below, find_program
from dra_sdk.hardware.node_access import Command, NodeAccess


@dataclass(frozen=True, slots=True)
class NvidiaNode(NodeAccess):
    """A node, the driver's settings for it, and its NVML.

    settings: the settings.
    library: its NVML.
    fabric: its Fabric Manager, if partitions of the NVSwitch fabric are activated for virtual machines; else None.
    """

    settings: GpuSettings = field(kw_only=True)
    library: NvmlLibrary = field(kw_only=True)
    fabric: FabricManager | None = field(default=None, kw_only=True)

    def nvml(self) -> AbstractContextManager[Nvml]:
        """Use NVML, in the time that is left; see `NvmlLibrary.use`."""
        return self.library.use(self.clock.left(OPEN_SECONDS))

    def without_nvml(self) -> AbstractContextManager[None]:
        """Keep NVML closed, in the time that is left; see `NvmlLibrary.closed`."""
        return self.library.closed(self.clock.left(CLOSE_SECONDS))

    @property
    def driver_root(self) -> Path:
        """Where the driver is installed, as this process finds it."""
        return self.local(self.settings.driver_root)

    def host_path(self, path: Path) -> str:
        """Return the path on the host of a file below `driver_root`."""
        return f"{self.settings.driver_root.rstrip('/')}/{path.relative_to(self.driver_root)}"

    @property
    def dev_root(self) -> str:
        """What precedes `/dev` in the host's paths of the driver's device nodes; empty for `/`."""
        dev_root, driver_root = self.settings.dev_root, self.settings.driver_root
        if not dev_root:
            dev_root = driver_root if exists(self.driver_root / "dev/nvidiactl") else "/"
        return dev_root.rstrip("/")

    @property
    def own_root(self) -> bool:
        """Whether the driver root is another root file system, in which the driver's programs must run.

        That is so for a host that is mounted here and for a driver container, not for a bare directory.
        """
        return self.driver_root != Path("/") and file_below(self.driver_root, Path("bin/sh")) is not None

    def program(self, name: str) -> Path | None:
        """Find a program of the driver, as this process finds it; None if it is not installed."""
        return find_program(self.driver_root, name)

    def driver_command(self, name: str, *args: str, stdin: str = "", env: Mapping[str, str] | None = None) -> Command:
        """Return a command with a program of the driver, run where it finds its libraries.

        Raises HardwareError if the program is not installed.
        """
        program = self.program(name)
        if program is None:
            searched = ", ".join(PROGRAM_DIRS)
            raise HardwareError(f"{name} is not under driver root {self.driver_root} (searched {searched})")
        if self.own_root:
            inner = f"/{program.relative_to(self.driver_root)}"
            return Command(["chroot", str(self.driver_root), inner, *args], stdin, env or {})
        return Command([str(program), *args], stdin, {**self._preload(), **(env or {})})

    def _preload(self) -> dict[str, str]:
        """Preload NVML alone for a program in a bare directory: the directory of NVML may have a C library as well."""
        if self.driver_root == Path("/"):
            return {}
        files = (file_below(self.driver_root, Path(directory, SONAME)) for directory in LIBRARY_DIRS)
        library = next((file for file in files if file and (status := file_status(file)) and status.st_size), None)
        return {"LD_PRELOAD": str(library)} if library else {}
