"""Which devices a fault concerns: MIG devices, static and dynamic, and VFIO siblings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dra_driver_gpu.describe import PublishOptions
from dra_driver_gpu.nvml.errors import ReturnCode
from dra_driver_gpu.nvml.values import EventType

from dra_sdk import HealthStatus

XID = EventType.XID_CRITICAL_ERROR
Watch = Callable[..., Any]
LEFT, RIGHT = "gpu-0-mig-3g20gb-9-0", "gpu-0-mig-3g20gb-9-4"
BOTH = PublishOptions(dynamic_mig=True, passthrough=True)


def halves(watch: Watch) -> tuple[Any, int, int]:
    """Two MIG devices, and the ids of their GPU instances."""
    node = watch("A100-40GB", mig=True)
    return node, node.create(0, 9, 0, 4), node.create(0, 9, 4, 4)


def test_an_error_in_a_mig_device_concerns_it_alone(watch: Watch) -> None:
    node, left, _ = halves(watch)
    assert list(node.step()) == [LEFT, RIGHT]
    node.nvml.inject_event(node.gpus[0], XID, 94, gpu_instance_id=left, compute_instance_id=0)
    assert list(node.unhealthy()) == [LEFT]


def test_an_error_of_the_gpu_concerns_all_its_mig_devices(watch: Watch) -> None:
    node, _, _ = halves(watch)
    node.step()
    node.nvml.inject_event(node.gpus[0], XID, 79)
    assert list(node.unhealthy()) == [LEFT, RIGHT]


def test_the_mig_devices_of_a_lost_gpu_are_unhealthy(watch: Watch) -> None:
    node, _, _ = halves(watch)
    node.step()
    node.nvml.lose(node.gpus[0])
    assert list(node.unhealthy()) == [LEFT, RIGHT]


def test_an_error_in_an_unknown_instance_concerns_the_whole_gpu(watch: Watch) -> None:
    node, _, _ = halves(watch)
    node.step()
    node.nvml.inject_event(node.gpus[0], XID, 94, gpu_instance_id=13, compute_instance_id=0)
    assert list(node.unhealthy()) == [LEFT, RIGHT]


def test_an_instance_that_cannot_be_read_is_where_it_was_last_seen(watch: Watch) -> None:
    node, _, right = halves(watch)
    node.step()
    node.nvml.fail("nvmlDeviceGetGpuInstanceById", ReturnCode.UNKNOWN)
    node.nvml.inject_event(node.gpus[0], XID, 94, gpu_instance_id=right, compute_instance_id=0)
    assert list(node.unhealthy()) == [RIGHT]


def test_an_error_in_a_dynamic_mig_device_concerns_all_on_its_slices(watch: Watch) -> None:
    node = watch("H100-80GB", "H100-80GB", options=BOTH)
    names = list(node.step())
    node.nvml.init()
    node.nvml.device_by_index(0).set_mig_mode(True)
    node.nvml.shutdown()
    right = node.create(0, 9, 4, 4)
    node.nvml.inject_event(node.gpus[0], XID, 94, gpu_instance_id=right, compute_instance_id=0)
    unhealthy = node.unhealthy()
    assert "gpu-0-mig-3g40gb-9-4" in unhealthy
    assert not any(name.startswith("gpu-1") or name == "gpu-vfio-1" for name in unhealthy)
    assert all(int(name[-1]) >= 4 or "7g80gb" in name for name in unhealthy if "-mig-" in name)
    healthy = {name for name in names if name.startswith("gpu-0-mig")} - unhealthy.keys()
    assert "gpu-0-mig-3g40gb-9-0" in healthy
    assert "gpu-0-mig-1g10gb-19-3" in healthy


def test_an_error_of_the_gpu_concerns_its_vfio_sibling(watch: Watch) -> None:
    node = watch("L4", "A100-40GB", options=PublishOptions(passthrough=True))
    assert set(node.step()) == {"gpu-0", "gpu-vfio-0", "gpu-1", "gpu-vfio-1"}
    node.nvml.inject_event(node.gpus[1], XID, 79)
    assert set(node.unhealthy()) == {"gpu-1", "gpu-vfio-1"}


def bind(node: Any, gpu: int, driver: str) -> None:
    link = node.files.host.sys / "bus/pci/devices" / node.files.gpus[gpu].pci_address / "driver"
    link.unlink(missing_ok=True)
    link.symlink_to(f"../../../../bus/pci/drivers/{driver}")


def test_a_gpu_with_a_virtual_machine_is_not_lost(watch: Watch) -> None:
    node = watch("L4", "L4", options=PublishOptions(passthrough=True))
    node.step()
    bind(node, 0, "vfio-pci")
    gone = node.nvml.unbind(node.gpus[0])
    report = node.step()
    assert set(report) == {"gpu-vfio-0", "gpu-1", "gpu-vfio-1"}
    assert all(health.status is HealthStatus.HEALTHY for health in report.values())
    bind(node, 0, "nvidia")
    node.nvml.bind(gone)
    assert set(node.step()) == {"gpu-0", "gpu-vfio-0", "gpu-1", "gpu-vfio-1"}


def test_a_gpu_that_nvml_no_longer_knows_is_lost_if_the_kernel_driver_has_it(watch: Watch) -> None:
    node = watch("L4", "L4")
    node.step()
    node.nvml.unbind(node.gpus[0])
    assert list(node.unhealthy()) == ["gpu-0"]


def test_a_node_whose_gpus_are_all_bound_to_vfio(watch: Watch) -> None:
    node = watch("L4", options=PublishOptions(passthrough=True))
    bind(node, 0, "vfio-pci")
    node.nvml.unbind(node.gpus[0])
    assert {name: health.status for name, health in node.step().items()} == {"gpu-vfio-0": HealthStatus.HEALTHY}


def test_a_node_whose_gpus_are_all_bound_to_vfio_needs_no_driver(watch: Watch) -> None:
    node = watch("L4", options=PublishOptions(passthrough=True))
    node.step()
    bind(node, 0, "vfio-pci")
    node.nvml.fail("nvmlInitWithFlags", ReturnCode.DRIVER_NOT_LOADED, times=10**6)
    node.end()
    node.restart()
    assert {name: health.status for name, health in node.step().items()} == {"gpu-vfio-0": HealthStatus.HEALTHY}
