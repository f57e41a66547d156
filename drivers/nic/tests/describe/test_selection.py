"""Which devices claims may have: what stays with the node, what is shared, and physical functions with virtual ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from dra_driver_nic import NicSettings
from dra_driver_nic.describe.nics import Nic, PhysicalFunction, read_nics
from dra_driver_nic.describe.selection import kept, shared
from dra_driver_nic.network.links import INFINIBAND, Link, NetworkSnapshot

from dra_sdk.hardware import Host, read_pci_device
from dra_sdk.testing import FakeNode
from dra_sdk.testing.sysfs import FakePci, regular_machine

pytest_plugins = ["dra_sdk.testing.plugin"]


def link(index: int, name: str, kind: str = "dummy", *, master: int = 0, parent: int = 0) -> Link:
    return Link(index=index, name=name, kind=kind, master=master, parent=parent)


@pytest.mark.parametrize(
    ("links", "uplinks", "reasons"),
    [
        ([link(2, "a"), link(3, "b")], {2}, {2: "is an uplink"}),
        ([link(2, "a"), link(3, "b")], {2, 3}, {2: "is an uplink", 3: "is an uplink"}),
        ([link(2, "bond0", "bond"), link(3, "a", master=2)], {2}, {2: "is an uplink", 3: "is an uplink"}),
        ([link(2, "a"), link(3, "a.7", "vlan", parent=2)], {3}, {2: "is an uplink", 3: "is an uplink"}),
        (
            [link(2, "br0", "bridge"), link(3, "bond0", "bond", master=2), link(4, "a", master=3)],
            {2},
            {2: "is an uplink", 3: "is an uplink", 4: "is an uplink"},
        ),
        ([link(2, "a"), link(3, "m0", "macvlan", parent=2)], {2}, {2: "is an uplink"}),
        ([link(2, "a"), link(3, "m0", "macvlan", parent=2)], set(), {2: "carries interface m0"}),
        (
            [link(2, "br0", "bridge"), link(3, "a", master=2)],
            set(),
            {2: "is of kind", 3: "belongs to interface br0"},
        ),
        (
            [link(2, "veth0", "veth", parent=3), link(3, "veth1", "veth", parent=2)],
            set(),
            {2: "is of", 3: "is of"},
        ),
        ([link(2, "mgmt0")], set(), {2: "is protected by the setting protect: mgmt*"}),
    ],
)
def test_what_the_node_needs_stays_with_it(
    dra_node: FakeNode, links: Sequence[Link], uplinks: set[int], reasons: dict[int, str]
) -> None:
    snapshot = NetworkSnapshot(links, {}, uplinks)
    settings = NicSettings(protect=("mgmt*",), software=("dummy", "macvlan", "vlan"))
    kept_by_index = kept(read_nics(Host(dra_node.root), snapshot), snapshot, settings)
    assert kept_by_index.keys() == reasons.keys()
    for index, reason in reasons.items():
        assert reason in kept_by_index[index]


# -- shared parents


def devices(*links: Link) -> tuple[Nic, ...]:
    return tuple(Nic(link=link) for link in links)


def names(nics: Sequence[Nic]) -> set[str]:
    return {str(nic).removeprefix("interface ") for nic in nics if nic.shared}


def test_an_uplink_is_shared_only_by_its_full_name() -> None:
    links = (link(2, "eth0", ""), link(3, "eth1", ""))
    snapshot = NetworkSnapshot(links, {}, {2})
    assert names(shared(devices(*links), snapshot, NicSettings(shared=("eth*",)))) == {"eth1"}
    assert names(shared(devices(*links), snapshot, NicSettings(shared=("eth0",)))) == {"eth0"}


@pytest.mark.parametrize(
    ("parent", "settings", "reason"),
    [
        (link(2, "eth0"), NicSettings(shared=("eth0",)), ""),
        (link(2, "eth0", "bond"), NicSettings(shared=("eth0",)), ""),
        (link(2, "eth0"), NicSettings(shared=("eth0",), protect=("eth*",)), "is protected by the setting protect"),
        (link(2, "eth0", master=3), NicSettings(shared=("eth0",)), "belongs to interface 3"),
        (Link(index=2, name="eth0", arp_type=INFINIBAND), NicSettings(shared=("eth0",)), "is InfiniBand, on which no"),
    ],
)
def test_what_may_be_shared(parent: Link, settings: NicSettings, reason: str) -> None:
    snapshot = NetworkSnapshot([parent, link(9, "m0", "macvlan", parent=2)], {}, {2})
    (nic,) = shared(devices(parent), snapshot, settings)
    reasons = kept([nic], snapshot, settings)
    assert reasons.get(2, "").startswith(reason)
    assert bool(reasons) == bool(reason)


# -- physical functions


PARTITIONABLE = NicSettings(device_mode="partitionable", protect=("mgmt*",))


def pf_and_vf(node: FakeNode, vf: str, mode: str = "legacy") -> tuple[Nic, Nic]:
    pf = FakePci(address="0000:3b:00.0", total_vfs=8)
    virtual = FakePci(address="0000:3b:02.0", physical_function=pf.address)
    host = node.machine(replace(regular_machine(), pci=(pf, virtual)))
    function = read_pci_device(host, pf.address)
    return (
        Nic(link=Link(index=2, name="pf0"), pci=function, eswitch_mode=mode),
        Nic(
            link=Link(index=3, name=vf),
            pci=read_pci_device(host, "0000:3b:02.0"),
            pf=PhysicalFunction(pci=function, number=0, interface="pf0", link=2),
        ),
    )


@pytest.mark.parametrize(
    ("vf", "mode", "settings", "reason"),
    [
        ("vf0", "legacy", NicSettings(), "has 1 virtual functions, which are devices of their own"),
        ("vf0", "legacy", PARTITIONABLE, ""),
        ("vf0", "switchdev", PARTITIONABLE, "is the uplink of its eswitch, which is in switchdev mode"),
        (
            "mgmt0",
            "legacy",
            PARTITIONABLE,
            "has a virtual function that the node needs: interface mgmt0 is protected by the setting protect: mgmt*",
        ),
    ],
)
def test_a_pf_with_vfs_is_a_device_only_where_that_is_asked_for_and_harmless(
    dra_node: FakeNode, vf: str, mode: str, settings: NicSettings, reason: str
) -> None:
    nics = pf_and_vf(dra_node, vf, mode)
    snapshot = NetworkSnapshot([nic.link for nic in nics if nic.link is not None])
    assert kept(nics, snapshot, settings).get(2, "") == reason
