"""Claims that the release 5134cc5 has prepared are continued: `samples/state-5134cc5` is what it kept on a node."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from dra_driver_nic import NicDriver, NicSettings
from dra_driver_nic.testing import PrivateNamespace, PrivateNetworks

from dra_sdk.testing import DriverHarness, FakeNode
from dra_sdk.testing.node_state import NodeState

pytest_plugins = ["dra_sdk.testing.plugin"]
SAMPLE = Path(__file__).parent / "samples/state-5134cc5/nic"
TAG = "dra-5134cc50-0000-4000-8000-00000000000{}-0"
QUEUES = "numtxqueues 2 numrxqueues 2"
IPV4 = 0x0800
DHCP_RELEASE = bytes([53, 1, 7])
OF_THE_KERNEL = ("sysctls", "ethtool")
"""What is set back to the values of the kernel on which the sample was made, if another one has other defaults."""


@pytest.fixture
def networks() -> Iterator[PrivateNetworks]:
    """Make the node of the sample as it was before its claims: nic0 to nic3, with the MAC addresses of then."""
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the program ip")
    made = PrivateNetworks()
    made.node.enter(lambda: Path("/proc/sys/net/ipv6/conf/default/accept_dad").write_text("0"))
    made.node.ip("link set lo up")
    for number in range(4):
        made.node.ip(
            f"link add wire{number} address 02:00:00:00:01:0{number} {QUEUES} type veth "
            f"peer name nic{number} address 02:00:00:00:00:0{number} {QUEUES}",
            f"link set wire{number} up",
            f"link set nic{number} mtu 4000 up",
            f"addr add 10.9.{number}.1/24 dev nic{number}",
            f"route add 10.77.{number}.0/24 via 10.9.{number}.2",
            f"neigh add 10.9.{number}.9 lladdr 02:00:00:00:00:09 dev nic{number}",
        )
    yield made
    made.close()


def lent(networks: PrivateNetworks, pod: str, interface: str, name: str, tag: str) -> PrivateNamespace:
    """Make a pod that has an interface of the node under another name, with the tag of its claim."""
    made = networks.add_pod(pod)
    networks.node.ip(
        f"link set {interface} down",
        f"link property add dev {interface} altname {tag}",
        f"link set {interface} netns /proc/{os.getpid()}/fd/{made.path.name}",
    )
    made.ip(f"link set {interface} name {name}", f"link set {name} up")
    return made


def open_packets(name: str) -> socket.socket:
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
    packets.bind((name, IPV4))
    packets.settimeout(10.0)
    return packets


def test_interfaces_in_pods_come_back(networks: PrivateNetworks, dra_node: FakeNode) -> None:
    """nic0 is in a pod, nic1 waits for one, a third pod has a macvlan on nic2, and nic3 waits with a lease by DHCP."""
    before = networks.node.state()
    state = NodeState(SAMPLE)
    state.restore(dra_node)
    first = lent(networks, "pod1", "nic0", "net1", TAG.format(1))
    networks.node.ip("link add link nic2 name shared type macvlan mode bridge")
    third = lent(networks, "pod3", "shared", "net3", TAG.format(3))
    settings = NicSettings(software=("veth", "macvlan"), protect=("wire*",), settle_seconds=0.01, shared=("nic2",))
    made = partial(NicDriver, effects=dra_node.effects, open_namespace=networks.open, interval=0.05)
    with networks.node.enter(partial(open_packets, "wire3")) as packets:
        state.assert_continued(DriverHarness(made, dra_node, settings=settings))
        while DHCP_RELEASE not in packets.recv(4096):
            pass
    assert first.names() == third.names() == {"lo"}
    after = networks.node.state()
    assert {key: after[key] for key in after if key not in OF_THE_KERNEL} == {
        key: before[key] for key in before if key not in OF_THE_KERNEL
    }
