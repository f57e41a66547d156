"""The AMD driver on nodes made of files, from what is published to what a container gets."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from dra_driver_amd import AmdGpuDriver, GpuConfig, node
from dra_driver_amd.gpus import read_gpus
from dra_driver_amd.testing import RX7900XTX, mi300x, write_gpus

from dra_sdk import ConfigError, HardwareError, Quantity, Version
from dra_sdk.cli.main import main
from dra_sdk.hardware import Host, collecting_omissions
from dra_sdk.testing import NotAllocatedError, PreparedClaim, claim, request
from dra_sdk.testing.waiting import wait

pytest_plugins = ["dra_sdk.testing.plugin"]


def test_a_whole_mi300x(make: Any) -> None:
    published = make(mi300x()).devices["gpu-1-128"]
    assert published.attributes == {
        "type": "amdgpu",
        "cardIndex": 1,
        "renderIndex": 128,
        "deviceID": "0x74a1",
        "pciAddr": "0000:c1:00.0",
        "family": "AI",
        "gfxTarget": "gfx942",
        "gfxVersion": Version("9.4.2"),
        "driverVersion": Version("6.12.12"),
        "driverVersionFull": "6.12.12.60401",
        "driverSrcVersion": "1A2B3C4D5E6F708192A3B4C",
        "resource.kubernetes.io/pcieRoot": "pci0000:c0",
        "resource.kubernetes.io/pciBusID": "0000:c1:00.0",
        "resource.kubernetes.io/numaNode": 0,
        "numaNode": 0,
        "productName": "AMD_Instinct_MI300X_OAM",
        "computePartition": "spx",
        "memoryPartition": "nps1",
        "partitionProfile": "spx_nps1",
    }
    assert published.capacity == {"memory": Quantity("201310208Ki"), "computeUnits": 304, "simdUnits": 1216}


@pytest.mark.parametrize("memory", ["nps1", "nps4"])
def test_eight_partitions_of_an_mi300x(make: Any, memory: str) -> None:
    devices = make(mi300x("cpx", memory), mi300x()).devices
    assert list(devices) == [f"gpu-{number + 1}-{number + 128}" for number in range(9)]
    parts = list(devices.values())[:8]
    for part in parts:
        assert part.attributes["type"] == "amdgpu-partition"
        assert part.attributes["partitionProfile"] == f"cpx_{memory}"
        assert part.attributes["parentPciAddr"] == "0000:c1:00.0"
        assert part.attributes["parentDeviceID"] == "0x74a1"
        assert part.attributes["resource.kubernetes.io/pcieRoot"] == "pci0000:c0"
        assert part.capacity == {"memory": Quantity(206_141_652_992 // 8), "computeUnits": 38, "simdUnits": 152}
    assert devices["gpu-9-136"].attributes["type"] == "amdgpu"


def test_a_card_that_cannot_be_partitioned(make: Any) -> None:
    published = make(RX7900XTX).devices["gpu-1-128"]
    assert published.attributes["type"] == "amdgpu"
    assert published.attributes["gfxTarget"] == "gfx1100"
    assert published.attributes["family"] == "GC_11_0_0"
    assert not {"partitionProfile", "computePartition", "memoryPartition"} & published.attributes.keys()
    assert "productName" not in published.attributes
    assert published.capacity["computeUnits"] == 96


def test_partitions_of_a_kernel_that_does_not_report_the_mode(make: Any, dra_node: Any) -> None:
    driver = make(mi300x("cpx"))
    for name in ("compute", "memory"):
        dra_node.remove(f"/sys/devices/pci0000:c0/0000:c1:00.0/current_{name}_partition")
    driver.discover()
    assert {device.attributes["type"] for device in driver.devices.values()} == {"amdgpu-partition"}
    assert all("partitionProfile" not in device.attributes for device in driver.devices.values())


def test_a_kernel_module_without_version(make: Any, dra_node: Any) -> None:
    driver = make(RX7900XTX)
    dra_node.remove("/sys/module/amdgpu")
    driver.discover()
    assert "driverVersion" not in driver.devices["gpu-1-128"].attributes


def test_memory_that_kfd_does_not_report(make: Any, dra_node: Any) -> None:
    driver = make(RX7900XTX)
    dra_node.remove("/sys/class/kfd/kfd/topology/nodes/1/mem_banks")
    driver.discover()
    assert driver.devices["gpu-1-128"].capacity["memory"] == 25_753_026_560
    dra_node.remove("/sys/devices/pci0000:c0/0000:c1:00.0/mem_info_vram_total")
    driver.discover()
    assert driver.devices["gpu-1-128"].capacity["memory"] == 0


def test_a_gpu_without_device_nodes_is_left_out(make: Any, dra_node: Any) -> None:
    driver = make(RX7900XTX, RX7900XTX)
    dra_node.remove("/sys/class/drm/renderD128")
    driver.discover()
    assert list(driver.devices) == ["gpu-2-129"]


def test_a_node_without_amd_gpus(make: Any) -> None:
    assert make().devices == {}


def test_every_release_accepts_its_slices(make: Any) -> None:
    make(*[mi300x("cpx", "nps4")] * 8).assert_publishable()


def test_a_container_gets_three_nodes(make: Any) -> None:
    prepared = make(mi300x("cpx")).prepare(claim("gpu", config=GpuConfig()))
    devices = prepared.container().devices
    numbers = {path: (node["major"], node["minor"]) for path, node in devices.items()}
    assert numbers == {"/dev/kfd": (235, 0), "/dev/dri/card1": (226, 1), "/dev/dri/renderD128": (226, 128)}


def test_two_partitions_of_one_gpu(make: Any) -> None:
    driver = make(mi300x(), mi300x("cpx"))
    where = 'device.attributes["gpu.amd.com"].type == "amdgpu-partition"'
    asked = claim(request("p", where=where, count=2), match="resource.kubernetes.io/pciBusID")
    prepared = driver.prepare(asked)
    assert prepared.names == ["gpu-9-136", "gpu-10-137"]
    assert set(prepared.container().devices) == {
        "/dev/kfd",
        "/dev/dri/card9",
        "/dev/dri/renderD136",
        "/dev/dri/card10",
        "/dev/dri/renderD137",
    }
    driver.unprepare(prepared)
    driver.assert_clean()


def test_numbers_that_sysfs_lacks_are_those_of_the_hosts_nodes(make: Any, dra_node: Any) -> None:
    driver = make(RX7900XTX)
    dra_node.remove("/sys/class/kfd/kfd/dev")
    dra_node.device_node("/dev/kfd", major=511, minor=7)
    node = driver.prepare(claim("gpu")).container().devices["/dev/kfd"]
    assert (node["major"], node["minor"]) == (511, 7)


def test_a_malformed_number_of_a_device_node_hides_no_gpu(make: Any, dra_node: Any) -> None:
    driver = make(RX7900XTX)
    dra_node.file("/sys/class/drm/renderD128/dev", "226\n")
    with collecting_omissions() as omissions:
        driver.discover()
    assert driver.devices.keys() == {"gpu-1-128"}
    assert [omission.reason.partition(": ")[2] for omission in omissions] == [
        "must be two numbers such as 226:128, is '226'"
    ]


def test_a_gpu_that_was_partitioned_after_its_allocation_is_an_error(make: Any, dra_node: Any) -> None:
    driver = make(RX7900XTX)
    known = PreparedClaim(driver.allocate(claim("gpu")), (), None, {}, dra_node)  # preparing it does not discover again
    dra_node.remove("/sys/class/kfd")
    with pytest.raises(HardwareError, match="gpu-1-128 is not on node node-1: were its GPUs partitioned differently"):
        driver.prepare(known)


def test_an_unknown_field_of_its_configuration_is_an_error(make: Any) -> None:
    driver = make(RX7900XTX)
    wrong = {"apiVersion": GpuConfig.api_version, "kind": "GpuConfig", "sharing": {}}
    with pytest.raises(ConfigError, match="sharing: unknown field"):
        driver.prepare(claim("gpu", config=wrong))


def test_a_missing_gpu_is_not_allocated(make: Any) -> None:
    with pytest.raises(NotAllocatedError):
        make(mi300x()).allocate(claim(request("p", where='device.attributes["gpu.amd.com"].cardIndex == 7')))


def test_it_notices_new_partitions(dra_node: Any, dra_driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gpus(dra_node.root, [mi300x("cpx")])
    looks: list[Host] = []
    monkeypatch.setattr(node, "read_gpus", lambda host: looks.append(host) or read_gpus(host))
    whole = dra_node.path("/sys/class/kfd/kfd/topology/nodes")
    hidden = whole.with_name("hidden")
    whole.rename(hidden)
    with dra_driver(partial(AmdGpuDriver, interval=0.01)).watching() as watch:
        hidden.rename(whole)
        (pool,) = watch.wait_changed()
        assert len(pool.devices) == 8
        properties = dra_node.path("/sys/class/kfd/kfd/topology/nodes/1/properties")
        dra_node.file("/malformed", "nonsense").replace(properties)  # costs its own partition
        (pool,) = watch.wait_changed()
        assert len(pool.devices) == 7
        looked, reports = len(looks), watch.reports
        wait(lambda: len(looks) > looked + 5)
        assert watch.reports <= reports + 1


def test_the_classes_are_valid(manifests: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(manifests)]) == 0, capsys.readouterr().err
