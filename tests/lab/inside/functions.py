"""PCI functions of the machine as sysfs shows them, read and written without the code that is under test."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import run

BUS = Path("/sys/bus/pci")
_PATIENCE = 30.0  # seconds; all is emulated


@dataclass(frozen=True)
class Function:
    """One function by its PCI address."""

    address: str

    @property
    def path(self) -> Path:
        return BUS / "devices" / self.address

    def text(self, name: str) -> str:
        return (self.path / name).read_text().strip()

    @property
    def driver(self) -> str | None:
        link = self.path / "driver"
        return os.path.basename(os.readlink(link)) if link.is_symlink() else None

    @property
    def override(self) -> str:
        """Empty for none."""
        return self.text("driver_override").removeprefix("(null)")

    @property
    def group(self) -> int:
        return int(os.path.basename(os.readlink(self.path / "iommu_group")))

    @property
    def root(self) -> str:
        """Of its real path, `/sys/devices/pci0000:40/…`, what KEP-4381 calls `pcieRoot`."""
        return os.path.realpath(self.path).split("/")[3]

    @property
    def interfaces(self) -> list[str]:
        """The network interfaces that its driver made."""
        net = self.path / "net"
        return os.listdir(net) if net.is_dir() else []

    def state(self) -> tuple[str | None, str, bool]:
        """All that a claim may change: driver, override, whether there is a network interface."""
        return self.driver, self.override, bool(self.interfaces)

    def give(self, driver: str | None, override: str = "") -> None:
        """What an operator does to give it another driver, or none."""
        if self.driver is not None:
            (self.path / "driver/unbind").write_text(self.address)
        (self.path / "driver_override").write_text(f"{driver or ''}\n")
        if driver is not None:
            (BUS / "drivers" / driver / "bind").write_text(self.address)
        (self.path / "driver_override").write_text(f"{override}\n")


def functions_of(driver: str) -> list[Function]:
    """Those that a kernel driver has, by address."""
    return sorted((Function(path.name) for path in (BUS / "drivers" / driver).glob("0000:*")), key=str)


@contextmanager
def shown_as_gpus(functions: list[Function], directory: Path) -> Iterator[None]:
    """Lets sysfs show these as GPUs of NVIDIA: `vendor` and `class` are covered by other files, all else stays real."""
    faces = {"vendor": "0x10de\n", "class": "0x030200\n"}
    mounted = []
    try:
        for name, text in faces.items():
            (directory / name).write_text(text)
            for function in functions:
                run(["mount", "--bind", directory / name, function.path / name], check=True)
                mounted.append(function.path / name)
        yield
    finally:
        for path in mounted:
            run(["umount", path], check=True)


def eventually(true: Callable[[], bool]) -> bool:
    """Whether it comes to be so; the kernel does some things later."""
    end = time.monotonic() + _PATIENCE
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
