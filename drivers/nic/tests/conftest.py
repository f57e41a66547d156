"""Fixtures: network namespaces of the real kernel, and a driver on them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from dra_driver_nic import NicDriver, NicSettings
from dra_driver_nic.testing import PrivateNamespace, PrivateNetworks

from dra_sdk.testing import DriverHarness, FakeNode
from dra_sdk.testing.waiting import wait

_QUEUES = "numtxqueues 2 numrxqueues 2"
NEEDS_ROOT = "network namespaces need root and the program ip"


@pytest.fixture
def networks() -> Iterator[PrivateNetworks]:
    """A private namespace that stands for the node's: nic0 and nic1 are veths whose other ends stay on the node."""
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip(NEEDS_ROOT)
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
    yield made
    made.close()


@pytest.fixture
def nic_driver(dra_node: FakeNode, dra_driver: Any, networks: PrivateNetworks) -> DriverHarness:
    """The driver on these namespaces; veths are devices, but not the ends that stay."""
    settings = NicSettings(software=("veth", "macvlan"), protect=("wire*",), settle_seconds=0.01)
    made = partial(NicDriver, effects=dra_node.effects, open_namespace=networks.open, interval=0.05)
    found: DriverHarness = dra_driver(made, settings=settings)
    return found


def _is_settled(namespace: PrivateNamespace) -> bool:
    """Whether the kernel has noticed that all four links are ready, and given them link-local addresses."""
    links = [each for each in json.loads(namespace.ip("-j addr")) if each["ifname"] != "lo"]
    local = [each for link in links for each in link["addr_info"] if each["scope"] == "link"]
    return len(local) == len(links) == 4 and all(each["operstate"] == "UP" for each in links)


def _without_duplicate_address_detection() -> None:
    """Detection takes a second, in which an address is not yet what it was before."""
    Path("/proc/sys/net/ipv6/conf/default/accept_dad").write_text("0")
