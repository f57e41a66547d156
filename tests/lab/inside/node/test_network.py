"""Virtual functions of real network cards go to pods and come back as they were, as the kernel has it."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from subprocess import run
from typing import Any

import pytest

from tests.cluster.harness.waiting import poll
from tests.cluster.manifests import JSON, config, request, where
from tests.lab import node_pods
from tests.lab.conftest import NodeDriver, running
from tests.lab.harness.node import LIMIT, Node
from tests.lab.inside.functions import Function, functions_of

DRIVER = "dra.net"
SRIOV = "sriovnetwork.k8snetworkplumbingwg.io"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
LEFT, RIGHT, VFIO = "left", "right", "vfio"
ADDRESSES = {LEFT: "10.9.0.1", RIGHT: "10.9.0.2"}


def ip(*words: str) -> Any:
    """Returns what a command of `ip` prints as JSON."""
    return json.loads(run(["ip", "-j", *words], capture_output=True, text=True, check=True).stdout)


def network() -> dict[str, Any]:
    """Returns the names of the interfaces of PCI functions, their addresses, and all routes through them."""
    links = sorted(each["ifname"] for each in ip("-d", "link") if each.get("parentbus") == "pci")
    addresses = {each["ifname"]: each["addr_info"] for each in ip("addr") if each["ifname"] in links}
    routes = [each for each in ip("route", "show", "table", "all") if each.get("dev") in links]
    return {"links": links, "addresses": addresses, "routes": routes}


def virtual_functions() -> list[Function]:
    """Returns the virtual functions that have an interface."""
    return [each for each in functions_of("igbvf") if each.interfaces]


@pytest.fixture(scope="module")
def card() -> Iterator[Function]:
    """The card of NUMA node 1. It and the one of node 0 have two virtual functions each."""
    run(["modprobe", "igbvf"], check=True)
    cards = functions_of("igb")
    for each in cards:  # a card that is down makes virtual functions that do not work
        run(["ip", "link", "set", *each.interfaces, "up"], check=True)
    for each in cards:
        carrier = each.path / "net" / each.interfaces[0] / "carrier"
        assert poll(lambda carrier=carrier: carrier.read_text() == "1\n", LIMIT)  # type: ignore[misc]
        (each.path / "sriov_numvfs").write_text("2")
    assert poll(lambda: len(virtual_functions()) == 4, LIMIT)
    (found,) = [each for each in cards if each.text("numa_node") == "1"]
    yield found
    for each in cards:
        (each.path / "sriov_numvfs").write_text("0")
        run(["ip", "link", "set", *each.interfaces, "down"], check=True)


@pytest.fixture(scope="module")
def before(card: Function) -> dict[str, Any]:
    """The node's network before any pod, when the kernel has found no address twice."""
    assert poll(lambda: not any(each.get("tentative") for link in ip("addr") for each in link["addr_info"]), LIMIT)
    return network()


@pytest.fixture(scope="module")
def net(node: Node, before: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeDriver]:
    state = str(node.kubelet_dir / "plugins" / DRIVER)
    with running(node, "nic", DRIVER, tmp_path_factory.mktemp("net"), DRA_NIC_STATE_DIR=state) as driver:
        yield driver


@pytest.fixture(scope="module")
def pods(node: Node, cpus: NodeDriver, net: NodeDriver, card: Function) -> None:
    """Two pods with a virtual function of one card, the second with CPUs near it in the same claim."""
    assert cpus.running()
    assert net.running()
    node_pods.create_claim(node, LEFT, of(card), configs=[settings(LEFT)])
    wanted = (of(card), node_pods.cpus(2))
    node_pods.create_claim(node, RIGHT, *wanted, configs=[settings(RIGHT)], aligned_by=[node_pods.NUMA_NODE])
    for name in (LEFT, RIGHT):
        node_pods.create(node, name, name)
    node_pods.wait(node, LEFT, RIGHT)


def of(card: Function) -> JSON:
    """Returns the request `nic` for a virtual function of a card."""
    parent = f'device.attributes["{SRIOV}"].pfPciAddress == "{card.address}"'
    return request("nic", DRIVER, **where(f'device.attributes["{DRIVER}"].isSriovVf && {parent}'))


def settings(name: str) -> JSON:
    """Returns the configuration of a pod's interface."""
    return nic_config(interface={"name": "net1", "addresses": [f"{ADDRESSES[name]}/24"], "mtu": 1400})


def nic_config(**fields: Any) -> JSON:
    """Returns the configuration of the request `nic`, with sorted keys, as kubectl makes it.

    When a driver applies a claim's status, the API server sorts them, and refuses parameters that then have changed.
    """
    parameters = {"apiVersion": "dra.net/v1alpha1", "kind": "NicConfig", **fields}
    return config(DRIVER, json.loads(json.dumps(parameters, sort_keys=True)), "nic")


def in_pod(node: Node, name: str, *command: str) -> str:
    """Runs a command of this machine in a pod's network; returns what it prints."""
    enter = ["nsenter", "-t", str(node.container_process(name).pid), "-n", *command]
    done = run(enter, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def published(net: NodeDriver) -> dict[str, Any]:
    """Returns the attributes of the devices in the API, by name."""
    return {each["name"]: each["attributes"] for piece in net.slices() for each in piece["spec"]["devices"]}


def test_virtual_functions_are_published_and_their_cards_and_the_uplink_are_not(
    net: NodeDriver, card: Function
) -> None:
    found = published(net)
    virtual = {name: each for name, each in found.items() if each["isSriovVf"]["bool"]}
    assert set(virtual) == {device(each) for each in functions_of("igbvf")}
    for each in functions_of("igbvf"):
        attributes = virtual[device(each)]
        assert attributes[PCIE_ROOT] == {"string": each.root}
        assert attributes[node_pods.NUMA_NODE] == {"int": int(each.text("numa_node"))}
        assert attributes["ifName"] == {"string": each.interfaces[0]}
        assert attributes[f"{SRIOV}/pfPciAddress"]["string"] in {pf.address for pf in functions_of("igb")}
    rest = {name for name in found if name not in virtual}
    assert rest == {device(each) for driver in ("e1000", "e1000e") for each in functions_of(driver)}


def device(function: Function) -> str:
    """Returns the name of a function's device."""
    return f"pci-{function.address.replace(':', '-').replace('.', '-')}"


def test_pods_get_their_virtual_functions_with_addresses_and_reach_each_other(node: Node, pods: None) -> None:
    for name, other in ((LEFT, RIGHT), (RIGHT, LEFT)):
        (link,) = json.loads(in_pod(node, name, "ip", "-j", "-d", "addr", "show", "net1"))
        assert (link["mtu"], link["operstate"], link["parentbus"]) == (1400, "UP", "pci")
        assert ADDRESSES[name] in [each["local"] for each in link["addr_info"]]
        in_pod(node, name, "busybox", "ping", "-c", "3", "-w", "60", "-I", "net1", ADDRESSES[other])


def test_one_claim_has_a_virtual_function_and_the_cpus_near_it(node: Node, pods: None) -> None:
    assert node_pods.devices(node, RIGHT)["cpus"] == "cpudevnuma001"
    assert node_pods.given_cpus(node, RIGHT) == {4, 5}
    assert node_pods.given_memory(node, RIGHT) == "1"


def test_devices_keep_their_attributes_while_pods_have_them(net: NodeDriver, pods: None) -> None:
    names = {each["ifName"]["string"] for each in published(net).values() if each["isSriovVf"]["bool"]}
    assert len(names) == 4
    assert len(virtual_functions()) == 2  # the others are not on the node


def test_names_addresses_and_routes_are_as_before_when_the_pods_are_deleted(
    node: Node, net: NodeDriver, pods: None, before: dict[str, Any]
) -> None:
    node_pods.delete(node, LEFT, RIGHT)
    node_pods.delete_claims(node, LEFT, RIGHT)
    net.wait(lambda: not net.held())
    assert network() == before


def test_a_container_gets_a_virtual_function_of_vfio_and_the_node_gets_its_interface_back(
    node: Node, net: NodeDriver, card: Function, before: dict[str, Any]
) -> None:
    vfio = nic_config(driver="vfio-pci", iommu={"enableAPIDevice": True})
    node_pods.create_claim(node, VFIO, of(card), configs=[vfio])
    node_pods.run(node, VFIO, VFIO)
    (function,) = functions_of("vfio-pci")
    assert device(function) == node_pods.devices(node, VFIO)["nic"]
    nodes = Path(f"/proc/{node.container_process(VFIO).pid}/root/dev/vfio")
    assert {path.name for path in nodes.iterdir()} == {"vfio", str(function.group)}
    assert all(stat.S_ISCHR(path.stat().st_mode) for path in nodes.iterdir())

    node_pods.delete(node, VFIO)
    node_pods.delete_claims(node, VFIO)
    net.wait(lambda: not net.held())
    assert function.driver == "igbvf"
    assert function.override == ""
    assert network() == before
