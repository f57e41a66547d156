"""One answer of netlink that cannot be read costs the interface that it is about, and is named."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from socket import AF_INET
from typing import Any

import pytest
from dra_driver_nic.network.cards import read_eswitch_modes
from dra_driver_nic.network.kernel import KernelNetwork
from dra_driver_nic.network.netlink import MessageKind
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

from dra_sdk.hardware import collecting_omissions

NAMES = ("lo", "nic0", "nic1", "nic2")
HEADER = 32  # bytes of nlmsghdr and ifinfomsg


class FakeNetlink:
    """A socket of rtnetlink that gives these answers to every request for a list."""

    def __init__(self, answers: Mapping[MessageKind, Sequence[bytes]]) -> None:
        self._answers = answers

    def answers(self, kind: MessageKind, command: int, content: Any = None) -> list[tuple[bytes, int]]:
        del command, content
        return [(answer, 0) for answer in self._answers.get(kind, ())]


def encoded(kind: MessageKind, fields: Mapping[str, int], *attributes: tuple[str, Any]) -> bytes:
    message = kind()
    message.update(fields)
    message["attrs"] = list(attributes)
    message.encode()
    return bytes(message.data)


def network(links: Sequence[bytes], addresses: Sequence[bytes] = ()) -> KernelNetwork:
    netlink: Any = FakeNetlink({ifinfmsg: links, ifaddrmsg: addresses})
    return KernelNetwork(netlink)


LINKS = [
    encoded(ifinfmsg, {"index": 1 + n, "ifi_type": 1}, ("IFLA_IFNAME", name), ("IFLA_MTU", 1500))
    for n, name in enumerate(NAMES)
]
ADDRESSES = [
    encoded(ifaddrmsg, {"family": AF_INET, "index": 2 + n, "prefixlen": 24}, ("IFA_LOCAL", f"10.0.{n}.1"))
    for n in range(3)
]
FAULTS: Mapping[str, Callable[[bytes], bytes]] = {
    "missing": lambda _data: b"",
    "without a header": lambda data: data[:20],
    "cut off": lambda data: data[:-3],
    "a length beyond the end": lambda data: data[:HEADER] + b"\xff\x7f" + data[HEADER + 2 :],
    "a length of zero": lambda data: data[:HEADER] + b"\x00\x00" + data[HEADER + 2 :],
    "garbage": lambda data: data[:4] + random.Random(7).randbytes(len(data) - 4),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("number", range(len(LINKS)))
def test_an_answer_costs_at_most_its_own_interface(number: int, fault: Callable[[bytes], bytes]) -> None:
    before = network(LINKS).links()
    answers = [fault(data) if n == number else data for n, data in enumerate(LINKS)]
    with collecting_omissions() as omissions:
        after = network(answers).links()
    others = [link for link in before if link.index != number + 1]
    assert [link for link in after if link in others] == others
    assert len(after) + len(omissions) == len(LINKS)
    assert {omission.subject for omission in omissions} <= {f"interface {number} of the kernel's list"}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_an_answer_costs_at_most_its_own_address(fault: Callable[[bytes], bytes]) -> None:
    before = network((), ADDRESSES).addresses()
    with collecting_omissions() as omissions:
        after = network((), [fault(ADDRESSES[0]), *ADDRESSES[1:]]).addresses()
    assert {index: after[index] for index in (3, 4)} == {index: before[index] for index in (3, 4)}
    assert after.keys() - {3, 4} or len(omissions) == 1


@pytest.mark.parametrize(("number", "count"), [(95, 0), (2, 0), (5, 1), (13, 1)])
def test_what_devlink_refuses_is_named_unless_it_is_not_offered(number: int, count: int) -> None:
    class Refusing:
        def read_one(self, *_: Any) -> Any:
            raise NetlinkError(number, "refused")

        read_all = read_one

        def close(self) -> None:
            pass

    with collecting_omissions() as omissions:
        assert read_eswitch_modes(Refusing) == {}
    assert len(omissions) == count
