"""Virtual functions of real network cards go to pods and come back as they were, as the kernel has it."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen, run
from typing import Any

import pytest

from tests.cluster.deployed import install, kubeconfig
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
RDMA = Path("/sys/class/infiniband")
SYSCTLS = [Path("/proc/sys/net", family, kind) for family in ("ipv4", "ipv6") for kind in ("conf", "neigh")]
ADDRESSES = {LEFT: "10.9.0.1", RIGHT: "10.9.0.2"}


def ip(*words: str) -> Any:
    """Returns what a command of `ip` prints as JSON."""
    return json.loads(run(["ip", "-j", *words], capture_output=True, text=True, check=True).stdout)


def text(*words: str) -> str:
    """Returns what a command prints."""
    return run(words, capture_output=True, text=True, check=True).stdout


def network() -> dict[str, str]:
    """Returns everything about the interfaces of PCI functions, the cards and the RDMA devices that pods can change.

    These are texts of `ip`, `rdma` and `devlink`, without the numbers that the kernel gives to interfaces and RDMA
    devices.
    """
    names = sorted(each["ifname"] for each in ip("-d", "link") if each.get("parentbus") == "pci")
    found = {f"link {name}": text("ip", "-d", "link", "show", name).partition(": ")[2] for name in names}
    found |= {f"addresses {name}": text("ip", "-o", "addr", "show", name).partition(": ")[2] for name in names}
    routes = text("ip", "route", "show", "table", "all").splitlines()
    found["routes"] = "\n".join(each for each in routes if set(each.split()) & {*names})
    found["rdma"] = "\n".join(sorted(text("rdma", "link").splitlines()))  # the kernel sorts by those numbers
    found |= {f"devlink {each}": text("devlink", each, "show") for each in ("dev", "port")}
    for device in sorted(RDMA.iterdir()):
        number = [
            each.name for each in (RDMA.parent / "infiniband_verbs").glob("uverbs*") if verbs(each) == device.name
        ]
        found[device.name] = f"{(device / 'node_guid').read_text()} {number}"
    for name in names:
        for directory in SYSCTLS:
            for path in sorted((directory / name).iterdir()):
                found[f"{directory.parent.name} {name} {path.name}"] = sysctl(path)
    return found


def changes(before: dict[str, str]) -> dict[str, tuple[str | None, str | None]]:
    """Returns what is not as before: the texts before and now."""
    now = network()
    return {name: pair for name in before | now if (pair := (before.get(name), now.get(name)))[0] != pair[1]}


def verbs(directory: Path) -> str:
    """Returns the RDMA device of a device node."""
    return (directory / "ibdev").read_text().strip()


def sysctl(path: Path) -> str:
    """Returns the value of a sysctl; empty for a secret that is not set, which the kernel does not show."""
    try:
        return path.read_text()
    except OSError:
        return ""


def virtual_functions() -> list[Function]:
    """Returns the virtual functions that have an interface."""
    return [each for each in functions_of("igbvf") if each.interfaces]


@pytest.fixture(scope="module")
def card() -> Iterator[Function]:
    """The card of NUMA node 1. It and the one of node 0 have two virtual functions each.

    Their hardware addresses are set by the card: otherwise, the kernel gives a virtual function another one each time
    that its driver is bound. Those of NUMA node 1 have an RDMA device each, in software.
    """
    run(["modprobe", "-a", "igbvf", "rdma_rxe", "rdma_ucm"], check=True)
    cards = functions_of("igb")
    for each in cards:  # a card that is down makes virtual functions that do not work
        run(["ip", "link", "set", *each.interfaces, "up"], check=True)
    for each in cards:
        carrier = each.path / "net" / each.interfaces[0] / "carrier"
        assert poll(lambda carrier=carrier: carrier.read_text() == "1\n", LIMIT)  # type: ignore[misc]
        add_virtual_functions(each)
    assert poll(lambda: len(virtual_functions()) == 4, LIMIT)
    (found,) = [each for each in cards if each.text("numa_node") == "1"]
    near = [each for each in virtual_functions() if each.text("numa_node") == "1"]
    for number, each in enumerate(near):
        run(["rdma", "link", "add", f"rxe{number}", "type", "rxe", "netdev", *each.interfaces], check=True)
    yield found
    for number in range(len(near)):
        run(["rdma", "link", "delete", f"rxe{number}"], check=True)
    for each in cards:
        (each.path / "sriov_numvfs").write_text("0")
        run(["ip", "link", "set", *each.interfaces, "down"], check=True)


def add_virtual_functions(card: Function) -> None:
    """Makes two virtual functions; their driver is bound when they have their hardware addresses."""
    (card.path / "sriov_drivers_autoprobe").write_text("0")
    (card.path / "sriov_numvfs").write_text("2")
    (card.path / "sriov_drivers_autoprobe").write_text("1")
    for number in range(2):
        address = f"02:00:00:00:{int(card.text('numa_node')):02x}:{number:02x}"
        run(["ip", "link", "set", *card.interfaces, "vf", str(number), "mac", address], check=True)
        Function((card.path / f"virtfn{number}").resolve().name).give("igbvf")


@pytest.fixture(scope="module")
def before(card: Function) -> dict[str, str]:
    """The node's network before any pod, when the kernel has found no address twice.

    It forwards already, which the network plugin of the first pod would switch on for all interfaces.
    """
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    assert poll(lambda: not any(each.get("tentative") for link in ip("addr") for each in link["addr_info"]), LIMIT)
    return network()


@pytest.fixture(scope="module")
def net(node: Node, before: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeDriver]:
    """The driver, which may write the status of claims, as the chart permits it with `deviceStatus`."""
    kubeconfig(node, DRIVER)  # makes its account, which the next line changes
    install(node, DRIVER, deviceStatus=True)
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
        node_pods.create(node, name, name, programs=True)
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


def test_virtual_functions_are_published_and_cards_and_uplink_are_not(net: NodeDriver, card: Function) -> None:
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


def test_pods_get_virtual_functions_with_addresses_and_reach_each_other(node: Node, pods: None) -> None:
    for name, other in ((LEFT, RIGHT), (RIGHT, LEFT)):
        (link,) = json.loads(in_pod(node, name, "ip", "-j", "-d", "addr", "show", "net1"))
        assert (link["mtu"], link["operstate"], link["parentbus"]) == (1400, "UP", "pci")
        assert ADDRESSES[name] in [each["local"] for each in link["addr_info"]]
        in_pod(node, name, "busybox", "ping", "-c", "3", "-w", "60", "-I", "net1", ADDRESSES[other])


def test_the_status_of_a_claim_tells_which_interface_the_pod_has(node: Node, net: NodeDriver, pods: None) -> None:
    for name in (LEFT, RIGHT):
        net.wait(lambda name=name: reason(status(node, name)) == "Attached")  # type: ignore[misc]
        (link,) = json.loads(in_pod(node, name, "ip", "-j", "link", "show", "net1"))
        assert status(node, name)["networkData"] == {
            "interfaceName": "net1",
            "hardwareAddress": link["address"],
            "ips": [f"{ADDRESSES[name]}/24"],
        }
    assert "status.devices refused" not in net.log_text()


def status(node: Node, claim: str) -> JSON:
    """Returns what the status of a claim says of the network device; empty for nothing."""
    found = node.api.get(f"{node_pods.CLAIMS}/{claim}") or {}
    entries = found.get("status", {}).get("devices", [])
    return next((each for each in entries if each["driver"] == DRIVER), {})


def reason(entry: JSON) -> str:
    """Returns the reason of the condition Ready."""
    return next((each["reason"] for each in entry.get("conditions", []) if each["type"] == "Ready"), "")


def serve(node: Node, name: str, server: list[str], client: list[str]) -> tuple[str, str]:
    """Runs a server in a pod and its client in the other one, again until the server listens.

    Returns what both print.
    """
    other = LEFT if name == RIGHT else RIGHT
    with Popen(node_pods.command(node, name, *server), stdout=PIPE, stderr=STDOUT, text=True) as process:
        printed: list[str] = []

        def finished() -> bool:
            words = node_pods.command(node, other, "timeout", "120", *client)
            done = run(words, stdout=PIPE, stderr=STDOUT, text=True, check=False)
            printed.append(done.stdout)
            return done.returncode == 0 or process.poll() is not None

        try:
            assert poll(finished, LIMIT / 4, 1.0), printed[-1]
            served, _ = process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode == 0, f"{served}\n{printed[-1]}"
        return served, printed[-1]


def test_each_container_has_the_device_node_of_its_own_rdma_device(node: Node, pods: None) -> None:
    devices = {}
    for name in (LEFT, RIGHT):
        nodes = Path(f"/proc/{node.container_process(name).pid}/root/dev/infiniband")
        (own,) = {path.name for path in nodes.iterdir()} - {"rdma_cm"}
        devices[name] = verbs(RDMA.parent / "infiniband_verbs" / own)
        assert f"link {devices[name]}/1 state ACTIVE physical_state LINK_UP netdev net1" in in_pod(
            node, name, "rdma", "link"
        )
    assert set(devices.values()) == {"rxe0", "rxe1"}


def test_rping_goes_from_pod_to_pod_in_both_directions(node: Node, pods: None) -> None:
    for name in (RIGHT, LEFT):
        at = ["-a", ADDRESSES[name], "-C", "3", "-v"]
        served, printed = serve(node, name, ["rping", "-s", *at], ["rping", "-c", *at])
        assert "server DISCONNECT EVENT" in served
        assert printed.count("ping data: rdma-ping-") == 3


def test_ib_write_bw_writes_from_pod_to_pod(node: Node, pods: None) -> None:
    write = ["ib_write_bw", "-F", "-R", "-s", "4096", "-n", "50"]
    _, printed = serve(node, RIGHT, write, [*write, ADDRESSES[RIGHT]])
    (line,) = [each.split() for each in printed.splitlines() if each.split()[:2] == ["4096", "50"]]
    assert float(line[3]) > 0  # MiB/s


def test_one_claim_has_a_virtual_function_and_the_cpus_near_it(node: Node, pods: None) -> None:
    assert node_pods.devices(node, RIGHT)["cpus"] == "cpudevnuma001"
    assert node_pods.given_cpus(node, RIGHT) == {4, 5}
    assert node_pods.given_memory(node, RIGHT) == "1"


def test_devices_keep_their_attributes_while_pods_have_them(net: NodeDriver, pods: None) -> None:
    names = {each["ifName"]["string"] for each in published(net).values() if each["isSriovVf"]["bool"]}
    assert len(names) == 4
    assert len(virtual_functions()) == 2  # the others are not on the node


def test_everything_of_the_network_is_as_before_when_the_pods_are_deleted(
    node: Node, net: NodeDriver, pods: None, before: dict[str, str]
) -> None:
    node_pods.delete(node, LEFT, RIGHT)
    node_pods.delete_claims(node, LEFT, RIGHT)
    net.wait(lambda: not net.held())
    assert changes(before) == {}


def test_a_container_gets_a_function_of_vfio_and_the_node_its_interface(
    node: Node, net: NodeDriver, card: Function, before: dict[str, str]
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
    assert changes(before) == {}
