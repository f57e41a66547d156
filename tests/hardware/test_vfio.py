"""Functions for virtual machines: their VFIO driver, which is a variant or `vfio-pci`, and the way there and back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import Field

from dra_sdk import DeviceNode, HardwareError, OpaqueConfig, PermanentError, RetriableError
from dra_sdk.hardware import read_pci_device
from dra_sdk.hardware.pci_driver import PciBinding, read_binding
from dra_sdk.hardware.vfio import (
    Iommu,
    IommuField,
    Passthrough,
    device_nodes,
    is_vfio_driver,
    slot,
    vfio_device,
    vfio_driver,
)
from tests.hardware.conftest import CARD as CARD_FUNCTION

CARD = CARD_FUNCTION.address
AUDIO = replace(CARD_FUNCTION, address="0000:10:00.1", class_code=0x040300, driver="snd")
NIC = replace(CARD_FUNCTION, address="0000:12:00.0", class_code=0x020000, driver="nic")
ALIASES = """# Aliases extracted from modules themselves.
alias pci:v000010DEd*sv*sd*bc03sc02i00* card
alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci
alias vfio_pci:v000010DEd*sv*sd*bc*sc*i* any_vfio_pci
alias vfio_pci:v000010DEd00002342sv*sd*bc*sc*i* nvgrace-gpu-vfio-pci
alias vfio_pci:v000010DEd000027B8sv*sd*bc03sc02i* l4_vfio_pci
alias vfio_pci:v000015B3d0000101Esv*sd*bc*sc*i* mlx5_vfio_pci
"""
ALIASES_FILE = "/usr/lib/modules/6.12.0-test/modules.alias"


@pytest.fixture
def make_variants(make_node):
    """Makes a node whose kernel has variants of `vfio-pci`."""

    def make(*functions):
        node = make_node(*functions)
        node.file("/proc/sys/kernel/osrelease", "6.12.0-test\n")
        node.file(ALIASES_FILE, ALIASES)
        node.link("/lib", "/usr/lib")  # absolute, as seen from the node
        node.effects.modules["l4_vfio_pci"] = "l4-vfio-pci"
        return node

    return make


def driver(node, address=CARD):
    return read_binding(node.access, address).driver


def plan(node, address=CARD, together=()):
    return Passthrough.plan(node.access, read_pci_device(node.access.host, address), together=together)


# -- the driver


@pytest.mark.parametrize(
    ("product", "module"),
    [(0x27B8, "l4_vfio_pci"), (0x2342, "nvgrace_gpu_vfio_pci"), (0x9999, "any_vfio_pci")],
)
def test_the_alias_with_the_fewest_wildcards_is_used(make_variants, product, module):
    node = make_variants(replace(CARD_FUNCTION, device=product))
    node.effects.modules = {module: f"driver-of-{module}"}
    for _ in range(2):
        assert vfio_driver(node.access, CARD) == f"driver-of-{module}"
    assert node.effects.calls == [f"run chroot {node.root} modprobe {module}"]  # a loaded module is not loaded again


@pytest.mark.parametrize("aliases", ["", "alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci\n", None])
def test_without_a_variant_it_is_vfio_pci(make_variants, aliases):
    node = make_variants()
    node.remove(ALIASES_FILE) if aliases is None else node.file(ALIASES_FILE, aliases)
    assert vfio_driver(node.access, CARD) == "vfio-pci"
    assert node.effects.calls == []


def test_without_the_release_of_the_kernel_it_is_vfio_pci(make_variants):
    node = make_variants()
    node.remove("/proc/sys/kernel/osrelease")
    assert vfio_driver(node.access, CARD) == "vfio-pci"


def test_a_variant_without_driver_is_an_error_and_changes_nothing(make_variants):
    node = make_variants()
    node.effects.modules.clear()
    with pytest.raises(
        HardwareError, match=f"kernel module l4_vfio_pci has no PCI driver, but is the VFIO variant for {CARD}"
    ):
        plan(node).bind(node.access)
    assert driver(node) == "card"


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("vfio-pci", True),
        ("nvgrace_gpu_vfio_pci", True),
        ("mlx5_vfio_pci", True),
        ("nvidia", False),
        ("pci-stub", False),
        ("nvidia-vgpu-vfio", False),
        (None, False),
    ],
)
def test_vfio_drivers_are_known_by_their_names(name, wanted):
    assert is_vfio_driver(name) is wanted


# -- the way there and back


def test_from_its_driver_to_the_variant_and_back(make_variants):
    node = make_variants()
    step = plan(node)
    step.bind(node.access)
    assert driver(node) == "l4-vfio-pci"
    assert f"run chroot {node.root} modprobe l4_vfio_pci" in node.effects.calls
    assert node.host_device("/dev/vfio/20").minor == 20
    kept = Passthrough.from_entry(step.entry)
    assert kept.changed(node.access)
    kept.wait_until_free(node.access, "the card", 1)
    kept.restore(node.access)
    assert driver(node) == "card"
    assert not kept.changed(node.access)
    assert not node.path("/dev/vfio/20").exists()


def test_the_functions_of_its_slot_go_with_it_and_it_is_the_first(make_node):
    node = make_node(AUDIO, CARD_FUNCTION)
    step = plan(node)
    assert step.functions == [PciBinding(CARD, "card", ""), PciBinding(AUDIO.address, "snd", "")]
    step.bind(node.access)
    assert {driver(node), driver(node, AUDIO.address)} == {"vfio-pci"}
    step.restore(node.access)
    assert (driver(node), driver(node, AUDIO.address)) == ("card", "snd")


def test_every_failure_on_the_way_can_be_undone(make_node):
    """The load of the module, three writes for each of two functions, before and after their effects."""
    node = make_node(CARD_FUNCTION, AUDIO)
    step = plan(node)
    step.bind(node.access)
    calls = len(node.effects.calls)
    step.restore(node.access)
    for nth in range(1, calls):  # the module stays loaded
        for after in (False, True):
            node.effects.fail_call(nth, after=after)
            with pytest.raises(RetriableError, match="injected"):
                step.bind(node.access)
            node.effects.clear()
            step.restore(node.access)
            assert not step.changed(node.access)


def test_a_function_that_cannot_be_bound_back_keeps_no_other_from_it(make_node):
    node = make_node(CARD_FUNCTION, AUDIO)
    step = plan(node)
    step.bind(node.access)
    node.effects.fail_call(1)  # the unbinding of the card
    with pytest.raises(RetriableError, match=f"{CARD}' to .*/unbind: injected$"):
        step.restore(node.access)
    assert (driver(node), driver(node, AUDIO.address)) == ("vfio-pci", "snd")
    node.effects.clear()
    step.restore(node.access)
    assert not step.changed(node.access)


@pytest.mark.parametrize("known", [True, False], ids=["", "by an entry of a release that did not note it"])
def test_another_card_at_its_address_is_left_alone(make_node, known):
    node = make_node()
    step = plan(node)
    step.bind(node.access)
    entry = step.entry if known else {"functions": step.entry["functions"]}
    kept = Passthrough.from_entry(entry)
    assert kept.is_there(node.access)
    node.path(f"/sys/bus/pci/devices/{CARD}/device").write_text("0x4711\n")
    assert (kept.is_there(node.access), kept.changed(node.access)) == (not known, not known)
    kept.restore(node.access)
    assert driver(node) == ("vfio-pci" if known else "card")


def test_a_function_whose_change_hangs_is_left_until_the_kernel_returns(make_node):
    node = make_node()
    step = plan(node)
    node.effects.hang_write("vfio-pci/bind", CARD)
    with pytest.raises(RetriableError, match="the kernel did not return within 20 s"):
        step.bind(node.access)
    for action in (step.bind, step.restore, step.changed):
        with pytest.raises(RetriableError, match=f"the kernel does not return from changing PCI function {CARD}: "):
            action(node.access)
    node.effects.release()
    step.restore(node.access)
    assert driver(node) == "card"


@pytest.mark.parametrize("node_of_user", ["/dev/vfio/20", "/dev/vfio/devices/vfio3"])
def test_a_virtual_machine_that_uses_it_is_waited_for_and_named(make_node, node_of_user):
    node = make_node()
    step = plan(node)
    step.bind(node.access)
    node.file(f"/sys/bus/pci/devices/{CARD}/vfio-dev/vfio3/uevent")
    node.link("/proc/4242/fd/3", node_of_user)
    with pytest.raises(RetriableError, match="the card was still in use after 0 s, by processes 4242"):
        step.wait_until_free(node.access, "the card", 0.1)


def test_a_function_without_iommu_group_is_an_error(make_node):
    node = make_node(replace(CARD_FUNCTION, iommu_group=None))
    with pytest.raises(PermanentError, match=f"PCI function {CARD} is in no IOMMU group"):
        plan(node)


def test_another_function_in_its_iommu_group_must_go_with_it(make_node):
    node = make_node(CARD_FUNCTION, NIC)
    with pytest.raises(PermanentError, match=r"0000:12:00.0 with driver nic is in the same IOMMU group 20"):
        plan(node)
    assert [binding.address for binding in plan(node, together=[CARD, NIC.address]).functions] == [CARD]


@pytest.mark.parametrize("name", ["pcieport", "pci-stub", "vfio-pci", None])
def test_a_function_that_no_driver_uses_may_be_in_its_iommu_group(make_node, name):
    node = make_node(CARD_FUNCTION, replace(NIC, driver=name))
    assert len(plan(node).functions) == 1


def test_a_function_with_virtual_functions_is_an_error(make_node):
    virtual = replace(CARD_FUNCTION, address="0000:10:00.4", iommu_group=21, physical_function=CARD, driver=None)
    node = make_node(replace(CARD_FUNCTION, total_vfs=4), virtual)
    with pytest.raises(PermanentError, match="has 1 virtual functions"):
        plan(node)


VIRTUAL = replace(CARD_FUNCTION, address="0000:10:00.4", driver=None, physical_function=CARD)
SIBLING = replace(VIRTUAL, address="0000:10:00.5", driver="card-vf")


def test_a_virtual_function_is_passed_through_alone(make_node):
    other_group = replace(CARD_FUNCTION, total_vfs=4, iommu_group=19)
    node = make_node(other_group, VIRTUAL, replace(SIBLING, iommu_group=21))
    assert [binding.address for binding in plan(node, VIRTUAL.address).functions] == [VIRTUAL.address]


def test_another_virtual_function_in_its_iommu_group_must_be_claimed_too(make_node):
    node = make_node(replace(CARD_FUNCTION, total_vfs=4, iommu_group=19), VIRTUAL, SIBLING)
    message = "function 0000:10:00.5 with driver card-vf is in the same IOMMU group 20"
    with pytest.raises(PermanentError, match=message):
        plan(node, VIRTUAL.address)
    together = [VIRTUAL.address, SIBLING.address]
    assert [binding.address for binding in plan(node, VIRTUAL.address, together).functions] == [VIRTUAL.address]


def test_a_physical_function_does_not_take_a_virtual_one_of_its_slot_along(make_node):
    virtual = replace(SIBLING, physical_function=AUDIO.address)
    node = make_node(CARD_FUNCTION, replace(AUDIO, total_vfs=4), virtual)
    with pytest.raises(PermanentError, match=r"function 0000:10:00\.5 with driver card-vf"):
        plan(node)


def test_the_slot_of_a_function():
    assert slot("0000:10:00.1") == "0000:10:00"


# -- device nodes


@pytest.mark.parametrize(
    ("iommufd", "api", "with_device", "nodes"),
    [
        (False, False, True, ["/dev/vfio/20"]),
        (False, True, True, ["/dev/vfio/20", "/dev/vfio/vfio"]),
        (True, False, True, ["/dev/vfio/devices/vfio3"]),
        (True, True, True, ["/dev/vfio/devices/vfio3", "/dev/iommu"]),
        (True, True, False, ["/dev/vfio/20", "/dev/vfio/vfio"]),
    ],
)
def test_the_device_nodes_of_a_machine(make_node, iommufd, api, with_device, nodes):
    node = make_node()
    plan(node).bind(node.access)
    for path in ("/dev/vfio/vfio", "/dev/iommu", "/dev/vfio/devices/vfio3"):
        node.file(path)
    if with_device:
        node.file(f"/sys/bus/pci/devices/{CARD}/vfio-dev/vfio3/uevent")
    device = vfio_device(read_pci_device(node.access.host, CARD))
    assert device_nodes(node.access, device, iommufd=iommufd, api=api) == [DeviceNode(place) for place in nodes]


class MachineConfig(OpaqueConfig, api_version="lights.example.com/v1"):
    """A driver's configuration of devices for virtual machines."""

    iommu: IommuField = Field(default_factory=Iommu)


@pytest.mark.parametrize(
    ("written", "nodes"),
    [
        ({}, ["/dev/vfio/20"]),
        ({"iommu": None}, ["/dev/vfio/20"]),
        ({"iommu": {"backendPolicy": None, "enableAPIDevice": True}}, ["/dev/vfio/20", "/dev/vfio/vfio"]),
        ({"iommu": {"backendPolicy": "PreferIommuFD"}}, ["/dev/vfio/devices/vfio3"]),
        (
            {"iommu": {"backendPolicy": "PreferIommuFD", "enableAPIDevice": True}},
            ["/dev/vfio/devices/vfio3", "/dev/iommu"],
        ),
    ],
)
def test_users_configure_the_interface_of_a_machine(make_node, written, nodes):
    node = make_node()
    plan(node).bind(node.access)
    for path in ("/dev/vfio/vfio", "/dev/iommu", "/dev/vfio/devices/vfio3"):
        node.file(path)
    node.file(f"/sys/bus/pci/devices/{CARD}/vfio-dev/vfio3/uevent")
    device = vfio_device(read_pci_device(node.access.host, CARD))
    iommu = MachineConfig.decode(written).iommu
    assert iommu.device_nodes(node.access, device) == [DeviceNode(place) for place in nodes]
    assert iommu.device_nodes(node.access, None) == []


def test_a_device_node_that_is_missing_is_an_error(make_node):
    node = make_node()
    device = vfio_device(read_pci_device(node.access.host, CARD))
    with pytest.raises(RetriableError, match="device node /dev/vfio/20 is missing on the node"):
        device_nodes(node.access, device, iommufd=False, api=False)
