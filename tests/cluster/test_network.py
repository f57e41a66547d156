"""Network devices of pods on the real kubelet and containerd: veth ends of this machine move to pods and come back.

Each test has interfaces of its own, `drat0` to `drat2`, whose other ends are ports of a bridge, so that pods reach each
other. The driver's setting `protect` keeps it away from all other interfaces of the machine.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from dra_driver_nic.network.kernel import KernelNamespace

from tests.cluster.deployed import install
from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.drivers import Drivers
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.processes import Process
from tests.cluster.harness.waiting import poll
from tests.cluster.manifests import claim, config, container, device_class, pod, request, template, where
from tests.cluster.pods import read_pod, wait_unschedulable

JSON = dict[str, Any]
T = TypeVar("T")
DRIVER = "dra.net"
BRIDGE = "drabr0"
NAMES = ("drat0", "drat1", "drat2")
CYCLES = int(os.environ.get("DRA_SDK_TEST_NIC_CYCLES", "5"))
"""How many pods with two interfaces come and go."""


def ip(*arguments: str) -> str:
    """Run the program `ip` once for each argument; the output."""
    return "".join(subprocess.check_output(["ip", *each.split()], text=True) for each in arguments)


def interface(name: str) -> JSON:
    """The selector of one interface."""
    return where(f'device.attributes["dra.net"].ifName == "{name}"')


def nic_config(*requests: str, **fields: Any) -> JSON:
    return config(DRIVER, {"apiVersion": "dra.net/v1alpha1", "kind": "NicConfig", **fields}, *requests)


def addressed(number: int, name: str = "net1") -> JSON:
    return {"name": name, "addresses": [f"10.203.7.{number}/24", f"fd00:203::{number}/64"]}


@contextmanager
def interfaces() -> Iterator[None]:
    """The veths of a test, each with an address, a route, an MTU and a sysctl that it must have again afterwards."""
    remove_interfaces()
    ip(f"link add {BRIDGE} type bridge", f"link set {BRIDGE} up")
    try:
        for number, name in enumerate(NAMES):
            ip(
                f"link add {name} mtu 1480 type veth peer name {name}w",
                f"link set {name}w master {BRIDGE} up",
                f"link set {name} up",
                f"addr add 10.204.{number}.1/24 dev {name}",
                f"route add 10.205.{number}.0/24 via 10.204.{number}.2",
            )
            Path(f"/proc/sys/net/ipv4/conf/{name}/arp_ignore").write_text("2")
        assert poll(are_up), ip("addr show")  # the kernel looks for a second who has the address
        yield
    finally:
        remove_interfaces()


def are_up() -> bool:
    return "tentative" not in ip("-6 addr show") and "DOWN" not in ip(*(f"-o link show {name}" for name in NAMES))


def remove_interfaces() -> None:
    for name in (*NAMES, BRIDGE):
        if Path(f"/sys/class/net/{name}").exists():
            ip(f"link del {name}")


def state() -> list[str]:
    """What `ip` and the sysctls say about the interfaces of the test.

    But not whether IPv4 is forwarded, which the plugin of CNI turns on for all interfaces with a cluster's first pod.
    """
    routes = [each for each in ip("route show table all", "-6 route show table all").splitlines() if "drat" in each]
    found = [path for name in NAMES for path in sorted(Path("/proc/sys/net").glob(f"ipv[46]/*/{name}/*"))]
    found = [path for path in found if path.match("ipv6/*/*/*") or path.name != "forwarding"]
    return [*links(*NAMES), *sorted(routes), *(f"{path}: {_read(path)}" for path in found)]


def links(*names: str) -> list[str]:
    return [ip(f"-d link show {name}", f"addr show {name}") for name in names]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # a secret that is not set
        return ""


@pytest.fixture
def veths() -> Iterator[None]:
    """The interfaces of a test; they end after its pods."""
    with interfaces():
        yield


@pytest.fixture
def nics(cluster: Cluster, veths: None, drivers: Drivers, monkeypatch: pytest.MonkeyPatch) -> DriverUnderTest:
    """The driver, which publishes the interfaces of this test alone, and may write the status of claims."""
    others = {path.name for path in Path("/sys/class/net").iterdir()} - set(NAMES)
    monkeypatch.setenv("DRA_NIC_SOFTWARE", "veth")
    monkeypatch.setenv("DRA_NIC_PROTECT", ",".join(["veth*", *sorted(others)]))
    monkeypatch.setenv("DRA_NIC_STATE_DIR", str(cluster.dir / "nic-state"))
    cluster.apply(device_class(DRIVER, DRIVER))
    driver = drivers.start("nic", DRIVER, "--nri-socket", str(cluster.nri_socket))
    install(cluster, DRIVER, deviceStatus=True)
    wait_connected(driver)
    driver.wait(lambda: published(driver) == set(NAMES))
    return driver


def published(driver: DriverUnderTest) -> set[str]:
    return {each["name"] for piece in driver.slices() for each in piece["spec"].get("devices", [])}


def wait_connected(driver: DriverUnderTest, times: int = 1) -> None:
    driver.wait(lambda: driver.log_since_start().count("connected to containerd") >= times)


def start(cluster: Cluster, name: str, *requests: JSON, configs: list[JSON], host_network: bool = False) -> None:
    """Create a pod with a claim of its own."""
    cluster.apply(template(f"of-{name}", list(requests), configs))
    made = pod(name, [{"name": "nic", "resourceClaimTemplateName": f"of-{name}"}], container("main", {"name": "nic"}))
    made["spec"]["hostNetwork"] = host_network
    cluster.apply(made)


def run(cluster: Cluster, name: str, *requests: JSON, configs: list[JSON]) -> None:
    start(cluster, name, *requests, configs=configs)
    cluster.wait_pod(name)


def run_addressed(cluster: Cluster, name: str, number: int, device: str) -> None:
    """Run a pod with one interface, whose addresses end with the number."""
    configs = [nic_config(interface=addressed(number), routes=[])]
    run(cluster, name, request("nic", DRIVER, **interface(device)), configs=configs)


def inside(cluster: Cluster, name: str, work: Callable[[], T]) -> T:
    """Call a function in the network namespace of a pod."""
    process: Process = cluster.container_process(name)
    namespace = KernelNamespace(f"/proc/{process.pid}/ns/net")
    try:
        return namespace.run(lambda _network: work())
    finally:
        namespace.close()


def pings(cluster: Cluster, name: str, address: str) -> bool:
    """Whether a container reaches an address through its interface `net1`."""
    command = f"ping -c 1 -W 5 -I net1 {address} >/dev/null && echo reached"
    return "reached" in cluster.kubectl("exec", name, "--", "sh", "-c", command, check=False)


def delete(cluster: Cluster, name: str) -> None:
    cluster.kubectl("delete", "pod", name, "--wait=false")
    cluster.wait_gone("pod", name)


def device_statuses(cluster: Cluster, name: str) -> dict[str, JSON]:
    """The entries of `status.devices` of a pod's claim, by device."""
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    items = cluster.api.get(path)["items"]
    uid = read_pod(cluster, name)["metadata"]["uid"]
    found = [each for each in items if uid in {owner["uid"] for owner in each["metadata"].get("ownerReferences", [])}]
    return {each["device"]: each for item in found for each in item.get("status", {}).get("devices", [])}


def ready(entry: JSON) -> tuple[str, str, str]:
    """Status, reason and message of the condition Ready."""
    (condition,) = [each for each in entry["conditions"] if each["type"] == "Ready"]
    return condition["status"], condition["reason"], condition.get("message", "")


def wait_ready(cluster: Cluster, name: str, device: str, reason: str) -> JSON:
    def found() -> JSON | None:
        entry = device_statuses(cluster, name).get(device)
        return entry if entry and ready(entry)[1] == reason else None

    return cluster.wait_until(found, f"{reason} of {device} in the claim of {name}")


def wait_event(cluster: Cluster, name: str, words: str) -> None:
    uid = read_pod(cluster, name)["metadata"]["uid"]
    path = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.uid%3D{uid}"

    def told() -> bool:
        return any(words in each["message"] for each in cluster.api.get(path)["items"])

    cluster.wait_until(told, f"an event of {name} with: {words}")


def wait_restored(cluster: Cluster, before: list[str], read: Callable[[], list[str]]) -> None:
    """Wait until the interfaces are as they were, which takes the kernel a moment; AssertionError with what differs."""

    def restored() -> bool:
        try:
            return read() == before
        except subprocess.CalledProcessError:  # one is still away
            return False

    try:
        cluster.wait_until(restored, "the interfaces are as before")
    finally:
        now = read()
        assert (set(now) - set(before), set(before) - set(now)) == (set(), set())


def wait_in_pod(cluster: Cluster, name: str, device: str) -> None:
    assert device not in {path.name for path in Path("/sys/class/net").iterdir()}
    assert "net1" in inside(cluster, name, lambda: ip("-o link"))


@pytest.mark.core
def test_two_pods_reach_each_other_and_the_node_gets_the_interfaces_back(
    cluster: Cluster, nics: DriverUnderTest
) -> None:
    before = state()
    run_addressed(cluster, "one", 1, "drat0")
    run_addressed(cluster, "two", 2, "drat1")
    for name, device, other in (("one", "drat0", 2), ("two", "drat1", 1)):
        wait_in_pod(cluster, name, device)
        assert pings(cluster, name, f"10.203.7.{other}")
        assert pings(cluster, name, f"fd00:203::{other}")
    entry = wait_ready(cluster, "one", "drat0", "Attached")
    assert ready(entry)[0] == "True"
    mac = inside(cluster, "one", lambda: ip("-o link show net1")).partition("link/ether ")[2].split()[0]
    ips = ["10.203.7.1/24", "fd00:203::1/64"]
    assert entry["networkData"] == {"interfaceName": "net1", "hardwareAddress": mac, "ips": ips}
    delete(cluster, "one")
    delete(cluster, "two")
    nics.wait_free()
    wait_restored(cluster, before, state)


def test_a_pod_gets_all_interfaces_that_it_claims(cluster: Cluster, nics: DriverUnderTest) -> None:
    before = state()
    requests = [request(f"nic{number}", DRIVER, **interface(name)) for number, name in enumerate(NAMES)]
    configs = [
        nic_config(f"nic{number}", interface=addressed(number + 1, f"net{number}"), routes=[]) for number in range(3)
    ]
    run(cluster, "three", *requests, configs=configs)
    shown = inside(cluster, "three", lambda: ip("-o addr"))
    for number in range(3):
        assert f"net{number}    inet 10.203.7.{number + 1}/24" in shown
    assert {name: ready(wait_ready(cluster, "three", name, "Attached"))[0] for name in NAMES} == dict.fromkeys(
        NAMES, "True"
    )
    start(cluster, "late", request("nic", DRIVER, **interface("drat1")), configs=[])
    wait_unschedulable(cluster, "late")
    delete(cluster, "late")
    delete(cluster, "three")
    nics.wait_free()
    wait_restored(cluster, before, state)


def test_an_attachment_that_fails_is_told_and_undone(cluster: Cluster, nics: DriverUnderTest) -> None:
    before = state()
    configs = [nic_config(interface={"name": "eth0"})]  # containerd's network has made one
    start(cluster, "taken", request("nic", DRIVER, **interface("drat0")), configs=configs)
    words = "device drat0 (interface drat0) cannot be called eth0 in the pod: the pod has an interface of this name"
    wait_event(cluster, "taken", words)
    status, _, message = ready(wait_ready(cluster, "taken", "drat0", "AttachFailed"))
    assert (status, message) == ("False", words)
    wait_restored(cluster, before, state)
    start(cluster, "host", request("nic", DRIVER, **interface("drat1")), configs=[], host_network=True)
    wait_event(cluster, "host", "uses the network of its node (hostNetwork), so it cannot get device drat1")
    for name in ("taken", "host"):
        delete(cluster, name)
    nics.wait_free()
    wait_restored(cluster, before, state)


def test_a_second_pod_of_a_claim_is_refused_until_the_first_has_gone(cluster: Cluster, nics: DriverUnderTest) -> None:
    before = state()
    requests = [request("nic", DRIVER, **interface("drat0"))]
    cluster.apply(claim("shared", requests, [nic_config(interface=addressed(1), routes=[])]))
    uses = [{"name": "nic", "resourceClaimName": "shared"}]
    first, second = (pod(name, uses, container("main", {"name": "nic"})) for name in ("first", "second"))
    cluster.apply(first)
    cluster.wait_pod("first")
    cluster.apply(second)
    wait_event(cluster, "second", "device drat0 (interface drat0) is in pod default/first; it can be in one pod only")
    wait_in_pod(cluster, "first", "drat0")
    delete(cluster, "first")
    cluster.wait_pod("second")
    wait_in_pod(cluster, "second", "drat0")
    delete(cluster, "second")
    cluster.kubectl("delete", "resourceclaim", "shared")
    nics.wait_free()
    wait_restored(cluster, before, state)


@pytest.mark.parametrize("component", ["driver", "kubelet"])
def test_a_pod_keeps_its_interface_through_a_restart(cluster: Cluster, nics: DriverUnderTest, component: str) -> None:
    before = state()
    run_addressed(cluster, "one", 1, "drat0")
    run_addressed(cluster, "two", 2, "drat1")
    if component == "driver":
        nics.kill()
        nics.start("--nri-socket", str(cluster.nri_socket))
        wait_connected(nics)
        nics.wait(nics.ready)
    else:
        cluster.restart(component)
    assert pings(cluster, "one", "10.203.7.2")
    assert published(nics) == set(NAMES)
    delete(cluster, "one")
    delete(cluster, "two")
    nics.wait_free()
    wait_restored(cluster, before, state)


def test_a_pod_keeps_its_interface_through_a_restart_of_containerd(cluster: Cluster, nics: DriverUnderTest) -> None:
    """Afterwards containerd tells plugins no more that this pod stops, so a veth ends with the pod's namespace."""
    run_addressed(cluster, "one", 1, "drat0")
    run_addressed(cluster, "two", 2, "drat1")
    cluster.restart("containerd")
    wait_connected(nics, 2)
    assert pings(cluster, "one", "10.203.7.2")
    delete(cluster, "one")
    delete(cluster, "two")
    nics.wait_free()
    nics.wait(lambda: published(nics) == {"drat2"})
    before = links("drat2")
    run_addressed(cluster, "three", 3, "drat2")
    delete(cluster, "three")
    nics.wait_free()
    wait_restored(cluster, before, lambda: links("drat2"))


def test_a_pod_that_is_deleted_while_the_driver_is_away_frees_its_device(
    cluster: Cluster, nics: DriverUnderTest
) -> None:
    """The kernel ends a veth with the namespace that it is in, where it would return hardware to the node."""
    others = links("drat1", "drat2")
    run_addressed(cluster, "one", 1, "drat0")
    nics.kill()
    cluster.kubectl("delete", "pod", "one", "--wait=false", "--grace-period=0", "--force")
    cluster.wait_until(lambda: not Path("/sys/class/net/drat0w").exists(), "the namespace of the pod has ended")
    nics.start("--nri-socket", str(cluster.nri_socket))
    nics.wait_free()
    nics.wait(lambda: published(nics) == {"drat1", "drat2"})
    assert links("drat1", "drat2") == others
    run_addressed(cluster, "two", 2, "drat1")
    delete(cluster, "two")
    nics.wait_free()


def test_pods_with_two_interfaces_come_and_go_and_leave_the_node_as_it_was(
    cluster: Cluster, nics: DriverUnderTest
) -> None:
    before = state()
    requests = [request(f"nic{number}", DRIVER, **interface(NAMES[number])) for number in (0, 1)]
    for number in range(CYCLES):
        run(cluster, f"pod-{number}", *requests, configs=[])
        listed = inside(cluster, f"pod-{number}", lambda: ip("-o link"))
        assert all(f": {name}@" in listed for name in NAMES[:2])
        delete(cluster, f"pod-{number}")
        nics.wait_free()
    wait_restored(cluster, before, state)
