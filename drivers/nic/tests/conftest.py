"""Fixtures: network namespaces of the real kernel, a driver on them, and a DHCP server."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from dra_driver_nic import NicDriver, NicSettings
from dra_driver_nic.network.dhcp import ACK, DISCOVER, NAK, OFFER, REQUEST
from dra_driver_nic.settings import CLASS_ONLY
from dra_driver_nic.testing import PrivateNamespace, PrivateNetworks

from dra_sdk.testing import DriverHarness, FakeNode
from dra_sdk.testing.waiting import wait

_QUEUES = "numtxqueues 2 numrxqueues 2"
_SERVER = "10.60.0.1"
NEEDS_ROOT = "network namespaces need root and the program ip"


@pytest.fixture
def networks(make_networks: Callable[[], PrivateNetworks]) -> PrivateNetworks:
    """Make a private namespace that stands for the node's: nic0 and nic1 are veths whose other ends stay there."""
    return make_networks()


@pytest.fixture
def make_networks() -> Iterator[Callable[[], PrivateNetworks]]:
    """Return what makes such a namespace; all end with the test."""
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip(NEEDS_ROOT)
    made: list[PrivateNetworks] = []

    def make() -> PrivateNetworks:
        made.append(_wired_networks())
        return made[-1]

    yield make
    for networks in made:
        networks.close()


def _wired_networks() -> PrivateNetworks:
    made = PrivateNetworks()
    made.node.enter(_without_duplicate_address_detection)
    made.node.ip("link set lo up")
    for number in (0, 1):
        made.node.ip(
            f"link add wire{number} {_QUEUES} type veth peer name nic{number} {_QUEUES}",
            f"link set wire{number} up",
            f"link set nic{number} mtu 4000 up",
            f"addr add 10.9.{number}.1/24 dev nic{number}",
            f"addr add fd00:{number}::1/64 dev nic{number} nodad",
            f"route add 10.77.{number}.0/24 via 10.9.{number}.2",
            f"neigh add 10.9.{number}.9 lladdr 02:00:00:00:00:09 dev nic{number}",
        )
    wait(partial(_is_settled, made.node))
    return made


@pytest.fixture
def nic_driver(dra_node: FakeNode, dra_driver: Any, networks: PrivateNetworks) -> DriverHarness:
    """Run the driver on these namespaces; veths are devices, but not the ends that stay."""
    quick = {"settle_seconds": 0.01, "claim_fields": CLASS_ONLY}
    settings = NicSettings(software=("veth", "macvlan"), protect=("wire*",), **quick)
    made = partial(NicDriver, effects=dra_node.effects, open_namespace=networks.open, interval=0.05)
    harness: DriverHarness = dra_driver(made, settings=settings)
    return harness


@dataclass
class DhcpServer:
    """A DHCP server on an interface.

    packets: a packet socket of the interface.
    address: what it grants.
    options: further options of its answers, by number.
    answers: which type of message answers which; what is missing is not answered.
    refuses_renewal: whether it refuses requests of clients that have an address.
    received: what it received: type, address of the client, hardware address of the client.
    """

    packets: socket.socket
    address: str = "10.60.0.50"
    options: dict[int, bytes] = field(default_factory=dict)
    answers: dict[int, int] = field(default_factory=lambda: {DISCOVER: OFFER, REQUEST: ACK})
    refuses_renewal: bool = False
    received: list[tuple[int, str, str]] = field(default_factory=list)

    def serve(self, ended: Event) -> None:
        self.packets.settimeout(0.05)
        while not ended.is_set():
            try:
                data = self.packets.recv(4096)
            except OSError:  # nothing has come, or the interface went down
                continue
            if data[9] == 17 and struct.unpack_from("!HH", data, 20) == (68, 67):
                self._answer(data[28:])

    def _answer(self, message: bytes) -> None:
        kind = dict(_options(message[240:]))[53][0]
        self.received.append((kind, socket.inet_ntoa(message[12:16]), message[28:34].hex(":")))
        if kind not in self.answers:
            return
        has_address = any(message[12:16])
        answer = NAK if self.refuses_renewal and has_address else self.answers[kind]
        reply = bytearray(message[:240])
        reply[0] = 2
        reply[16:20] = socket.inet_aton(self.address)
        given = {53: bytes([answer]), 54: socket.inet_aton(_SERVER), 51: struct.pack("!I", 600)}
        given |= {1: socket.inet_aton("255.255.255.0"), 3: socket.inet_aton(_SERVER), **self.options}
        payload = bytes(reply) + b"".join(bytes([code, len(value)]) + value for code, value in given.items()) + b"\xff"
        udp = struct.pack("!HHHH", 67, 68, 8 + len(payload), 0) + payload
        header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0)
        packet = header + socket.inet_aton(_SERVER) + socket.inet_aton("255.255.255.255") + udp
        self.packets.sendto(packet, (self.packets.getsockname()[0], 0x0800, 0, 0, b"\xff" * 6))

    def kinds(self) -> list[int]:
        """Return the types of messages that it received, without repetitions that follow each other."""
        kinds = [kind for kind, *_ in self.received]
        return [kind for number, kind in enumerate(kinds) if not number or kinds[number - 1] != kind]


def _options(data: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0
    while data[place] != 255:
        length = data[place + 1]
        yield data[place], data[place + 2 : place + 2 + length]
        place += 2 + length


def _open_packets(name: str) -> socket.socket:
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
    packets.bind((name, 0x0800))
    return packets


@pytest.fixture
def dhcp_server(networks: PrivateNetworks) -> Iterator[DhcpServer]:
    """On the other end of nic0."""
    ended = Event()
    with networks.node.enter(partial(_open_packets, "wire0")) as packets:
        made = DhcpServer(packets)
        thread = Thread(target=made.serve, args=(ended,))
        thread.start()
        yield made
        ended.set()
        thread.join()


@pytest.fixture
def client(networks: PrivateNetworks) -> Iterator[socket.socket]:
    """Open the socket of a client on nic0."""
    opened = networks.open(None)
    with opened.run(lambda network: network.packet_socket("nic0")) as packets:
        yield packets
    opened.close()


def _is_settled(namespace: PrivateNamespace) -> bool:
    """Whether the kernel has noticed that all four links are ready, and given them link-local addresses."""
    links = [link for link in json.loads(namespace.ip("-j addr")) if link["ifname"] != "lo"]
    local = [address for link in links for address in link["addr_info"] if address["scope"] == "link"]
    return len(local) == len(links) == 4 and all(link["operstate"] == "UP" for link in links)


def _without_duplicate_address_detection() -> None:
    """Switch detection off: it takes a second, in which an address is not yet what it was before."""
    Path("/proc/sys/net/ipv6/conf/default/accept_dad").write_text("0")
