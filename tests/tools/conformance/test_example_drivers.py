"""The drivers of README and examples pass, each as a process of its own as on a node."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from dra_sdk.hardware import link_target_name
from dra_sdk.testing.conformance import Target, Timeouts, assert_conforms
from dra_sdk.testing.sysfs import FakePci, regular_machine
from dra_sdk.tools.conformance.checks import select

README = Path(__file__).parents[3] / "README.md"
SRIOV = Path(__file__).parents[3] / "docs/examples/sriov"
TIMEOUTS = Timeouts(quiet=0.5)


SDK = {"restart", "rolling"}
"""Levels of which the SDK alone decides; the tests of dra-driver-cpu have them."""


@pytest.mark.timeout(1200)
def test_the_readmes_driver_conforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (code,) = [block for block in blocks if "class SerialDriver" in block]
    (tmp_path / "serial_driver.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    host = tmp_path / "host"
    (host / "dev").mkdir(parents=True)
    for number in range(3):
        os.mkfifo(host / f"dev/ttyUSB{number}")  # a device node that needs no privilege to make
    (host / "proc/sys/kernel/random").mkdir(parents=True)
    (host / "proc/sys/kernel/random/boot_id").write_text("boot\n")
    target = Target(driver="serial_driver:SerialDriver", host_root=host, timeouts=TIMEOUTS)
    assert_conforms(target, without=SDK)


SRIOV_ON_FILES = """
import os
from pathlib import Path

from sriov_driver import SriovDriver

from dra_sdk.testing import FakeEffects

ROOT = Path(os.environ["DRA_TEST_ROOT"])


class OnFiles(SriovDriver):
    def __init__(self, settings=None):
        # A device node that needs no privilege to make.
        effects = FakeEffects(ROOT, device_node=lambda path, minor: os.mkfifo(ROOT / path[1:]))
        super().__init__(settings, effects=effects)
"""


@pytest.mark.timeout(1200)
def test_the_sriov_driver_of_the_examples_conforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel is that of `FakeEffects`: a claim takes each VF from its driver to VFIO and back."""
    card = FakePci(address="0000:3b:00.0", class_code=0x120000, driver="accel", iommu_group=20, total_vfs=8)
    vf = replace(card, driver="accel_vf", total_vfs=0, physical_function=card.address)
    vfs = [replace(vf, address=f"0000:3b:00.{number}", iommu_group=20 + number) for number in (1, 2, 3)]
    host = replace(regular_machine(), pci=(card, *vfs)).write(tmp_path / "host")
    pf = host.sys / "bus/pci/devices" / card.address
    (pf / "profiles").mkdir()
    for path in (pf / "health", *(pf / "profiles" / vf.address for vf in vfs)):
        path.write_text("ok")
    (host.dev / "vfio").mkdir(parents=True)
    os.mkfifo(host.dev / "vfio/vfio")
    (host.proc / "sys/kernel/random").mkdir(parents=True)
    (host.proc / "sys/kernel/random/boot_id").write_text("boot\n")
    (tmp_path / "sriov_on_files.py").write_text(SRIOV_ON_FILES)
    monkeypatch.setenv("DRA_TEST_ROOT", str(host.root))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SRIOV), str(tmp_path)]))
    for directory in (SRIOV, tmp_path):
        monkeypatch.syspath_prepend(directory)
    target = Target(driver="sriov_on_files:OnFiles", host_root=host.root, timeouts=TIMEOUTS)
    assert_conforms(target, without=SDK)
    assert {link_target_name(host.sys / "bus/pci/devices" / vf.address / "driver") for vf in vfs} == {"accel_vf"}


def test_the_skipped_levels_exist() -> None:
    assert select(["restart", "rolling"])
