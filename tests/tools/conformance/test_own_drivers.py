"""The drivers of this project pass, each as a process of its own as on a node."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from dra_driver_amd.testing import mi300x, write_gpus

from dra_sdk.hardware import link_name
from dra_sdk.testing.sysfs import FakePci, regular_machine
from dra_sdk.tools.conformance.check import Check, Severity, run_checks
from dra_sdk.tools.conformance.checks import CHECKS, select
from dra_sdk.tools.conformance.target import Target
from dra_sdk.tools.conformance.timeouts import Timeouts

README = Path(__file__).parents[3] / "README.md"
SRIOV = Path(__file__).parents[3] / "docs/examples/sriov"
TIMEOUTS = Timeouts(quiet=0.5)


def failed(target: Target, checks: Sequence[Check]) -> list[str]:
    """The failed checks that must hold."""
    with target.open() as run:
        results = run_checks(run, checks)
    assert sum(not each.reason for each in results) > len(checks) / 2
    return [
        f"{each.check.id}: {each.reason}" for each in results if each.failed and each.check.severity is Severity.MUST
    ]


@pytest.mark.timeout(1200)
def test_the_cpu_driver_conforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRA_CPU_RESERVED_CPUS", "0")  # the last CPU belongs to containers without claims
    assert failed(Target(driver="cpu", timeouts=TIMEOUTS), CHECKS) == []


@pytest.mark.timeout(1200)
def test_the_memory_driver_conforms(tmp_path: Path) -> None:
    host = replace(regular_machine(sockets=2), hugepages={2 << 20: 512}).write(tmp_path / "host")
    (host.proc / "sys/kernel/random").mkdir(parents=True)
    (host.proc / "sys/kernel/random/boot_id").write_text("boot\n")
    checks = [check for check in CHECKS if check.level not in {"restart", "rolling"}]
    assert failed(Target(driver="memory", host_root=host.root, timeouts=TIMEOUTS), checks) == []


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
    # Restarts and updates are handled by the SDK; the test above checks them.
    checks = [check for check in CHECKS if check.level not in {"restart", "rolling"}]
    assert failed(target, checks) == []


@pytest.mark.timeout(1200)
def test_the_amd_driver_conforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With passthrough, so containers also get files that the SDK writes: device metadata."""
    monkeypatch.setenv("DRA_AMD_PASSTHROUGH", "true")
    host = write_gpus(tmp_path / "host", [mi300x(), mi300x("cpx", "nps4")])
    for path in [each for each in host.dev.rglob("*") if each.is_file()]:
        path.unlink()
        os.mkfifo(path)  # a device node that needs no privilege to make
    (tmp_path / "host/proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "host/proc/sys/kernel/random/boot_id").write_text("boot\n")
    checks = [check for check in CHECKS if check.level not in {"restart", "rolling"}]
    assert failed(Target(driver="gpu-amd", host_root=host.root, timeouts=TIMEOUTS), checks) == []


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
    for path in (pf / "health", *(pf / "profiles" / each.address for each in vfs)):
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
    checks = [check for check in CHECKS if check.level not in {"restart", "rolling"}]
    assert failed(target, checks) == []
    assert {link_name(host.sys / "bus/pci/devices" / each.address / "driver") for each in vfs} == {"accel_vf"}


def test_the_skipped_levels_exist() -> None:
    assert select(["restart", "rolling"])
