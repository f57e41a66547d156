"""The driver is killed before every change on the way to a pod and back, and a pod starts a hundred times."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import pytest
from dra_driver_nic import NicConfig, NicDriver, NicSettings
from dra_driver_nic.links import Namespace, Network
from dra_driver_nic.testing import EVERY_FIELD, PrivateNetworks, run_sandbox, sandbox, stop_sandbox, wait_for_state

from dra_sdk import PodSandbox
from dra_sdk.testing import DriverHarness, FakeNode, claim, request

pytest_plugins = ["dra_sdk.testing.plugin"]
T = TypeVar("T")
ONE = request("nic", where='device.attributes["dra.net"].ifName == "nic0"')
BOTH = request("nics", count=2)


class KillingNetwork:
    """A network whose process is killed before or after the change with some number, counted in a file."""

    def __init__(self, network: Network, kill: Kill) -> None:
        self._network, self._kill = network, kill

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._network, name)
        changes = name.startswith(("add_", "remove_", "set_")) or name in {"change", "move"}
        return partial(self._kill.change, method) if changes else method


class KillingNamespace:
    def __init__(self, namespace: Namespace, kill: Kill) -> None:
        self._namespace, self._kill = namespace, kill
        self.handle, self.close = namespace.handle, namespace.close

    def run(self, work: Callable[[Any], T]) -> T:
        return self._namespace.run(lambda network: work(KillingNetwork(network, self._kill)))


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
    networks: PrivateNetworks,
    work: Callable[[NicDriver], None],
    shared: tuple[str, ...] = (),
) -> bool:
    """Run a new driver in a child process that is killed after some changes; False if it ended before."""
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
                )
            )
            status = 0
        except BaseException:  # noqa: BLE001 (the child must never continue as its parent)
            traceback.print_exc()
        finally:
            os._exit(status)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert ended in {0, -signal.SIGKILL}
    return ended != 0


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
        pod = sandbox(nic_driver, "pod1")

        def work(driver: NicDriver, pod: PodSandbox = pod) -> None:
            driver.dra_run_pod_sandbox(pod, nic_driver.node.node)

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
        pod = run_sandbox(nic_driver, "pod1")

        def work(driver: NicDriver, pod: PodSandbox = pod) -> None:
            if hook == "stop":
                driver.dra_stop_pod_sandbox(pod, nic_driver.node.node)
            else:
                driver.dra_unprepare(pod.claims[0], nic_driver.node.node)

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

        def work(killed: NicDriver, pod: PodSandbox = pod) -> None:
            if hook == "run":
                killed.dra_run_pod_sandbox(pod, dra_node.node)
            elif hook == "stop":
                killed.dra_stop_pod_sandbox(pod, dra_node.node)
            else:
                killed.dra_unprepare(pod.claims[0], dra_node.node)

        ended = not killed_after(changes, dra_node, networks, work, ("nic0",))
        driver.restart()
        driver.unprepare(prepared)
        wait_for_state(networks.node, before)
        driver.assert_clean()
        if ended:
            break
        killed += 1
    assert killed > 4


@pytest.mark.timeout(300)
def test_a_hundred_cycles_with_two_interfaces_leave_the_node_as_it_was(
    nic_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    before = networks.node.state()
    for number in range(100):
        pod = networks.add_pod("pod")
        pod.ip("link set lo up", "link add eth0 type veth peer name peer0")  # other interfaces have the next indexes
        prepared = nic_driver.prepare(claim(BOTH))
        made = run_sandbox(nic_driver, "pod", f"uid-{number}")
        assert {"nic0", "nic1"} <= pod.names()
        stop_sandbox(nic_driver, made)
        nic_driver.unprepare(prepared)
        networks.end_pod("pod")
    wait_for_state(networks.node, before)
