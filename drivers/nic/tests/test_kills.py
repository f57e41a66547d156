"""The driver is killed before every change on the way to a pod and back; and pods come and go."""

from __future__ import annotations

import os
import signal
import subprocess
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from dra_driver_nic import NicConfig, NicDriver, NicSettings
from dra_driver_nic.config import InterfaceConfig, RouteConfig, VrfConfig
from dra_driver_nic.network.links import Link, Network, NetworkNamespace, Vrf
from dra_driver_nic.testing import (
    EVERY_FIELD,
    PrivateNetworks,
    run_sandbox,
    sandbox,
    stop_sandbox,
    wait_for_state,
    write_rdma_device,
)
from dra_driver_nic.testing.fake_rdma import RdmaConnection, RdmaKernel, is_change

from dra_sdk import Node
from dra_sdk.nri import PodSandbox
from dra_sdk.testing import DriverHarness, FakeNode, claim, request

pytestmark = pytest.mark.faults

pytest_plugins = ["dra_sdk.testing.plugin"]
T = TypeVar("T")
ONE = request("nic", where='device.attributes["dra.net"].ifName == "nic0"')
BOTH = request("nics", count=2)
TABLE = 100
IN_VRF = NicConfig(
    interface=InterfaceConfig(name="net1", addresses=("10.1.1.5/24",), vrf=VrfConfig(name="red", table=TABLE)),
    routes=(RouteConfig(destination="10.2.0.0/16", gateway="10.1.1.1"),),
)
CYCLES = int(os.environ.get("DRA_SDK_TEST_NIC_CYCLES", "10"))
"""How many pods come and go; 100 is what the driver's README speaks of."""


class KillingNetwork:
    """A network whose process is killed before or after the change with some number, counted in a file."""

    def __init__(self, network: Network, kill: Kill) -> None:
        self._network, self._kill = network, kill

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._network, name)
        changes = name.startswith(("add_", "remove_", "set_")) or name in {"change", "move"}
        return partial(self._kill.change, method) if changes else method


class KillingNamespace:
    def __init__(self, namespace: NetworkNamespace, kill: Kill) -> None:
        self._namespace, self._kill = namespace, kill
        self.handle, self.identity, self.close = namespace.handle, namespace.identity, namespace.close

    def run(self, work: Callable[[Any], T]) -> T:
        return self._namespace.run(lambda network: work(KillingNetwork(network, self._kill)))


class NetworkWithoutVrf:
    """The network of a kernel without VRFs: a bridge of the kernel stands for one, with the table of `IN_VRF`.

    Interfaces belong to it, and it is found, renamed and removed, as a VRF; only its routing table is not its own.
    """

    def __init__(self, network: Network) -> None:
        self._network = network

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def links(self) -> list[Link]:
        return [_as_vrf(link) for link in self._network.links()]

    def find(self, name: str) -> Link | None:
        link = self._network.find(name)
        return None if link is None else _as_vrf(link)

    def add_vrf(self, vrf: Vrf) -> None:
        subprocess.run(["ip", "link", "add", vrf.name, "up", "type", "bridge"], check=True)


def _as_vrf(link: Link) -> Link:
    return replace(link, table=TABLE) if link.kind == "bridge" else link


class NamespaceWithoutVrf:
    def __init__(self, namespace: NetworkNamespace) -> None:
        self._namespace = namespace
        self.handle, self.identity, self.close = namespace.handle, namespace.identity, namespace.close

    def run(self, work: Callable[[Any], T]) -> T:
        return self._namespace.run(lambda network: work(NetworkWithoutVrf(network)))


class NetworksWithoutVrf:
    """The namespaces of a node and its pods, with bridges for VRFs."""

    def __init__(self, networks: PrivateNetworks) -> None:
        self._networks = networks

    def open(self, path: Path | None) -> NamespaceWithoutVrf:
        return NamespaceWithoutVrf(self._networks.open(path))


class KillingRdma:
    """A socket of RDMA netlink whose process is killed before a change; each change is kept in a file."""

    def __init__(self, kernel: RdmaKernel, kill: Kill, file: Path) -> None:
        self._kernel, self._kill, self._file = kernel, kill, file
        self._connection: RdmaConnection = kernel.open()
        self.recv, self.close = self._connection.recv, self._connection.close

    def send(self, message: bytes) -> int:
        if not is_change(message):
            return self._connection.send(message)
        sent: int = self._kill.change(self._connection.send, message)
        self._kernel.write(self._file)
        return sent


class Kill:
    """Kills this process after a number of changes."""

    def __init__(self, after: int) -> None:
        self._left = after

    def change(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1
        return method(*arguments, **named)


def killed_after(
    changes: int,
    node: FakeNode,
    networks: PrivateNetworks | NetworksWithoutVrf,
    work: Callable[[NicDriver], None],
    *,
    shared: tuple[str, ...] = (),
    rdma: RdmaKernel | None = None,
) -> bool:
    """Run a new driver in a child process that is killed after some changes; False if it ended before.

    rdma: the RDMA devices, which are afterwards as the process has left them.
    """
    file = node.path("/rdma.json")
    if rdma is not None:
        rdma.write(file)
    child = os.fork()
    if not child:
        status = 1
        try:
            kill = Kill(changes)
            settings = NicSettings(software=("veth",), protect=("wire*",), shared=shared)
            work(
                NicDriver(
                    settings,
                    effects=node.effects,
                    open_namespace=lambda path: KillingNamespace(networks.open(path), kill),
                    open_rdma=None if rdma is None else lambda: KillingRdma(rdma, kill, file),
                )
            )
            status = 0
        except BaseException:  # noqa: BLE001 (the child must never continue as its parent)
            traceback.print_exc()
        finally:
            os._exit(status)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert ended in {0, -signal.SIGKILL}
    if rdma is not None:
        rdma.read(file)
    return ended != 0


def calling(hook: str, pod: PodSandbox, node: Node) -> Callable[[NicDriver], None]:
    """Call a hook about a pod or its claim, for `killed_after`: `run` or `run again`, `stop`, `unprepare`."""

    def work(driver: NicDriver) -> None:
        if hook.startswith("run"):
            driver.dra_run_pod_sandbox(pod, node)
        elif hook == "stop":
            driver.dra_stop_pod_sandbox(pod, node)
        else:
            driver.dra_unprepare(pod.claims[0], node)

    return work


def points(limit: int = 200) -> Iterator[int]:
    yield from range(limit)
    raise AssertionError(f"the work has more than {limit} changes")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("again", [True, False])
def test_a_kill_at_any_change_of_an_attachment_is_repaired(
    nic_driver: DriverHarness, networks: PrivateNetworks, again: bool
) -> None:
    """By the next sandbox of the pod, or by the end of the claim."""
    before = networks.node.state()
    configured = claim(ONE, config=EVERY_FIELD)
    killed = 0
    for changes in points():
        networks.add_pod("pod1")
        prepared = nic_driver.prepare(configured)
        work = calling("run", sandbox(nic_driver, "pod1"), nic_driver.node.node)
        if not killed_after(changes, nic_driver.node, networks, work):
            break
        killed += 1
        nic_driver.restart()
        if again:
            second = networks.add_pod("pod2")
            stop_sandbox(nic_driver, run_sandbox(nic_driver, "pod2"))
            assert second.names() == {"lo"}
        nic_driver.unprepare(prepared)
        wait_for_state(networks.node, before)
        nic_driver.assert_clean()
    assert killed > 15


@pytest.mark.timeout(300)
@pytest.mark.parametrize("hook", ["stop", "unprepare"])
def test_a_kill_at_any_change_of_a_return_is_repaired(
    nic_driver: DriverHarness, networks: PrivateNetworks, hook: str
) -> None:
    before = networks.node.state()
    configured = claim(ONE, config=EVERY_FIELD)
    killed = 0
    for changes in points():
        networks.add_pod("pod1")
        prepared = nic_driver.prepare(configured)
        work = calling(hook, run_sandbox(nic_driver, "pod1"), nic_driver.node.node)
        ended = not killed_after(changes, nic_driver.node, networks, work)
        nic_driver.restart()
        nic_driver.unprepare(prepared)
        wait_for_state(networks.node, before)
        nic_driver.assert_clean()
        if ended:
            break
        killed += 1
    assert killed > 10


@pytest.mark.timeout(300)
@pytest.mark.parametrize("hook", ["run", "stop", "unprepare"])
def test_a_kill_at_any_change_of_a_share_of_an_interface_is_repaired(
    dra_node: FakeNode, dra_driver: Any, networks: PrivateNetworks, hook: str
) -> None:
    settings = NicSettings(software=("veth",), protect=("wire*",), shared=("nic0",))
    made = partial(NicDriver, effects=dra_node.effects, open_namespace=networks.open)
    driver: DriverHarness = dra_driver(made, settings=settings)
    before = networks.node.state()
    killed = 0
    for changes in points():
        networks.add_pod("pod1")
        prepared = driver.prepare(claim(ONE, config=NicConfig(interface=EVERY_FIELD.interface)))
        pod = sandbox(driver, "pod1") if hook == "run" else run_sandbox(driver, "pod1")
        work = calling(hook, pod, dra_node.node)
        ended = not killed_after(changes, dra_node, networks, work, shared=("nic0",))
        driver.restart()
        driver.unprepare(prepared)
        wait_for_state(networks.node, before)
        driver.assert_clean()
        if ended:
            break
        killed += 1
    assert killed > 4


@pytest.mark.timeout(300)
@pytest.mark.parametrize("hook", ["run", "run again", "stop", "unprepare"])
def test_a_kill_at_any_change_of_an_interface_in_a_vrf_is_repaired(
    dra_node: FakeNode, dra_driver: Any, networks: PrivateNetworks, hook: str
) -> None:
    """By the end of the claim, or by another start in the same sandbox, whose VRF then goes with its interface."""
    without_vrf = NetworksWithoutVrf(networks)
    settings = NicSettings(software=("veth",), protect=("wire*",))
    made = partial(NicDriver, effects=dra_node.effects, open_namespace=without_vrf.open)
    driver: DriverHarness = dra_driver(made, settings=settings)
    before = networks.node.state()
    killed = left = 0
    for changes in points():
        first = networks.add_pod("pod1")
        prepared = driver.prepare(claim(ONE, config=IN_VRF))
        pod = sandbox(driver, "pod1") if hook.startswith("run") else run_sandbox(driver, "pod1")
        work = calling(hook, pod, dra_node.node)
        ended = not killed_after(changes, dra_node, without_vrf, work)
        driver.restart()
        if hook == "run again":
            made_again = run_sandbox(driver, "pod1")
            assert first.names() == {"lo", "net1", "red"}
            assert "master red" in first.ip("link show net1")
            assert "10.2.0.0/16 via 10.1.1.1 dev net1" in first.ip(f"route show table {TABLE}")
            stop_sandbox(driver, made_again)
        driver.unprepare(prepared)
        wait_for_state(networks.node, before)
        driver.assert_clean()
        assert first.names() <= {"lo", "red"}
        left += "red" in first.names()
        if ended:
            break
        killed += 1
    assert killed > 8
    assert left <= 1, "a VRF stays only after a kill between its start and its tag"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("hook", ["run", "run again", "stop", "unprepare"])
@pytest.mark.parametrize("kind", ["hardware, exclusive", "software, exclusive", "software, shared"])
def test_a_kill_at_any_change_of_an_rdma_device_is_repaired(
    dra_node: FakeNode, dra_driver: Any, networks: PrivateNetworks, kind: str, hook: str
) -> None:
    """Hardware moves in the exclusive mode; a device in software is removed and made again on its interface."""
    write_rdma_device(
        dra_node, "rxe0", "virtual/rdma", 0, interfaces=["nic0"], **({"parent": "nic0"} if "software" in kind else {})
    )
    rdma = RdmaKernel(networks.node, "rxe0", exclusive="exclusive" in kind)
    settings = NicSettings(software=("veth",), protect=("wire*",))
    made = partial(NicDriver, effects=dra_node.effects, open_namespace=networks.open, open_rdma=rdma.open)
    driver: DriverHarness = dra_driver(made, settings=settings)
    before = networks.node.state()
    killed = away = 0
    for changes in points():
        first = networks.add_pod("pod1")
        prepared = driver.prepare(claim(ONE, config=NicConfig(interface=InterfaceConfig(name="net1"))))
        pod = sandbox(driver, "pod1") if hook.startswith("run") else run_sandbox(driver, "pod1")
        work = calling(hook, pod, dra_node.node)
        ended = not killed_after(changes, dra_node, networks, work, rdma=rdma)
        away += rdma.names_in(networks.node) != {"rxe0"}
        driver.restart()
        if hook == "run again":
            made_again = run_sandbox(driver, "pod1")
            assert rdma.names_in(first) == {"rxe0"}
            assert "software" not in kind or rdma.on["rxe0"] == "net1"
            stop_sandbox(driver, made_again)
        driver.unprepare(prepared)
        assert rdma.names_in(networks.node) == {"rxe0"}
        assert "software" not in kind or rdma.on.get("rxe0", "nic0") == "nic0"
        wait_for_state(networks.node, before)
        driver.assert_clean()
        if ended:
            break
        killed += 1
    assert killed > 5
    assert away, "no kill has met the RDMA device away from the node"


@pytest.mark.timeout(30 + 10 * CYCLES)
def test_pods_with_two_interfaces_come_and_go_and_leave_the_node_as_it_was(
    nic_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    """Through the driver's NRI plugin and a container runtime that is simulated."""
    before = networks.node.state()
    with nic_driver.nri() as runtime:
        for number in range(1, CYCLES + 1):
            pod = networks.add_pod(f"sandbox-{number}")
            pod.ip("link set lo up", "link add eth0 type veth peer name peer0")  # others have the next indexes
            prepared = nic_driver.prepare(claim(BOTH))
            sandbox = runtime.run_pod(prepared)
            assert {"nic0", "nic1"} <= pod.names()
            sandbox.stop()
            sandbox.remove()
            nic_driver.unprepare(prepared)
            networks.end_pod(f"sandbox-{number}")
    wait_for_state(networks.node, before)
    nic_driver.assert_clean()
