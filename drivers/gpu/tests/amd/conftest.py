"""Nodes with AMD GPUs for the tests of the driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dra_driver_amd import AmdGpuDriver
from dra_driver_amd.settings import AmdSettings
from dra_driver_amd.testing import KernelEffects, write_gpus

from dra_sdk.cli.main import main
from dra_sdk.hardware.polling import Clock
from dra_sdk.testing import DriverHarness, FakeNode, PreparedClaim
from dra_sdk.testing.sysfs import regular_machine

CLOCK = Clock(interval=0.01)


class AmdRig:
    """The driver on a node with these GPUs; `settings` are those of `AmdSettings`.

    driver: the harness.
    effects: what is done to the node.
    """

    def __init__(self, node: FakeNode, gpus: tuple[Any, ...], settings: dict[str, Any]) -> None:
        self.node = node
        write_gpus(node.root, gpus, machine=regular_machine(sockets=2, cores=1, threads=1))
        self.settings = AmdSettings(state_dir="/s", busy_seconds=0.1, **settings)
        self.effects = self.make_effects(KernelEffects, gpus)
        self.driver = DriverHarness(self.make, node)

    def make_effects(self, kind: type[KernelEffects], gpus: tuple[Any, ...]) -> KernelEffects:
        """What is done to this node: the effects of this class; groups of VFIO get device nodes."""
        return kind(
            self.node.root, gpus, device_node=lambda path, minor: self.node.device_node(path, major=511, minor=minor)
        )

    def make(self) -> AmdGpuDriver:
        """A fresh driver, like that of a new process."""
        return AmdGpuDriver(self.settings, effects=self.effects, clock=CLOCK)

    def read(self, name: str, address: str = "0000:c1:00.0") -> str:
        """A file of a PCI function."""
        return self.node.path(f"/sys/bus/pci/devices/{address}/{name}").read_text().strip()

    def driver_of(self, address: str = "0000:c1:00.0") -> str | None:
        """The kernel driver of a PCI function."""
        link = self.node.path(f"/sys/bus/pci/devices/{address}/driver")
        return link.readlink().name if link.is_symlink() else None

    def records(self) -> list[str]:
        """The PCI functions that have a record."""
        return sorted(path.parent.name for path in self.node.path("/s/gpus").glob("*/record.json"))

    def open_by(self, pid: int, path: str) -> None:
        """Let a process have a device node open."""
        self.node.link(f"/proc/{pid}/fd/5", path)

    def close(self, pid: int) -> None:
        """Let the process end."""
        self.node.remove(f"/proc/{pid}")

    def held(self, allocated: dict[str, Any]) -> PreparedClaim:
        """An allocated claim as a prepared one, so that preparing it does not discover again."""
        return PreparedClaim(allocated, (), None, {}, self.node)


@pytest.fixture
def make_node(dra_node: FakeNode) -> Any:
    """Makes a node with these GPUs and the driver on it: `make_node(mi300x(), passthrough=True)`."""
    return lambda *gpus, **settings: AmdRig(dra_node, gpus, settings)


@pytest.fixture
def make(make_node: Any) -> Any:
    """The driver alone, with its default settings."""
    return lambda *gpus: make_node(*gpus).driver


@pytest.fixture
def manifests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The file with the objects that install the driver."""
    assert main(["manifests", "gpu-amd"]) == 0
    (tmp_path / "gpu-amd.yaml").write_text(capsys.readouterr().out)
    return tmp_path / "gpu-amd.yaml"
