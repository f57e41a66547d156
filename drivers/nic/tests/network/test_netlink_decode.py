"""The kernel's answers are read from bytes: messages of pyroute2, also about cards that no machine here has."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from socket import AF_INET, AF_INET6
from typing import Any

import pytest
from dra_driver_nic.network.links import Address, Link, Neighbour, Route, VfSettings
from dra_driver_nic.network.netlink import MessageKind
from dra_driver_nic.network.netlink_decode import RouteEntry, read_address, read_link, read_neighbour, read_route
from dra_driver_nic.network.netlink_encode import nested, vf_changes
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

BEFORE = b"\0" * 20
"""Another message may come first in the bytes."""
GUID = "80:00:02:08:fe:80:00:00:00:00:00:00:0c:42:a1:03:00:65:12:34"
NOTHING = 0xFFFFFFFF
Attributes = Sequence[tuple[str, Any]]


def encoded(kind: MessageKind, fields: Mapping[str, int], attributes: Attributes) -> tuple[bytes, int]:
    message = kind()
    message.update(fields)
    message["attrs"] = list(attributes)
    message.encode()
    return BEFORE + bytes(message.data) + BEFORE, len(BEFORE)


def test_an_interface_in_software_is_read() -> None:
    names = nested(("IFLA_ALT_IFNAME", "z-name"), ("IFLA_ALT_IFNAME", "dra-11-22-0"))
    attributes: Attributes = [
        ("IFLA_IFNAME", "red"),
        ("IFLA_MTU", 65575),
        ("IFLA_MIN_MTU", 1280),
        ("IFLA_MAX_MTU", 65575),
        ("IFLA_OPERSTATE", "UP"),
        ("IFLA_CARRIER", 1),
        ("IFLA_IFALIAS", "für Pods"),
        ("IFLA_PROP_LIST", names),
        ("IFLA_LINK", 3),
        ("IFLA_MASTER", 4),
        ("IFLA_LINKINFO", nested(("IFLA_INFO_KIND", "vrf"), ("IFLA_INFO_DATA", nested(("IFLA_VRF_TABLE", 100))))),
    ]
    assert read_link(*encoded(ifinfmsg, {"index": 7, "flags": 0x1043, "ifi_type": 1}, attributes)) == Link(
        index=7,
        name="red",
        kind="vrf",
        mtu=65575,
        min_mtu=1280,
        max_mtu=65575,
        up=True,
        state="up",
        carrier=True,
        alias="für Pods",
        altnames=("dra-11-22-0", "z-name"),
        parent=3,
        master=4,
        table=100,
    )


def test_the_parent_of_an_interface_in_another_namespace_is_none() -> None:
    attributes: Attributes = [("IFLA_IFNAME", "nic0"), ("IFLA_LINK", 3), ("IFLA_LINK_NETNSID", 0)]
    link = read_link(*encoded(ifinfmsg, {"index": 7}, attributes))
    assert (link.parent, link.state, link.up, link.mac, link.table) == (0, "unknown", False, "", 0)


def test_an_address_of_infiniband_is_read() -> None:
    """pyroute2 writes six bytes only, so the others are put in here."""
    data, begin = encoded(ifinfmsg, {"index": 7, "ifi_type": 32}, [("IFLA_IFALIAS", "x" * 19)])
    message = bytearray(data[begin : -len(BEFORE)])
    message[-22:] = b"\x01\x00" + bytes.fromhex(GUID.replace(":", ""))
    link = read_link(bytes(message), 0)
    assert (link.arp_type, link.mac) == (32, GUID)


def test_the_virtual_functions_of_a_card_are_read() -> None:
    """A card that lacks a setting says -1, or does not mention it."""
    first: Attributes = [
        ("IFLA_VF_MAC", {"vf": 0, "mac": "02:00:00:00:00:10"}),
        ("IFLA_VF_VLAN", {"vf": 0, "vlan": 100, "qos": 3}),
        ("IFLA_VF_SPOOFCHK", {"vf": 0, "spoofchk": 1}),
        ("IFLA_VF_LINK_STATE", {"vf": 0, "link_state": 2}),
        ("IFLA_VF_RATE", {"vf": 0, "min_tx_rate": 10, "max_tx_rate": 1000}),
        ("IFLA_VF_TRUST", {"vf": 0, "trust": 0}),
    ]
    second: Attributes = [
        ("IFLA_VF_MAC", {"vf": 127, "mac": "02:00:00:00:00:11"}),
        ("IFLA_VF_SPOOFCHK", {"vf": 127, "spoofchk": NOTHING}),
    ]
    infos = [("IFLA_VF_INFO", nested(*settings)) for settings in (first, second)]
    attributes: Attributes = [("IFLA_IFNAME", "pf0"), ("IFLA_VFINFO_LIST", nested(*infos))]
    assert read_link(*encoded(ifinfmsg, {"index": 7}, attributes)).vfs == (
        VfSettings(
            number=0,
            mac="02:00:00:00:00:10",
            vlan=100,
            qos=3,
            spoofchk=True,
            trust=False,
            min_tx_rate=10,
            max_tx_rate=1000,
            link_state=2,
        ),
        VfSettings(number=127, mac="02:00:00:00:00:11"),
    )


def test_every_setting_of_a_virtual_function_is_read_as_it_is_written() -> None:
    settings = VfSettings(
        number=5,
        mac="02:00:00:00:00:10",
        vlan=100,
        qos=3,
        spoofchk=True,
        trust=True,
        min_tx_rate=10,
        max_tx_rate=1000,
        link_state=2,
    )
    read: dict[str, Any] = {}
    for _, content in vf_changes(7, settings):
        (vf,) = read_link(*encoded(ifinfmsg, content.fields, content.attributes)).vfs
        read |= {key: value for key, value in asdict(vf).items() if value is not None}
    assert VfSettings(**read) == settings


def test_an_address_is_read() -> None:
    fields = {"family": AF_INET, "prefixlen": 24, "scope": 253, "index": 7, "flags": 0x80}
    attributes: Attributes = [
        ("IFA_ADDRESS", "10.1.1.6"),
        ("IFA_LOCAL", "10.1.1.5"),
        ("IFA_BROADCAST", "10.1.1.255"),
        ("IFA_LABEL", "nic0:1"),
        ("IFA_RT_PRIORITY", 77),
        ("IFA_FLAGS", 0x280),
        ("IFA_CACHEINFO", {"ifa_preferred": 5, "ifa_valid": NOTHING}),
    ]
    assert read_address(*encoded(ifaddrmsg, fields, attributes)) == (
        7,
        Address(
            address="10.1.1.5/24",
            peer="10.1.1.6",
            broadcast="10.1.1.255",
            label="nic0:1",
            scope=253,
            flags=0x200,
            metric=77,
            preferred=5,
        ),
    )


@pytest.mark.parametrize("more", [("IFA_PROTO", 3), ("IFA_PROTO", 2), ("IFA_FLAGS", 0x01)])
def test_an_address_that_the_kernel_makes_is_none(more: tuple[str, int]) -> None:
    fields = {"family": AF_INET6, "prefixlen": 64, "index": 7}
    assert read_address(*encoded(ifaddrmsg, fields, [("IFA_ADDRESS", "fe80::1"), more])) is None


def test_a_route_with_one_next_hop_is_read() -> None:
    fields = {"family": AF_INET, "dst_len": 16, "table": 252, "proto": 4, "scope": 0, "type": 1, "tos": 8, "flags": 4}
    attributes: Attributes = [
        ("RTA_DST", "10.2.0.0"),
        ("RTA_OIF", 7),
        ("RTA_GATEWAY", "10.1.1.1"),
        ("RTA_PREFSRC", "10.1.1.5"),
        ("RTA_PRIORITY", 5),
        ("RTA_TABLE", 1000),
        ("RTA_METRICS", nested(("RTAX_MTU", 1400))),
    ]
    route = Route(
        destination="10.2.0.0/16",
        gateway="10.1.1.1",
        source="10.1.1.5",
        table=1000,
        metric=5,
        tos=8,
        flags=4,
        mtu=1400,
    )
    assert read_route(*encoded(rtmsg, fields, attributes)) == RouteEntry(route, link=7, hops=(), cached=False)


def test_a_default_route_with_several_next_hops_is_read() -> None:
    hops = [{"oif": 7, "hops": 0}, {"oif": 8, "hops": 1}]
    fields = {"family": AF_INET6, "dst_len": 0, "table": 254, "type": 1, "flags": 0x200}
    entry = read_route(*encoded(rtmsg, fields, [("RTA_MULTIPATH", hops)]))
    assert (entry.route.destination, entry.link, entry.hops, entry.cached) == ("::/0", 0, (7, 8), True)
    assert entry.is_default


@pytest.mark.parametrize("other", [{"type": 7}, {"table": 100}, {"dst_len": 8}])
def test_a_route_that_is_no_default_route_of_the_node(other: Mapping[str, int]) -> None:
    fields = {"family": AF_INET, "dst_len": 0, "table": 254, "type": 1}
    assert read_route(*encoded(rtmsg, fields, [("RTA_OIF", 7)])).is_default
    assert not read_route(*encoded(rtmsg, {**fields, **other}, [("RTA_OIF", 7)])).is_default


def test_a_permanent_neighbour_is_read_and_no_other() -> None:
    attributes: Attributes = [("NDA_DST", "fd00::9"), ("NDA_LLADDR", "02:00:00:00:00:09")]
    fields = {"family": AF_INET6, "ifindex": 7, "state": 0x80}
    read = (7, Neighbour(address="fd00::9", mac="02:00:00:00:00:09"))
    assert read_neighbour(*encoded(ndmsg, fields, attributes)) == read
    assert read_neighbour(*encoded(ndmsg, {**fields, "state": 2}, attributes)) is None
    assert read_neighbour(*encoded(ndmsg, fields, attributes[:1])) is None


def test_a_message_that_is_cut_off_is_an_error() -> None:
    data, begin = encoded(ifinfmsg, {"index": 7}, [("IFLA_IFNAME", "a-name-of-15-by")])
    with pytest.raises(OSError, match="cut off") as caught:
        read_link(data[: -len(BEFORE) - 4], begin)
    assert caught.value.errno == errno.EBADMSG
