"""Partitions of the NVSwitch fabric: published, activated for virtual machines, deactivated in spite of failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dra_driver_gpu.driver import GpuDriver
from dra_driver_gpu.testing.fabric import MemoryFabricManager
from dra_driver_gpu.testing.harness import GpuHarness
from dra_driver_gpu.testing.nvml import fake_gpu

from dra_sdk import DraError, PermanentError, RetriableError
from dra_sdk.hardware.polling import Clock
from dra_sdk.testing import PreparedClaim, claim, request

NAMES = ("gpuModuleID", "partition1", "partition2", "partition4", "partition8")


class FabricRig(GpuHarness):
    """A node with four GPUs on NVSwitches."""

    def __init__(self, directory: Path, gpus: int = 4, **settings: Any) -> None:
        self.fabric = MemoryFabricManager(gpus)
        with_fabric = {"passthrough": True, "vfio_seconds": 0.2, "fabric_manager": "/run/fm", **settings}
        super().__init__(directory, [fake_gpu("H100-80GB", minor) for minor in range(gpus)], **with_fabric)

    def make(self) -> GpuDriver:
        return GpuDriver(
            self.settings,
            nvml=lambda _root: self.memory,
            effects=self.effects,
            clock=Clock(interval=0.02),
            fabric=lambda *_: self.fabric,
        )


@pytest.fixture
def harness(tmp_path: Path) -> FabricRig:
    return FabricRig(tmp_path)


def vms(*devices: str) -> Any:
    """A claim for these devices."""
    return claim(
        *(
            request(f"r{number}", device_class="vfio.gpu.nvidia.com", where=f"{_MODULE} == {int(name[-1]) + 1}")
            for number, name in enumerate(devices)
        )
    )


_MODULE = 'device.attributes["gpu.nvidia.com"].gpuModuleID'


def test_gpus_and_vfio_devices_have_their_module_and_partitions(tmp_path: Path) -> None:
    devices = FabricRig(tmp_path, dynamic_mig=True).driver.devices
    for name in ("gpu-2", "gpu-vfio-2"):
        attributes = devices[name].attributes
        assert {attribute: attributes.get(attribute) for attribute in NAMES} == dict(
            zip(NAMES, (3, 5, 2, 0, None), strict=True)
        )
    assert not set(NAMES) & devices["gpu-2-mig-7g80gb-0-0"].attributes.keys()


def test_nothing_is_asked_or_published_unless_an_operator_wants_it(tmp_path: Path) -> None:
    harness = FabricRig(tmp_path, fabric_manager=None)
    assert not set(NAMES) & harness.driver.devices["gpu-0"].attributes.keys()
    harness.driver.prepare(claim(request("vm", device_class="vfio.gpu.nvidia.com")))
    assert harness.fabric.calls == []


def test_a_fabric_manager_that_does_not_answer_yet_hides_no_gpu(harness: FabricRig, caplog: Any) -> None:
    harness.fabric.fails_always = True
    before = harness.driver.plugin.snapshot(harness.node.node)
    assert "gpuModuleID" not in harness.driver.devices["gpu-0"].attributes
    assert "partitions of the NVSwitch fabric are not published" in caplog.text
    harness.fabric.fails_always = False
    assert harness.driver.plugin.snapshot(harness.node.node) != before
    harness.driver.discover()
    assert harness.driver.devices["gpu-0"].attributes["gpuModuleID"] == 1


def test_a_claim_activates_the_partition_of_its_gpus_before_they_are_bound(harness: FabricRig) -> None:
    before = harness.state()
    one, pair = harness.driver.prepare(vms("gpu-0")), harness.driver.prepare(vms("gpu-2", "gpu-3"))
    assert harness.fabric.active == {3, 2}
    assert harness.driver.devices["gpu-vfio-2"].attributes["partition2"] == 2  # NVML does not see it any more
    harness.driver.unprepare(one)
    assert harness.fabric.active == {2}
    harness.driver.unprepare(pair)
    assert harness.fabric.active == set()
    assert without_modules(harness.state()) == without_modules(before)


def test_gpus_that_are_no_partition_are_refused(harness: FabricRig) -> None:
    expected = r"modules 2, 3\) are no partition .* there are 1, 2, 3, 4; 1, 2; 3, 4; 1; 2; 3; 4. .* partition2"
    with pytest.raises(PermanentError, match=expected):
        harness.driver.prepare(vms("gpu-1", "gpu-2"))
    assert harness.fabric.active == set()


def test_a_partition_that_an_operator_activated_stays(harness: FabricRig) -> None:
    harness.fabric.activate(3)
    harness.driver.unprepare(harness.driver.prepare(vms("gpu-0")))
    assert harness.fabric.active == {3}


def test_a_partition_of_a_claim_that_holds_nothing_any_more_is_deactivated(harness: FabricRig) -> None:
    lost = harness.driver.prepare(vms("gpu-0"))
    next(harness.driver.data.glob("claims/*.json")).unlink()
    harness.driver.restart()
    harness.driver.cluster.claims.pop(lost.ref.uid)
    harness.driver.prepare(vms("gpu-1"))
    assert harness.fabric.active == {4}


def test_after_a_reboot_nothing_is_deactivated(harness: FabricRig) -> None:
    """The Fabric Manager starts with no partition, or with those of an operator."""
    prepared = harness.driver.prepare(vms("gpu-0"))
    harness.driver.reboot()
    harness.fabric.calls.clear()
    harness.driver.unprepare(prepared)
    assert "deactivate 3" not in harness.fabric.calls


@pytest.mark.parametrize("after", [False, True])
def test_a_failure_at_every_call_leaves_no_partition_active(tmp_path: Path, *, after: bool) -> None:
    points = 0
    for nth in range(1, 9):
        harness = FabricRig(tmp_path / str(nth))
        asked = harness.driver.allocate(vms("gpu-2", "gpu-3"))
        harness.fabric.fail_call(nth, after=after)
        prepared, failed = prepare(harness, asked)
        if prepared is None:
            assert harness.fabric.active == set()
            prepared, _ = prepare(harness, asked)
        assert prepared is not None
        assert harness.fabric.active == {2}
        for _ in range(2):
            try:
                harness.driver.unprepare(prepared)
            except DraError:
                failed = True
        assert harness.fabric.active == set()
        points += failed
    assert points >= 4


def prepare(harness: FabricRig, asked: Any) -> tuple[PreparedClaim | None, bool]:
    try:
        return harness.driver.prepare(asked), False
    except RetriableError:
        return None, True


def without_modules(state: dict[str, Any]) -> dict[str, Any]:
    """The state without the modules of GPUs, which do not change."""
    return {**state, "files": {name: text for name, text in state["files"].items() if "fabric/" not in name}}
