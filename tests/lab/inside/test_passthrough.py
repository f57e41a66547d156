"""A GPU goes to VFIO for a claim and comes back, on the real kernel."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from subprocess import run

import pytest
from dra_driver_gpu.config import API_VERSION

from dra_sdk import PermanentError
from dra_sdk.testing import claim, request
from tests.lab.inside.functions import BUS, functions_of
from tests.lab.inside.rig import CLASS
from tests.lab.inside.vfio_user import VfioUser, group_is_viable

IOMMUFD = Path("/dev/iommu")
INTEL = 0x8086


def vm(**more):
    return request("vm", device_class=CLASS, **more)


def config(policy, *, api):
    interface = {"backendPolicy": policy, "enableAPIDevice": api}
    return {"apiVersion": API_VERSION, "kind": "VfioDeviceConfig", "iommu": interface}


def number(path):
    """Returns major and minor number of a device node, as sysfs has them."""
    return tuple(map(int, Path(path).read_text().split(":")))


def test_discovered_attributes_are_those_of_sysfs(make_rig, nics):
    functions = nics["igb"]
    rig = make_rig(*functions)
    for index, function in enumerate(functions):
        found = rig.devices[f"gpu-vfio-{index}"].attributes
        assert found["resource.kubernetes.io/pciBusID"] == function.address
        assert found["resource.kubernetes.io/pcieRoot"] == function.root
        assert found["resource.kubernetes.io/numaNode"] == int(function.text("numa_node"))
        assert found["deviceID"] == function.text("device")
        assert found["iommuFDEnabled"] is IOMMUFD.exists()
        card = rig.devices[f"gpu-{index}"].attributes
        assert card["resource.kubernetes.io/pcieRoot"] == function.root
    assert {function.root for function in functions} == {"pci0000:40", "pci0000:80"}
    assert [function.text("numa_node") for function in functions] == ["0", "1"]


def test_every_release_accepts_the_published_devices(make_rig, nics):
    make_rig(*nics["igb"]).assert_publishable()


@pytest.mark.parametrize("api", [False, True])
@pytest.mark.parametrize("policy", ["LegacyOnly", "PreferIommuFD"])
def test_the_nodes_of_the_container_are_those_of_the_function(rig, gpu, policy, api):
    prepared = rig.prepare(claim(vm(), config=config(policy, api=api)))
    assert gpu.state() == ("vfio-pci", "vfio-pci", False)
    if policy == "PreferIommuFD" and IOMMUFD.exists():
        (device,) = os.listdir(gpu.path / "vfio-dev")
        wanted = {f"/dev/vfio/devices/{device}": number(f"/sys/class/vfio-dev/{device}/dev")}
        wanted |= {"/dev/iommu": number("/sys/class/misc/iommu/dev")} if api else {}
    else:
        wanted = {f"/dev/vfio/{gpu.group}": number(f"/sys/class/vfio/{gpu.group}/dev")}
        wanted |= {"/dev/vfio/vfio": number("/sys/class/misc/vfio/dev")} if api else {}
    nodes = prepared.container().devices
    assert {path: (node["major"], node["minor"]) for path, node in nodes.items()} == wanted
    assert all(stat.S_ISCHR(os.stat(path).st_mode) for path in nodes)
    edits = [each["containerEdits"] for each in prepared.cdi["devices"]]
    assert {node["path"] for each in edits for node in each.get("deviceNodes", ())} == set(wanted)
    rig.restart()
    rig.unprepare(prepared)
    assert gpu.state() == ("igb", "", True)
    assert not Path(f"/dev/vfio/{gpu.group}").exists()
    rig.assert_clean()


def test_a_program_can_use_the_function_through_these_nodes(rig, gpu):
    prepared = rig.prepare(claim(vm(), config=config("LegacyOnly", api=True)))
    nodes = prepared.container().devices
    (group,) = nodes.keys() - {"/dev/vfio/vfio"}
    with VfioUser(gpu.address, group) as user:
        assert user.ids() == (INTEL, int(gpu.text("device"), 16))
    rig.unprepare(prepared)


def test_the_module_is_loaded_if_it_is_missing(rig, gpu):
    run(["modprobe", "vfio-pci"], check=True)
    run(["modprobe", "--remove", "vfio-pci"], check=True)
    assert not Path("/sys/bus/pci/drivers/vfio-pci").exists()
    prepared = rig.prepare(claim(vm()))
    assert gpu.driver == "vfio-pci"
    rig.unprepare(prepared)


@pytest.mark.parametrize("override", ["vfio-pci", ""])
def test_a_function_that_an_operator_bound_to_vfio_stays_there(rig, gpu, override):
    run(["modprobe", "vfio-pci"], check=True)
    gpu.give("vfio-pci", override)
    prepared = rig.prepare(claim(vm()))
    assert set(prepared.container().devices) == {f"/dev/vfio/{gpu.group}"}
    rig.unprepare(prepared)
    assert gpu.state() == ("vfio-pci", override, False)
    assert rig.kernel.writes == 0
    gpu.give("igb")


def test_a_function_without_driver_has_none_again(rig, gpu):
    gpu.give(None, "nobody")
    prepared = rig.prepare(claim(vm()))
    assert gpu.driver == "vfio-pci"
    rig.unprepare(prepared)
    assert gpu.state() == (None, "nobody", False)
    gpu.give("igb")


def test_two_gpus_of_one_claim(make_rig, nics):
    functions = nics["igb"]
    rig = make_rig(*functions)
    prepared = rig.prepare(claim(vm(count=2)))
    assert [each.driver for each in functions] == ["vfio-pci"] * 2
    assert set(prepared.container().devices) == {f"/dev/vfio/{each.group}" for each in functions}
    rig.unprepare(prepared)


def test_the_other_functions_of_its_slot_are_bound_as_well(make_rig, nics):
    first, second = nics["e1000e"]
    assert first.group == second.group
    rig = make_rig(first)
    prepared = rig.prepare(claim(vm()))
    assert [first.driver, second.driver] == ["vfio-pci"] * 2
    with VfioUser(second.address, f"/dev/vfio/{first.group}") as user:
        assert user.ids() == (INTEL, int(second.text("device"), 16))
    rig.unprepare(prepared)


@pytest.fixture
def bridge(nics):
    """The bridge to conventional PCI, in one group with the functions behind it. It gets its driver back afterwards."""
    (found,) = functions_of("shpchp")
    assert found.group == nics["e1000"][0].group
    yield found
    if found.driver is None:
        (BUS / "drivers/shpchp/bind").write_text(found.address)


def test_the_kernel_allows_no_use_of_a_group_with_such_a_bridge(nics, bridge):
    """The driver relies on this. The test does not use the driver."""
    run(["modprobe", "vfio-pci"], check=True)
    functions = nics["e1000"]
    for each in functions:
        each.give("vfio-pci")
    assert not group_is_viable(functions[0].group)
    (bridge.path / "driver/unbind").write_text(bridge.address)
    assert group_is_viable(functions[0].group)
    for each in functions:
        each.give("e1000")


def test_a_bridge_whose_driver_may_do_dma_is_refused(make_rig, nics, bridge):
    """The kernel calls such a group not viable: its container could use nothing of it."""
    first, second = nics["e1000"]
    rig = make_rig(first, second)
    with pytest.raises(PermanentError, match=f"{bridge.address} with driver shpchp is in the same IOMMU group"):
        rig.prepare(claim(vm(count=2)))
    assert rig.kernel.writes == 0


def test_another_function_in_its_iommu_group_is_refused(make_rig, nics, bridge):
    first, second = nics["e1000"]
    assert first.group == second.group
    (bridge.path / "driver/unbind").write_text(bridge.address)
    rig = make_rig(first)
    wanted = rf"{second.address} with driver e1000 is in the same IOMMU group {first.group}"
    with pytest.raises(PermanentError, match=wanted):
        rig.prepare(claim(vm()))
    assert rig.kernel.writes == 0


@pytest.mark.parametrize("with_stub", [False, True])
def test_an_iommu_group_behind_a_bridge_can_be_used(make_rig, nics, bridge, with_stub):
    """The whole group for one claim, or one function if `pci-stub` has the other."""
    first, second = nics["e1000"]
    (bridge.path / "driver/unbind").write_text(bridge.address)
    run(["modprobe", "pci-stub"], check=True)
    if with_stub:
        second.give("pci-stub")
    rig = make_rig(*([first] if with_stub else [first, second]))
    prepared = rig.prepare(claim(vm(count=1 if with_stub else 2)))
    assert set(prepared.container().devices) == {f"/dev/vfio/{first.group}"}
    with VfioUser(first.address, f"/dev/vfio/{first.group}") as user:
        assert user.ids() == (INTEL, int(first.text("device"), 16))
    rig.unprepare(prepared)
    if with_stub:
        second.give("e1000")


def test_a_gpu_with_virtual_functions_is_refused(rig, gpu):
    asked = rig.allocate(claim(vm()))
    virtual = gpu.path / "sriov_numvfs"
    virtual.write_text("2")
    try:
        with pytest.raises(PermanentError, match=f"{gpu.address} has 2 virtual functions; it cannot be passed through"):
            rig.prepare(asked)
        assert gpu.state() == ("igb", "", True)
        assert rig.kernel.writes == 0
    finally:
        virtual.write_text("0")
    rig.unprepare(rig.prepare(asked))
