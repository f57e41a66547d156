"""Addresses by DHCP: a server on the other end of a veth grants, extends, refuses and takes back leases."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event, Thread
from typing import Any

import pytest
from dra_driver_nic import NicConfig, NicDriver, NicSettings
from dra_driver_nic.config import InterfaceConfig, RouteConfig
from dra_driver_nic.network.dhcp import ACK, DISCOVER, NAK, OFFER, RELEASE, REQUEST, DhcpError, Lease, acquire
from dra_driver_nic.testing import PrivateNamespace, PrivateNetworks, run_sandbox, stop_sandbox, wait_for_state

from dra_sdk import RetriableError
from dra_sdk.testing import DriverHarness, FakeNode, claim, request
from dra_sdk.testing.crashes import assert_survives_crashes
from dra_sdk.testing.waiting import wait

pytest_plugins = ["dra_sdk.testing.plugin"]
ONE = request("nic", where='device.attributes["dra.net"].ifName == "nic0"')
BY_DHCP = NicConfig(interface=InterfaceConfig(name="net1", dhcp=True))
MAC = "02:00:00:00:00:55"
SERVER = "10.60.0.1"
ROUTES = bytes([16, 10, 61, 10, 60, 0, 1]) + bytes([0, 10, 60, 0, 1]) + bytes([24, 10, 62, 0, 0, 0, 0, 0])


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
        kind = dict(parse_options(message[240:]))[53][0]
        self.received.append((kind, socket.inet_ntoa(message[12:16]), message[28:34].hex(":")))
        if kind not in self.answers:
            return
        has_address = any(message[12:16])
        answer = NAK if self.refuses_renewal and has_address else self.answers[kind]
        reply = bytearray(message[:240])
        reply[0] = 2
        reply[16:20] = socket.inet_aton(self.address)
        given = {53: bytes([answer]), 54: socket.inet_aton(SERVER), 51: struct.pack("!I", 600)}
        given |= {1: socket.inet_aton("255.255.255.0"), 3: socket.inet_aton(SERVER), **self.options}
        payload = bytes(reply) + b"".join(bytes([code, len(value)]) + value for code, value in given.items()) + b"\xff"
        udp = struct.pack("!HHHH", 67, 68, 8 + len(payload), 0) + payload
        header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0)
        packet = header + socket.inet_aton(SERVER) + socket.inet_aton("255.255.255.255") + udp
        self.packets.sendto(packet, (self.packets.getsockname()[0], 0x0800, 0, 0, b"\xff" * 6))

    def kinds(self) -> list[int]:
        """The types of messages that it received, without repetitions that follow each other."""
        found = [kind for kind, *_ in self.received]
        return [kind for number, kind in enumerate(found) if not number or found[number - 1] != kind]


def parse_options(data: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0
    while data[place] != 255:
        length = data[place + 1]
        yield data[place], data[place + 2 : place + 2 + length]
        place += 2 + length


def open_packets(name: str) -> socket.socket:
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
    packets.bind((name, 0x0800))
    return packets


@pytest.fixture
def dhcp_server(networks: PrivateNetworks) -> Iterator[DhcpServer]:
    """On the other end of nic0."""
    ended = Event()
    with networks.node.enter(partial(open_packets, "wire0")) as packets:
        made = DhcpServer(packets)
        thread = Thread(target=made.serve, args=(ended,))
        thread.start()
        yield made
        ended.set()
        thread.join()


@pytest.fixture
def client(networks: PrivateNetworks) -> Iterator[socket.socket]:
    """The socket of a client on nic0."""
    opened = networks.open(None)
    with opened.run(lambda network: network.packet_socket("nic0")) as packets:
        yield packets
    opened.close()


def addresses_in(namespace: PrivateNamespace, name: str) -> list[dict[str, Any]]:
    (link,) = json.loads(namespace.ip(f"-j addr show {name}"))
    return [each for each in link["addr_info"] if each["family"] == "inet"]


def address_in(namespace: PrivateNamespace, name: str) -> dict[str, Any]:
    (found,) = addresses_in(namespace, name)
    return found


def test_a_pod_gets_the_address_of_a_lease_and_the_server_gets_it_back(
    nic_driver: DriverHarness, networks: PrivateNetworks, dhcp_server: DhcpServer
) -> None:
    dhcp_server.options[121] = ROUTES
    before = networks.node.state()
    pod = networks.add_pod("pod1")
    prepared = nic_driver.prepare(claim(ONE, config=BY_DHCP))
    wait_for_state(networks.node, before)
    (status,) = nic_driver.cluster.claims[prepared.ref.uid]["status"]["devices"]
    assert status["networkData"]["ips"] == ["10.60.0.50/24"]
    made = run_sandbox(nic_driver, "pod1")
    found = address_in(pod, "net1")
    assert (found["local"], found["prefixlen"]) == ("10.60.0.50", 24)
    assert 500 < found["valid_life_time"] <= 600
    routes = pod.ip("route")
    assert "10.61.0.0/16 via 10.60.0.1 dev net1 proto dhcp" in routes
    assert "10.62.0.0/24 dev net1 proto dhcp scope link" in routes
    assert "default" not in routes, "the pod has a default route already"
    stop_sandbox(nic_driver, made)
    nic_driver.unprepare(prepared)
    wait(lambda: dhcp_server.kinds() == [DISCOVER, REQUEST, RELEASE])
    assert dhcp_server.received[-1][1] == "10.60.0.50"
    wait_for_state(networks.node, before)
    nic_driver.assert_clean()


def test_a_lease_is_renewed_in_the_pod(
    nic_driver: DriverHarness, networks: PrivateNetworks, dhcp_server: DhcpServer
) -> None:
    dhcp_server.options |= {58: struct.pack("!I", 1)}
    pod = networks.add_pod("pod1")
    prepared = nic_driver.prepare(claim(ONE, config=BY_DHCP))
    made = run_sandbox(nic_driver, "pod1")
    dhcp_server.options |= {51: struct.pack("!I", 9000), 58: struct.pack("!I", 8000), 59: struct.pack("!I", 8500)}
    nic_driver.restart()
    with nic_driver.watching():
        wait(lambda: address_in(pod, "net1")["valid_life_time"] > 600)
    assert (REQUEST, "10.60.0.50", *dhcp_server.received[0][2:]) in dhcp_server.received
    stop_sandbox(nic_driver, made)
    nic_driver.unprepare(prepared)


def test_a_lease_that_the_server_refuses_to_renew_is_replaced(
    nic_driver: DriverHarness, networks: PrivateNetworks, dhcp_server: DhcpServer
) -> None:
    dhcp_server.options |= {58: struct.pack("!I", 1), 121: ROUTES}
    pod = networks.add_pod("pod1")
    nic_driver.prepare(claim(ONE, config=BY_DHCP))
    run_sandbox(nic_driver, "pod1")
    dhcp_server.refuses_renewal = True
    dhcp_server.options |= {58: struct.pack("!I", 300)}
    dhcp_server.address = "10.60.0.51"
    with nic_driver.watching():
        wait(lambda: [each["local"] for each in addresses_in(pod, "net1")] == ["10.60.0.51"])
    assert "10.61.0.0/16 via 10.60.0.1 dev net1" in pod.ip("route")


def test_an_interface_that_was_switched_off_is_switched_off_again(
    nic_driver: DriverHarness, networks: PrivateNetworks, dhcp_server: DhcpServer
) -> None:
    networks.node.ip("link set nic0 down")
    before = networks.node.state()
    prepared = nic_driver.prepare(claim(ONE, config=BY_DHCP))
    assert '"UP"' in networks.node.ip("-j link show nic0")
    nic_driver.unprepare(prepared)
    wait_for_state(networks.node, before)
    wait(lambda: dhcp_server.kinds()[-1] == RELEASE)


@pytest.mark.timeout(300)
def test_a_kill_at_every_write_leaves_no_interface_switched_on(
    nic_driver: DriverHarness, networks: PrivateNetworks, dhcp_server: DhcpServer
) -> None:
    networks.node.ip("link set nic0 down")
    before = networks.node.state()
    assert assert_survives_crashes(nic_driver, claim(ONE, config=BY_DHCP), lines=False) > 10
    assert RELEASE in dhcp_server.kinds()
    wait_for_state(networks.node, before)


def test_a_lease_that_is_over_is_not_given_to_a_pod(
    nic_driver: DriverHarness, networks: PrivateNetworks, dhcp_server: DhcpServer
) -> None:
    before = networks.node.state()
    pod = networks.add_pod("pod1")
    prepared = nic_driver.prepare(claim(ONE, config=BY_DHCP))
    (path,) = nic_driver.node.root.rglob(f"devices/{prepared.names[0]}/record.json")
    record = json.loads(path.read_text())
    record["lease"]["seconds"] = 0
    path.write_text(json.dumps(record))
    with pytest.raises(RetriableError, match=r"its lease of 10\.60\.0\.50 by DHCP server 10\.60\.0\.1 is over"):
        run_sandbox(nic_driver, "pod1")
    wait_for_state(networks.node, before)
    with nic_driver.watching():
        wait(lambda: json.loads(path.read_text())["lease"]["seconds"] == 600)
    run_sandbox(nic_driver, "pod1")
    assert address_in(pod, "net1")["local"] == "10.60.0.50"


def test_without_a_server_the_claim_is_refused_in_a_sentence_and_the_node_is_as_before(
    dra_node: FakeNode, dra_driver: Any, networks: PrivateNetworks
) -> None:
    settings = NicSettings(software=("veth",), protect=("wire*",), dhcp_seconds=0.2)
    driver = dra_driver(partial(NicDriver, effects=dra_node.effects, open_namespace=networks.open), settings=settings)
    networks.node.ip("link set nic0 down")
    before = networks.node.state()
    asked = claim(ONE, config=BY_DHCP)
    told = (
        r"device nic0 \(interface nic0\): there is no DHCP lease for .*: no server answers \(interface\.dhcp, 0\.2 s\)"
    )
    with pytest.raises(RetriableError, match=told):
        driver.prepare(asked)
    driver.unprepare(asked)
    wait_for_state(networks.node, before)
    driver.assert_clean()


def test_the_address_and_the_routes_of_the_configuration_replace_those_of_the_lease(
    nic_driver: DriverHarness, networks: PrivateNetworks, dhcp_server: DhcpServer
) -> None:
    dhcp_server.options[121] = ROUTES
    pod = networks.add_pod("pod1")
    interface = InterfaceConfig(dhcp=True, hardware_addr=MAC)
    routes = (RouteConfig(destination="10.70.0.0/16", gateway="10.60.0.9"),)
    nic_driver.prepare(claim(ONE, config=NicConfig(interface=interface, routes=routes)))
    run_sandbox(nic_driver, "pod1")
    assert dhcp_server.received[0] == (DISCOVER, "0.0.0.0", MAC)
    assert "10.70.0.0/16 via 10.60.0.9 dev nic0" in pod.ip("route")
    assert "10.61.0.0/16" not in pod.ip("route")


# -- the protocol alone


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({51: b""}, "has no lease: its address, server or time is missing"),
        ({121: b"\x40\x0a"}, r"has routes \(option 121\) that cannot be read"),
    ],
)
def test_an_answer_that_is_no_lease_is_refused(
    dhcp_server: DhcpServer, client: socket.socket, options: dict[int, bytes], told: str
) -> None:
    dhcp_server.options |= options
    with pytest.raises(DhcpError, match=told):
        acquire(client, MAC, 30)


def test_an_address_of_no_station_is_refused(dhcp_server: DhcpServer, client: socket.socket) -> None:
    dhcp_server.address = "127.0.0.1"
    with pytest.raises(DhcpError, match=r"grants 127\.0\.0\.1, which is no address of a station"):
        acquire(client, MAC, 30)


def test_a_refusal_is_told_with_the_servers_reason(dhcp_server: DhcpServer, client: socket.socket) -> None:
    dhcp_server.answers[REQUEST] = NAK
    dhcp_server.options[56] = b"wrong network"
    with pytest.raises(DhcpError, match=r"server 10\.60\.0\.1 refuses the lease: wrong network") as refused:
        acquire(client, MAC, 30)
    assert refused.value.refused


def test_a_lease_without_end_is_one(dhcp_server: DhcpServer, client: socket.socket) -> None:
    dhcp_server.options[51] = b"\xff" * 4
    lease = acquire(client, MAC, 30)
    assert (lease.address, lease.seconds, lease.left()) == ("10.60.0.50/24", None, None)
    assert Lease.from_entry(lease.entry) == lease
    assert replace(lease, seconds=0).left() == 0
