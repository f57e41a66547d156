"""The drivers of this project pass, each as a process of its own as on a node."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from dra_driver_amd.testing import mi300x, write_gpus

from dra_sdk.tools.conformance.check import Check, Severity, run_checks
from dra_sdk.tools.conformance.checks import CHECKS, select
from dra_sdk.tools.conformance.target import Target
from dra_sdk.tools.conformance.timeouts import Timeouts

README = Path(__file__).parents[3] / "README.md"
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
def test_the_cpu_driver_conforms() -> None:
    assert failed(Target(driver="cpu", timeouts=TIMEOUTS), CHECKS) == []


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


def test_the_skipped_levels_exist() -> None:
    assert select(["restart", "rolling"])
