"""The devices that a node publishes, in every mode."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest
from dra_driver_gpu.describe import PublishOptions, make_pool, read_inventory
from dra_driver_gpu.describe.devices import GpuKind
from dra_driver_gpu.driver import GpuDriver
from dra_driver_gpu.nvml.mig import Placement
from dra_driver_gpu.nvml.values import VirtualizationMode
from dra_driver_gpu.settings import GpuSettings
from dra_driver_gpu.testing.node import GpuNode
from dra_driver_gpu.testing.nvml import fake_gpu, read_fixture

from dra_sdk import Node
from dra_sdk.hardware import NUMA_NODE, PCI_BUS_ID, PCIE_ROOT, Host, collecting_omissions
from dra_sdk.testing import NotAllocatedError, claim, request
from dra_sdk.testing.sysfs import regular_machine

COMMON = {
    "productName",
    "brand",
    "architecture",
    "cudaComputeCapability",
    "driverVersion",
    "cudaDriverVersion",
    "addressingMode",
    PCI_BUS_ID,
    PCIE_ROOT,
    NUMA_NODE,
}
ENGINES = {"multiprocessors", "copyEngines", "decoders", "encoders", "jpegEngines", "ofaEngines", "memory"}


def test_the_attributes_of_a_gpu(make_gpus):
    (gpu,) = make_gpus("A100-40GB").driver.devices.values()
    assert set(gpu.attributes) == {"type", "uuid", *COMMON}
    assert gpu.attributes["architecture"] == "Ampere"
    assert gpu.attributes["cudaComputeCapability"] == "8.0.0"
    assert gpu.attributes["driverVersion"] == "580.95.5"
    assert gpu.attributes["cudaDriverVersion"] == "13.0.0"
    assert gpu.attributes[PCI_BUS_ID] == "0000:10:00.0"
    assert {name: str(amount) for name, amount in gpu.capacity.items()} == {"memory": "40Gi"}


def test_a_gpu_that_shares_memory_with_the_host_has_no_capacity(make_gpus):
    (gpu,) = make_gpus("GB10", dynamic_mig=True).driver.devices.values()
    assert gpu.capacity == {}
    assert not gpu.consumes


def test_a_dynamic_mig_device(make_gpus):
    devices = make_gpus(fake_gpu("A100-40GB", mig=True), dynamic_mig=True).driver.devices
    assert len(devices) == 25  # before Hopper there is no whole GPU while MIG is on
    device = devices["gpu-0-mig-2g10gb-14-2"]
    assert set(device.attributes) == {"type", "parentUUID", "profile", *COMMON}
    assert device.attributes["profile"] == "2g.10gb"
    assert set(device.capacity) == ENGINES
    assert {name: str(amount) for name, amount in device.consumes[0].counters.items()} == {
        "multiprocessors": "28",
        "copy-engines": "2",
        "decoders": "1",
        "encoders": "0",
        "jpeg-engines": "0",
        "ofa-engines": "0",
        "memory": "9856Mi",
        "memory-slice-2": "1",
        "memory-slice-3": "1",
    }


def test_from_hopper_on_the_whole_gpu_and_its_mig_devices_are_published(make_gpus):
    harness = make_gpus("H100-80GB", dynamic_mig=True)
    assert len(harness.driver.devices) == 26
    (pool,) = harness.driver.discover()
    (counters,) = pool.counter_sets
    assert counters.name == "gpu-0-counter-set"
    assert harness.driver.devices["gpu-0"].consumes[0].counters == counters.counters


@pytest.mark.parametrize(("on", "nodes"), [(False, [0, 1]), (True, [[0, 1], [1, 0]])])
def test_numa_nodes_are_lists_if_the_operator_says_so(tmp_path, on, nodes):
    """Two NUMA nodes in each socket: a GPU on node 1 matches what is on node 0 as well."""
    machine = regular_machine(sockets=2, numa_nodes=2, cores=4)
    node = GpuNode(tmp_path, [fake_gpu("H100-80GB", 0), fake_gpu("L4", 1)], machine=machine)
    settings = GpuSettings(list_attributes=on, dynamic_mig=True, passthrough=True)
    (pool,) = GpuDriver(settings, nvml=lambda _root: node.nvml()).dra_discover(Node("n", tmp_path))
    attributes = {device.name: device.attributes for device in pool.devices}
    assert [attributes[name][NUMA_NODE] for name in ("gpu-0", "gpu-1")] == nodes
    assert [attributes[name][NUMA_NODE] for name in ("gpu-vfio-0", "gpu-vfio-1")] == nodes
    assert attributes["gpu-0-mig-7g80gb-0-0"][NUMA_NODE] == nodes[0]
    assert attributes["gpu-0"][PCIE_ROOT] == "pci0000:0f"


def test_with_dynamic_mig_a_gpu_has_the_capacities_of_its_largest_parts(make_gpus):
    """As the existing driver publishes it; the memory is that of 7g, not all of it."""
    devices = make_gpus("A100-40GB", "L4", dynamic_mig=True).driver.devices
    assert {name: str(amount) for name, amount in devices["gpu-0"].capacity.items()} == {
        "multiprocessors": "98",
        "copyEngines": "7",
        "decoders": "5",
        "encoders": "0",
        "jpegEngines": "1",
        "ofaEngines": "1",
        "memory": "40192Mi",
    }
    assert set(devices["gpu-1"].capacity) == {"memory"}


def test_a_vgpu_guest_has_its_memory_alone(make_gpus):
    guest = replace(fake_gpu("H100-80GB"), virtualization=VirtualizationMode.VGPU)
    assert set(make_gpus(guest, dynamic_mig=True).driver.devices["gpu-0"].capacity) == {"memory"}


def test_a_gpu_with_mig_on_and_no_mig_device_is_not_published(make_gpus):
    assert make_gpus(fake_gpu("A100-40GB", mig=True), "L4").driver.devices.keys() == {"gpu-1"}


def test_a_gpu_with_mig_on_and_no_mig_device_is_logged(make_gpus, caplog):
    harness = make_gpus(fake_gpu("A100-40GB", mig=True), "L4")
    harness.driver.discover()
    assert (
        f"GPU {harness.memory.gpus[0].uuid} has MIG on and no MIG device, so nothing of it is published" in caplog.text
    )
    assert harness.memory.gpus[1].uuid not in caplog.text


@pytest.mark.parametrize(
    ("model", "profile", "starts"),
    [
        ("H100-80GB", "1g.10gb", [6, 4, 5, 0, 1, 2, 3]),
        ("H100-80GB", "1g.20gb", [6, 4, 0, 2]),
        ("H100-80GB", "2g.20gb", [4, 0, 2]),
        ("H100-80GB", "3g.40gb", [4, 0]),
        ("RTX-PRO-6000", "1g.24gb", [0, 3, 6, 9]),
    ],
)
def test_placements_that_leave_the_most_room_come_first(make_gpus, model, profile, starts):
    """As NVIDIA's driver chooses: of A100's 1g the first is GPU instance 13, which starts at slice 6."""
    devices = make_gpus(model, dynamic_mig=True).driver.devices.items()
    names = [name for name, device in devices if device.attributes.get("profile") == profile]
    assert [int(name.rpartition("-")[2]) for name in names] == starts


def test_a_vgpu_guest_has_no_dynamic_mig(make_gpus):
    guest = replace(fake_gpu("H100-80GB"), virtualization=VirtualizationMode.VGPU)
    assert list(make_gpus(guest, dynamic_mig=True).driver.devices) == ["gpu-0"]


def test_a_vfio_device(make_gpus):
    device = make_gpus("A100-40GB", passthrough=True).driver.devices["gpu-vfio-0"]
    assert device.attributes["type"] == "vfio"
    assert (device.attributes["vendorID"], device.attributes["deviceID"]) == ("0x10de", "0x20b0")
    assert device.attributes["iommuFDEnabled"] is True
    assert device.attributes["uuid"] == str(uuid.uuid5(uuid.NAMESPACE_DNS, "0000:10:00.0"))
    assert device.capacity["addressableMemory"] == 128 << 30  # the next power of two after 64 GiB and 32 MiB


def test_vfio_devices_are_never_shared(make_gpus):
    devices = make_gpus("L4", passthrough=True, sharing="4").driver.devices
    assert devices["gpu-0"].allow_multiple_allocations
    assert not devices["gpu-vfio-0"].allow_multiple_allocations


@pytest.mark.parametrize(("sharing", "claims"), [("disabled", 1), ("memory", 1), ("unlimited", 5), ("3", 3)])
def test_how_many_claims_share_a_gpu_by_default(make_gpus, sharing, claims):
    harness = make_gpus("L4", sharing=sharing)
    for _ in range(claims):
        harness.driver.prepare(claim("gpu"))
    if sharing != "unlimited":
        with pytest.raises(NotAllocatedError):
            harness.driver.allocate(claim("gpu"))


def create_mig(harness, profile_id, start, size):
    """Create a MIG device, as an operator does."""
    with harness.memory_open() as nvml:
        instance = nvml.device_by_index(0).create_gpu_instance(profile_id, Placement(start, size))
        kind = harness.memory.state(harness.memory.gpus[0].uuid).instances[instance.info().id].profiles[-1]
        instance.create_compute_instance(kind.id)


@pytest.mark.parametrize(("sharing", "claims"), [("memory", 2), ("unlimited", 5), ("3", 3)])
@pytest.mark.parametrize("dynamic", [True, False])
def test_claims_share_a_mig_device(make_gpus, sharing, claims, dynamic):
    """Without a policy for each capacity the first claim would take all 132 multiprocessors."""
    harness = make_gpus(fake_gpu("H100-80GB", mig=not dynamic), sharing=sharing, dynamic_mig=dynamic)
    if not dynamic:
        create_mig(harness, 0, 0, 8)
    whole = {"device_class": "mig.nvidia.com", "where": 'device.attributes["gpu.nvidia.com"].profile == "7g.80gb"'}
    asked = request("mig", **whole, capacity={"memory": "30Gi"} if sharing == "memory" else {})
    prepared = [harness.driver.prepare(claim(asked)) for _ in range(claims)]
    assert {name for claimed in prepared for name in claimed.names} == {"gpu-0-mig-7g80gb-0-0"}
    if sharing != "unlimited":
        with pytest.raises(NotAllocatedError):
            harness.driver.allocate(claim(asked))
    for claimed in prepared:
        harness.driver.unprepare(claimed)
    assert len(harness.memory.state(harness.memory.gpus[0].uuid).instances) == int(not dynamic)


def test_claims_share_memory(make_gpus):
    harness = make_gpus("L4", sharing="memory")
    for _ in range(2):
        harness.driver.prepare(claim(request("gpu", capacity={"memory": "10Gi"})))
    with pytest.raises(NotAllocatedError):
        harness.driver.allocate(claim(request("gpu", capacity={"memory": "10Gi"})))


def test_lists_select_gpus(make_gpus):
    harness = make_gpus("A100-40GB", "L4", "L4", passthrough=True, allow=["*L4*"], hide=["2"])
    assert harness.driver.devices.keys() == {"gpu-1", "gpu-vfio-1"}


def test_a_lost_gpu_is_left_out(make_gpus):
    harness = make_gpus("L4", "L4")
    harness.memory.lose(harness.memory.gpus[0].uuid)
    with collecting_omissions() as omissions:
        assert harness.driver.devices.keys() == {"gpu-1"}
    assert [(omission.subject, omission.is_device) for omission in omissions] == [("GPU with index 0", True)]


def test_each_of_several_compute_instances_is_a_device(tmp_path):
    instances = "[{profile: 3g.20gb, start: 4, compute: [2, 1]}]"
    (tmp_path / "nvml.yaml").write_text(f"gpus: [{{model: A100-40GB, mig: true, instances: {instances}}}]")
    nvml = read_fixture(tmp_path / "nvml.yaml")
    nvml.init()
    pool = make_pool("n", read_inventory(nvml, Host(tmp_path)).gpus, (), PublishOptions())
    nvml.shutdown()
    large, small = pool.devices
    assert [large.name, small.name] == ["gpu-0-mig-2c3g20gb-ci0-9-4", "gpu-0-mig-1c3g20gb-ci1-9-4"]
    assert (large.capacity["multiprocessors"], small.capacity["multiprocessors"]) == (28, 14)
    assert large.capacity["memory"] == small.capacity["memory"]
    assert large.attributes["gpuInstance"] == small.attributes["gpuInstance"]
    assert small.attributes["profile"] == "1c.3g.20gb"


def test_each_device_knows_its_gpu_and_its_part_of_it(make_gpus):
    """Preparation and health need no names."""
    harness = make_gpus("H100-80GB", dynamic_mig=True, passthrough=True, sharing="4", list_attributes=True)
    devices = {name: device.hardware for name, device in harness.driver.devices.items()}
    [gpu] = harness.memory.gpus
    assert {(device.uuid, device.pci_address) for device in devices.values()} == {(gpu.uuid, gpu.pci_address)}
    assert {name: device.kind for name, device in devices.items() if "-mig-" not in name} == {
        "gpu-0": GpuKind.GPU,
        "gpu-vfio-0": GpuKind.VFIO,
    }
    right = devices["gpu-0-mig-3g40gb-9-4"]
    assert (right.kind, right.mig.profile.id, right.mig.placement, right.mig.compute) == (
        GpuKind.MIG,
        9,
        Placement(4, 4),
        None,
    )
    assert right.units.touches(devices["gpu-0"].units)
    assert not right.units.touches(devices["gpu-0-mig-3g40gb-9-0"].units)
