"""The driver conforms, as a process of its own: on veths of the real kernel, and on a tree of files with RDMA."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from dra_driver_nic.testing import PrivateNetworks, write_interface, write_rdma_device

from dra_sdk.testing import FakeNode
from dra_sdk.testing.sysfs import FakePci, regular_machine

pytestmark = pytest.mark.faults

pytest_plugins = ["dra_sdk.testing.plugin"]


def conformance(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run `dra-sdk conformance` with these settings of the driver."""
    command = [sys.executable, "-m", "dra_sdk.cli.main", "conformance", "--driver", "nic", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **settings})


@pytest.mark.timeout(1200)
def test_on_veths(networks: PrivateNetworks, tmp_path: Path) -> None:
    before = networks.node.state()
    settings = {
        "DRA_NIC_SOFTWARE": "veth",
        "DRA_NIC_PROTECT": "wire*",
        "DRA_NIC_STATE_DIR": str(tmp_path / "state"),
    }
    done = networks.node.enter(lambda: conformance(**settings))
    assert done.returncode == 0, done.stdout + done.stderr
    assert networks.node.state() == before


@pytest.mark.timeout(1200)
def test_on_virtual_functions_with_rdma(dra_node: FakeNode) -> None:
    pf = FakePci(address="0000:3b:00.0", driver="mlx5_core", total_vfs=8)
    vfs = [
        replace(pf, address=f"0000:3b:00.{number}", total_vfs=0, physical_function=pf.address) for number in range(1, 5)
    ]
    dra_node.machine(replace(regular_machine(), pci=(pf, *vfs)))
    for number, vf in enumerate(vfs):
        write_interface(dra_node, f"ens1v{number}", 3 + number, f"pci0000:00/{vf.address}")
        write_rdma_device(dra_node, f"mlx5_{number}", f"pci0000:00/{vf.address}", number)
    for path in dra_node.path("/dev/infiniband").iterdir():
        path.unlink()
        os.mkfifo(path)  # a device node that needs no privilege to make
    done = conformance("--host-root", str(dra_node.root))
    assert done.returncode == 0, done.stdout + done.stderr
