"""The PCI functions of the machine, read and written by sysfs, without the code under test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import run

BUS = Path("/sys/bus/pci")


@dataclass(frozen=True)
class Function:
    """A PCI function.

    address: its PCI address, `0000:41:00.0`.
    """

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
        """Its `driver_override`; empty if there is none."""
        return self.text("driver_override").removeprefix("(null)")

    @property
    def group(self) -> int:
        return int(os.path.basename(os.readlink(self.path / "iommu_group")))

    @property
    def root(self) -> str:
        """The root complex in its real path, `/sys/devices/pci0000:40/…`; the attribute `pcieRoot` of KEP-4381."""
        return os.path.realpath(self.path).split("/")[3]

    @property
    def interfaces(self) -> list[str]:
        """The network interfaces of its driver."""
        net = self.path / "net"
        return os.listdir(net) if net.is_dir() else []

    def state(self) -> tuple[str | None, str, bool]:
        """Everything that a claim may change: driver, override, and whether there is a network interface."""
        return self.driver, self.override, bool(self.interfaces)

    def give(self, driver: str | None, override: str = "") -> None:
        """Gives it another driver, or none, as an operator does."""
        if self.driver is not None:
            (self.path / "driver/unbind").write_text(self.address)
        (self.path / "driver_override").write_text(f"{driver or ''}\n")
        if driver is not None:
            (BUS / "drivers" / driver / "bind").write_text(self.address)
        (self.path / "driver_override").write_text(f"{override}\n")


def functions_of(driver: str) -> list[Function]:
    """Returns the functions of a kernel driver, by address."""
    return sorted((Function(path.name) for path in (BUS / "drivers" / driver).glob("0000:*")), key=str)


@contextmanager
def shown_as_gpus(functions: list[Function], directory: Path) -> Iterator[None]:
    """Makes sysfs show these functions as GPUs of NVIDIA, with files that are mounted over `vendor` and `class`."""
    files = {"vendor": "0x10de\n", "class": "0x030200\n"}
    mounted = []
    try:
        for name, text in files.items():
            (directory / name).write_text(text)
            for function in functions:
                run(["mount", "--bind", directory / name, function.path / name], check=True)
                mounted.append(function.path / name)
        yield
    finally:
        for path in mounted:
            run(["umount", path], check=True)
