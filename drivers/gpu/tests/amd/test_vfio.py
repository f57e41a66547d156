"""GPUs and virtual functions for virtual machines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from dra_driver_amd import GpuConfig, VfioDeviceConfig
from dra_driver_amd.passthrough import read_passthrough
from dra_driver_amd.testing import RX7900XTX, mi300x, write_gpus

from dra_sdk import ConfigError, PermanentError, Quantity, RetriableError
from dra_sdk.testing import NotAllocatedError, claim, request

pytest_plugins = ["dra_sdk.testing.plugin"]
GPU = "0000:c1:00.0"
VM = 'device.attributes["gpu.amd.com"].type == "vfio"'
WHOLE = 'device.attributes["gpu.amd.com"].type == "amdgpu"'


def vm(name: str = "vm", **more: Any) -> Any:
    return request(name, where=VM, **more)


def iommu(policy: str = "LegacyOnly", *, api: bool = False) -> dict[str, Any]:
    config = {"backendPolicy": policy, "enableAPIDevice": api}
    return {"apiVersion": VfioDeviceConfig.api_version, "kind": "VfioDeviceConfig", "iommu": config}


def vfio_nodes(made: Any, *paths: str) -> None:
    """Give numbers to device nodes, which a container runtime reads."""
    for minor, path in enumerate(paths):
        made.node.device_node(path, major=511, minor=minor)


def test_without_passthrough_there_are_no_vfio_devices(make_node: Any) -> None:
    made = make_node(mi300x(), mi300x(driver="vfio-pci"), mi300x(driver="gim", vfs=2))
    assert list(made.driver.devices) == ["gpu-1-128"]


def test_a_gpu_for_a_virtual_machine(make_node: Any) -> None:
    published = make_node(mi300x(), passthrough=True).driver.devices["gpu-vfio-0000-c1-00-0"]
    assert published.attributes == {
        "type": "vfio",
        "vendorID": "0x1002",
        "deviceID": "0x74a1",
        "pciAddr": GPU,
        "isVF": False,
        "iommuGroup": "20",
        "iommuFDEnabled": True,
        "numaNode": 0,
        "productName": "AMD_Instinct_MI300X_OAM",
        "resource.kubernetes.io/pcieRoot": "pci0000:c0",
        "resource.kubernetes.io/pciBusID": GPU,
        "resource.kubernetes.io/numaNode": 0,
    }
    assert published.capacity == {"memory": Quantity("201310208Ki"), "computeUnits": 304, "simdUnits": 1216}


def test_virtual_functions_are_published_and_their_gpu_is_not(make_node: Any) -> None:
    devices = make_node(mi300x(driver="gim", vfs=2), passthrough=True).driver.devices
    assert list(devices) == ["gpu-vfio-0000-c1-02-0", "gpu-vfio-0000-c1-02-1"]
    published = devices["gpu-vfio-0000-c1-02-1"]
    assert published.attributes["isVF"] is True
    assert published.attributes["parentPciAddr"] == GPU
    assert published.attributes["deviceID"] == "0x74b5"
    assert published.attributes["iommuGroup"] == "101"
    assert published.capacity == {}


@pytest.mark.parametrize(
    ("gpu", "published"),
    [
        (mi300x(), ["gpu-1-128", "gpu-vfio-0000-c1-00-0"]),
        (mi300x(driver="vfio-pci"), ["gpu-vfio-0000-c1-00-0"]),
        (mi300x(driver=None), []),
        (mi300x(driver="gim"), []),
        (mi300x(vfs=1), ["gpu-1-128", "gpu-vfio-0000-c1-02-0"]),
    ],
)
def test_what_is_published_depends_on_the_driver(make_node: Any, gpu: Any, published: list[str]) -> None:
    assert list(make_node(gpu, passthrough=True).driver.devices) == published


def test_other_functions_are_not_published(make_node: Any) -> None:
    bridge = replace(RX7900XTX, class_code=0x060400, driver="vfio-pci")
    assert make_node(bridge, passthrough=True).driver.devices == {}


def test_a_function_without_iommu_is_not_published(make_node: Any) -> None:
    made = make_node(mi300x(), passthrough=True)
    made.node.remove(f"/sys/bus/pci/devices/{GPU}/iommu_group")
    made.driver.discover()
    assert list(made.driver.devices) == ["gpu-1-128"]


def test_every_release_accepts_its_slices(make_node: Any) -> None:
    make_node(*[mi300x("cpx")] * 8, passthrough=True).driver.assert_publishable("1.36")


def test_from_amdgpu_to_vfio_and_back(make_node: Any) -> None:
    made = make_node(mi300x(), passthrough=True)
    before = dict(made.driver.devices)
    prepared = made.driver.prepare(claim(vm()))
    vfio_nodes(made, "/dev/vfio/20")
    assert made.driver_of() == "vfio-pci"
    assert set(prepared.container().devices) == {"/dev/vfio/20"}
    made.driver.discover()
    (published,) = made.driver.devices.values()
    assert published.attributes == before["gpu-vfio-0000-c1-00-0"].attributes
    assert published.capacity == before["gpu-vfio-0000-c1-00-0"].capacity
    made.driver.restart()
    made.driver.unprepare(prepared)
    assert made.driver_of() == "amdgpu"
    assert made.read("driver_override") == "(null)"
    made.driver.discover()
    assert made.driver.devices == before
    assert made.records() == []
    made.driver.assert_clean()


def test_a_partitioned_gpu_is_partitioned_again_afterwards(make_node: Any) -> None:
    made = make_node(mi300x("cpx"), passthrough=True)
    before = dict(made.driver.devices)
    prepared = made.driver.prepare(claim(vm()))
    made.driver.unprepare(prepared)
    assert made.read("current_compute_partition") == "CPX"
    made.driver.discover()
    assert made.driver.devices == before


def test_an_unbound_virtual_function_is_bound_alone_and_unbound_again(make_node: Any) -> None:
    made = make_node(mi300x(driver="gim", vfs=3), passthrough=True)
    prepared = made.driver.prepare(claim(vm(count=2)))
    assert [made.driver_of(f"0000:c1:02.{n}") for n in range(3)] == ["vfio-pci", "vfio-pci", None]
    made.driver.unprepare(prepared)
    assert [made.driver_of(f"0000:c1:02.{n}") for n in range(3)] == [None, None, None]


def test_a_function_that_the_operator_bound_stays_bound(make_node: Any) -> None:
    made = make_node(mi300x(driver="vfio-pci"), passthrough=True)
    vfio_nodes(made, "/dev/vfio/20")
    prepared = made.driver.prepare(claim(vm()))
    assert set(prepared.container().devices) == {"/dev/vfio/20"}
    made.driver.unprepare(prepared)
    assert made.driver_of() == "vfio-pci"
    assert made.effects.calls == []


@pytest.mark.parametrize("mode", ["spx", "cpx"])
def test_the_gpu_and_its_vfio_device_exclude_each_other(make_node: Any, mode: str) -> None:
    made = make_node(mi300x(mode), passthrough=True)
    gpu = claim(request("gpu", where='device.attributes["gpu.amd.com"].type != "vfio"'))
    prepared = made.driver.prepare(gpu)
    with pytest.raises(NotAllocatedError):
        made.driver.allocate(claim(vm()))
    made.driver.unprepare(prepared)
    made.driver.prepare(claim(vm()))
    with pytest.raises(NotAllocatedError):
        made.driver.allocate(gpu)


def test_a_gpu_in_use_is_not_passed_through(make_node: Any) -> None:
    made = make_node(mi300x("cpx"), passthrough=True)
    made.open_by(77, "/dev/dri/renderD135")
    with pytest.raises(RetriableError, match="was still in use after 0 s, by processes 77"):
        made.driver.prepare(claim(vm()))
    assert made.driver_of() == "amdgpu"
    assert made.records() == []


def test_a_gpu_of_a_running_machine_is_not_taken_back(make_node: Any) -> None:
    made = make_node(mi300x(), passthrough=True)
    prepared = made.driver.prepare(claim(vm()))
    made.open_by(77, "/dev/vfio/20")
    with pytest.raises(RetriableError, match="by processes 77"):
        made.driver.unprepare(prepared)
    assert made.driver_of() == "vfio-pci"
    made.close(77)
    made.driver.unprepare(prepared)
    assert made.driver_of() == "amdgpu"


def test_a_gpu_whose_group_another_driver_uses_cannot_be_passed_through(make_node: Any) -> None:
    made = make_node(mi300x(), mi300x(), passthrough=True)
    link = made.node.path("/sys/bus/pci/devices/0000:c2:00.0/iommu_group")
    target = link.readlink().with_name("20")
    link.unlink()
    link.symlink_to(target)
    where = f'{VM} && device.attributes["gpu.amd.com"].pciAddr == "{GPU}"'
    with pytest.raises(PermanentError, match=r"0000:c2:00\.0 with driver amdgpu is in the same IOMMU group 20"):
        made.driver.prepare(claim(request("vm", where=where)))
    assert made.driver_of() == "amdgpu"
    made.driver.cluster.claims.clear()
    both = made.driver.prepare(claim(vm(count=2)))
    assert {made.driver_of(), made.driver_of("0000:c2:00.0")} == {"vfio-pci"}
    made.driver.unprepare(both)
    assert {made.driver_of(), made.driver_of("0000:c2:00.0")} == {"amdgpu"}


@pytest.mark.parametrize(
    ("config", "nodes"),
    [
        (iommu(), {"/dev/vfio/20"}),
        (iommu(api=True), {"/dev/vfio/20", "/dev/vfio/vfio"}),
        (iommu("PreferIommuFD"), {"/dev/vfio/devices/vfio3"}),
        (iommu("PreferIommuFD", api=True), {"/dev/vfio/devices/vfio3", "/dev/iommu"}),
    ],
)
def test_the_iommu_interface(make_node: Any, config: dict[str, Any], nodes: set[str]) -> None:
    made = make_node(mi300x(), passthrough=True)
    made.node.file(f"/sys/bus/pci/devices/{GPU}/vfio-dev/vfio3/uevent")
    vfio_nodes(made, "/dev/vfio/20", "/dev/vfio/vfio", "/dev/vfio/devices/vfio3", "/dev/iommu")
    prepared = made.driver.prepare(claim(vm(), config=config))
    assert set(prepared.container().devices) == nodes


def test_a_configuration_of_the_wrong_kind_is_an_error(make_node: Any) -> None:
    made = make_node(mi300x(), passthrough=True)
    divided = {"apiVersion": GpuConfig.api_version, "kind": "GpuConfig", "computePartition": "CPX"}
    with pytest.raises(ConfigError, match="GpuConfig cannot apply to device gpu-vfio-0000-c1-00-0"):
        made.driver.prepare(claim(vm(), config=divided))
    made.driver.cluster.claims.clear()
    with pytest.raises(ConfigError, match="VfioDeviceConfig cannot apply to device gpu-1-128"):
        made.driver.prepare(claim(request("gpu", where=WHOLE), config=iommu("PreferIommuFD")))


def test_an_empty_configuration_of_the_wrong_kind_does_no_harm(make_node: Any) -> None:
    made = make_node(mi300x(), passthrough=True)
    made.driver.prepare(claim(vm(), config=GpuConfig()))
    assert made.driver_of() == "vfio-pci"


def test_a_monitor_gets_the_node_of_a_bound_function_only(make_node: Any) -> None:
    made = make_node(mi300x(), mi300x(driver="vfio-pci"), passthrough=True)
    vfio_nodes(made, "/dev/vfio/21")
    prepared = made.driver.prepare(claim(vm(count=2, admin_access=True)))
    assert set(prepared.container().devices) == {"/dev/vfio/21"}
    assert made.effects.calls == []


def test_after_a_reboot_there_is_nothing_to_undo(make_node: Any) -> None:
    made = make_node(mi300x(), passthrough=True)
    prepared = made.driver.prepare(claim(vm()))
    made.driver.reboot()
    made.effects.calls.clear()
    made.driver.unprepare(prepared)
    assert made.effects.calls == []


def test_the_functions_of_a_node_without_iommufd(tmp_path: Any) -> None:
    host = write_gpus(tmp_path, [mi300x()])
    (tmp_path / "dev/iommu").unlink()
    assert [gpu.iommufd for gpu in read_passthrough(host)] == [False]
