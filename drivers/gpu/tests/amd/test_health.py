"""The health of GPUs."""

from __future__ import annotations

import shutil
from threading import Event
from typing import Any

import pytest
from dra_driver_amd.health import AmdHealthMonitor, ErrorCounts, read_error_counts
from dra_driver_amd.testing import mi300x, write_gpus

from dra_sdk import HealthStatus
from dra_sdk.testing import claim, request

pytest_plugins = ["dra_sdk.testing.plugin"]
GPU = "0000:c1:00.0"
SETTLE = 100.0


class Watched:
    """A node whose health is read at times that the test chooses."""

    def __init__(self, made: Any) -> None:
        self.made, self.now, self.node = made, 0.0, made.node
        driver = made.make()
        self.monitor = driver.health_monitor(made.node.node, lambda: self.now)

    def look(self, after: float = 5.0) -> dict[str, str]:
        """The problems of all devices `after` seconds; empty for a healthy one."""
        self.now += after
        health = self.monitor.look()
        return {device.device: device.message if device.status is HealthStatus.UNHEALTHY else "" for device in health}

    def remarks(self) -> dict[str, str]:
        return {health.device: health.message for health in self.monitor.look()}

    def count(self, block: str, uncorrectable: int, corrected: int = 0) -> None:
        text = f"ue: {uncorrectable}\nce: {corrected}\n"
        self.node.file(f"/sys/bus/pci/devices/{GPU}/ras/{block}_err_count", text)


@pytest.fixture
def watched(make_node: Any) -> Any:
    return lambda *gpus, **settings: Watched(make_node(*gpus, settle_seconds=SETTLE, **settings))


def test_healthy_gpus(watched: Any) -> None:
    assert watched(mi300x(), mi300x()).look() == {"gpu-1-128": "", "gpu-9-136": ""}


def test_an_uncorrectable_error_concerns_all_partitions_until_it_has_settled(watched: Any) -> None:
    node = watched(mi300x("dpx"), mi300x())
    node.look()
    node.count("umc", 1)
    problem = "uncorrectable error in umc"
    assert node.look() == {"gpu-1-128": problem, "gpu-2-129": problem, "gpu-9-136": ""}
    node.count("umc", 2)
    assert node.look()["gpu-1-128"] == "uncorrectable error in umc, 2 times"
    assert node.look(SETTLE - 1)["gpu-1-128"] == "uncorrectable error in umc, 2 times"
    assert node.look(1)["gpu-1-128"] == ""


def test_errors_of_several_blocks_stand_side_by_side(watched: Any) -> None:
    node = watched(mi300x())
    node.look()
    node.count("gfx", 1)
    node.look(50)
    node.count("umc", 1)
    assert node.look(1)["gpu-1-128"] == "uncorrectable error in gfx; uncorrectable error in umc"
    assert node.look(99)["gpu-1-128"] == "uncorrectable error in umc"


def test_counters_that_start_again_from_less_are_a_recovery(watched: Any) -> None:
    node = watched(mi300x())
    node.count("umc", 3)
    node.look()
    node.count("umc", 4)
    assert node.look()["gpu-1-128"]
    node.count("umc", 0)
    assert node.look()["gpu-1-128"] == ""


def test_errors_from_before_the_start_are_only_mentioned(watched: Any) -> None:
    node = watched(mi300x())
    node.count("umc", 3, corrected=7)
    assert node.remarks() == {
        "gpu-1-128": "uncorrectable errors since the driver was loaded: 3; corrected errors: 7",
    }


def test_a_memory_page_that_cannot_be_retired(watched: Any) -> None:
    node = watched(mi300x())
    pages = f"/sys/bus/pci/devices/{GPU}/ras/gpu_vram_bad_pages"
    node.node.file(pages, "0x00000001 : 0x00001000 : R\n0x00000002 : 0x00001000 : F\n")
    assert node.look()["gpu-1-128"] == "memory pages that cannot be retired: 1"
    node.node.file(pages, "0x00000001 : 0x00001000 : R\n0x00000002 : 0x00001000 : P\n")
    assert node.remarks()["gpu-1-128"] == "retired memory pages: 2"


def test_a_gpu_that_has_left_the_bus_and_is_back(watched: Any) -> None:
    node = watched(mi300x("dpx"))
    node.look()
    link = node.node.path(f"/sys/bus/pci/devices/{GPU}")
    node.count("umc", 1)
    assert node.look()["gpu-1-128"] == "uncorrectable error in umc"
    link.rename(node.node.root / "hidden")
    lost = "the GPU has left the PCI bus; uncorrectable error in umc"
    assert node.look() == {"gpu-1-128": lost, "gpu-2-129": lost}
    (node.node.root / "hidden").rename(link)
    assert node.look() == {"gpu-1-128": "", "gpu-2-129": ""}


def test_a_gpu_that_does_not_answer(watched: Any) -> None:
    node = watched(mi300x())
    node.look()
    node.node.file(f"/sys/bus/pci/devices/{GPU}/config", b"\xff" * 64)
    assert node.look()["gpu-1-128"] == "the GPU does not answer on the PCI bus"
    node.node.file(f"/sys/bus/pci/devices/{GPU}/config", b"\x02\x10")
    assert node.look()["gpu-1-128"] == ""


def test_a_gpu_without_driver(watched: Any) -> None:
    node = watched(mi300x())
    node.look()
    unbind = node.node.path("/sys/bus/pci/drivers/amdgpu/unbind")
    node.made.effects.write(unbind, GPU)
    assert node.look()["gpu-1-128"] == "the GPU has no driver instead of amdgpu"
    node.made.effects.write(unbind.with_name("bind"), GPU)
    assert node.look()["gpu-1-128"] == ""


def test_a_gpu_that_an_operator_took_has_another_driver(watched: Any) -> None:
    node = watched(mi300x())
    node.look()
    address = node.node.path(f"/sys/bus/pci/devices/{GPU}")
    node.made.effects.write(node.node.path("/sys/bus/pci/drivers/amdgpu/unbind"), GPU)
    node.made.effects.write(address / "driver_override", "vfio-pci")
    node.made.effects.write(node.node.path("/sys/bus/pci/drivers/vfio-pci/bind"), GPU)
    assert node.look()["gpu-1-128"] == "the GPU has driver vfio-pci instead of amdgpu"


def test_kfd_may_miss_a_gpu_for_a_moment(watched: Any) -> None:
    node = watched(mi300x(), mi300x())
    node.look()
    nodes = node.node.path("/sys/class/kfd")
    nodes.rename(nodes.with_name("hidden"))
    assert set(node.look().values()) == {""}
    assert set(node.look().values()) == {"KFD does not know the GPU"}
    nodes.with_name("hidden").rename(nodes)
    assert set(node.look().values()) == {""}


def test_a_gpu_is_healthy_while_a_virtual_machine_has_it(watched: Any) -> None:
    node = watched(mi300x(), passthrough=True)
    assert node.look() == {"gpu-1-128": "", "gpu-vfio-0000-c1-00-0": ""}
    where = 'device.attributes["gpu.amd.com"].type == "vfio"'
    prepared = node.made.driver.prepare(claim(request("vm", where=where)))
    assert node.look() == {"gpu-vfio-0000-c1-00-0": ""}
    node.node.remove(f"/sys/bus/pci/devices/{GPU}")
    assert node.look() == {"gpu-vfio-0000-c1-00-0": "the GPU has left the PCI bus"}
    assert prepared.names == ["gpu-vfio-0000-c1-00-0"]


def test_errors_from_before_a_virtual_machine_are_not_new(watched: Any) -> None:
    node = watched(mi300x(), passthrough=True)
    node.look()
    where = 'device.attributes["gpu.amd.com"].type == "vfio"'
    prepared = node.made.driver.prepare(claim(request("vm", where=where)))
    node.look()
    node.made.driver.unprepare(prepared)
    node.count("umc", 3)
    assert set(node.look().values()) == {""}
    node.count("umc", 4)
    assert set(node.look().values()) == {"uncorrectable error in umc"}


def test_a_counter_that_could_not_be_read_for_a_moment_is_not_a_new_error(watched: Any) -> None:
    node = watched(mi300x())
    node.count("umc", 3)
    node.look()
    counter = node.node.path(f"/sys/bus/pci/devices/{GPU}/ras/umc_err_count")
    counter.unlink()
    assert node.look()["gpu-1-128"] == ""
    node.count("umc", 3)
    assert node.look()["gpu-1-128"] == ""
    counter.unlink()
    node.look()
    node.count("umc", 4)
    assert node.look()["gpu-1-128"] == "uncorrectable error in umc"


def test_virtual_functions_read_as_all_ones_and_are_healthy(watched: Any) -> None:
    node = watched(mi300x(driver="gim", vfs=2), passthrough=True)
    node.node.file("/sys/bus/pci/devices/0000:c1:02.0/config", b"\xff" * 64)
    assert node.look() == {"gpu-vfio-0000-c1-02-0": "", "gpu-vfio-0000-c1-02-1": ""}


def test_a_gpu_that_is_divided_for_a_claim_is_one_device(watched: Any) -> None:
    node = watched(mi300x(), partitioning=True)
    node.look()
    config = {"apiVersion": "gpu.resource.amd.com/v1alpha1", "kind": "GpuConfig", "computePartition": "CPX"}
    node.made.driver.prepare(claim("gpu", config=config))
    assert node.look() == {"gpu-1-128": ""}
    node.count("sdma", 1)
    assert node.look() == {"gpu-1-128": "uncorrectable error in sdma"}


def test_the_hook_reports_until_it_is_stopped(make_node: Any) -> None:
    made, stop = make_node(mi300x()), Event()
    reports = made.make().dra_device_health(made.node.node, stop)
    assert [(health.device, health.status) for health in next(reports)] == [("gpu-1-128", HealthStatus.HEALTHY)]
    stop.set()
    assert list(reports) == []


def test_a_malformed_file_is_tried_again(watched: Any) -> None:
    node = watched(mi300x())
    properties = "/sys/class/kfd/kfd/topology/nodes/1/properties"
    whole = node.node.path(properties).read_text()
    node.node.file(properties, "nonsense")

    class Repair(Event):
        def wait(self, timeout: float | None = None) -> bool:
            node.node.file(properties, whole)
            return False

    reports = node.monitor.watch(Repair(), 0.0)
    assert next(reports) == []  # the GPU is left out
    (report,) = next(reports)
    assert report.status is HealthStatus.HEALTHY


def test_counters_of_a_kernel_with_aca(tmp_path: Any) -> None:
    pci = write_gpus(tmp_path, [mi300x()]).sys / f"bus/pci/devices/{GPU}"
    shutil.rmtree(pci / "ras")
    (pci / "ras").mkdir()
    (pci / "ras/aca_umc").write_text("ue: 1\nce: 2\nde: 3\n")
    (pci / "ras/aca_xgmi_wafl").write_text("ue: 4\nce: 5\nde: 0\n")
    (pci / "ras/features").write_text("feature mask: 0xfff\n")
    assert read_error_counts(pci) == ErrorCounts(uncorrectable={"umc": 1, "xgmi_wafl": 4}, corrected=7, deferred=3)


def test_a_gpu_without_ras_has_no_counts(tmp_path: Any) -> None:
    pci = write_gpus(tmp_path, [mi300x()]).sys / f"bus/pci/devices/{GPU}"
    shutil.rmtree(pci / "ras")
    assert read_error_counts(pci) == ErrorCounts()


def test_a_counter_that_cannot_be_read_is_left_out(tmp_path: Any) -> None:
    pci = write_gpus(tmp_path, [mi300x()]).sys / f"bus/pci/devices/{GPU}"
    (pci / "ras/umc_err_count").unlink()
    (pci / "ras/umc_err_count").mkdir()
    assert read_error_counts(pci).uncorrectable == {"gfx": 0, "sdma": 0}


def test_the_monitor_is_kept_between_two_calls_of_the_hook(make_node: Any) -> None:
    made = make_node(mi300x())
    driver = made.make()
    first: AmdHealthMonitor = driver.health_monitor(made.node.node)
    assert driver.health_monitor(made.node.node) is first
