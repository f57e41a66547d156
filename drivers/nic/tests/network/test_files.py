"""The network of a tree of files is read only."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from dra_driver_nic.network.files import FilesNetwork
from dra_driver_nic.network.links import Network, NetworkError, RoutingRule

from dra_sdk.hardware import Host
from dra_sdk.testing import FakeNode

pytest_plugins = ["dra_sdk.testing.plugin"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda network: network.change(3, mtu=1400), "interface 3"),
        (lambda network: network.packet_socket("eth0"), "interface eth0"),
        (lambda network: network.add_rule(RoutingRule(priority=7)), r"RoutingRule\(priority=7, .*\)"),
    ],
)
def test_a_change_is_refused(dra_node: FakeNode, change: Callable[[Network], object], what: str) -> None:
    network = FilesNetwork(Host(dra_node.root))
    with pytest.raises(NetworkError, match=f"^{what} cannot be changed: the node is a tree of files$"):
        change(network)
