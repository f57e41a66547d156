"""What goes wrong during the run, each at a random moment while pods start and stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from dra_sdk.tools.simulator import Delay, FaultRule, Reject, Reset
from dra_sdk.tools.simulator.statuses import internal_error, too_many_requests, unavailable
from tests.endurance.node import DriverUnderTest, EnduranceNode

Fault = Callable[[EnduranceNode, Random], None]


def _kill(driver: DriverUnderTest, node: EnduranceNode) -> None:
    _replace(driver, node, kill=True)


def _restart(driver: DriverUnderTest, node: EnduranceNode) -> None:
    _replace(driver, node, kill=False)


def _replace(driver: DriverUnderTest, node: EnduranceNode, *, kill: bool) -> None:
    with driver.changing:
        node.end(driver, kill=kill)
        node.start(driver)
        node.wait_registered(driver)


def _restart_kubelet(node: EnduranceNode, _random: Random) -> None:
    with node.restarting:
        node.cluster.kubelet.restart()
    for each in node.drivers:
        with each.changing:
            node.wait_registered(each)


def _restart_runtime(node: EnduranceNode, _random: Random) -> None:
    with node.containers:
        node.runtime.stop()
        node.runtime.start()
    for each in node.drivers:
        with each.changing:
            node.wait_registered(each)


def _refuse_requests(node: EnduranceNode, random: Random) -> None:
    answers = (too_many_requests(1), unavailable(), internal_error("etcdserver: request timed out"))
    rule = FaultRule(Reject(random.choice(answers)), resource="resourceclaims", verb="get", times=random.randint(1, 4))
    node.cluster.server.faults.add(rule)


def _break_connections(node: EnduranceNode, random: Random) -> None:
    rule = FaultRule(Reset(after_serving=random.random() < 0.5), times=random.randint(1, 4))
    node.cluster.server.faults.add(rule)


def _slow_requests(node: EnduranceNode, random: Random) -> None:
    node.cluster.server.faults.add(FaultRule(Delay(0.2), resource="resourceclaims", times=random.randint(1, 8)))


def _lose_cdi_specs(node: EnduranceNode, random: Random) -> None:
    """The residents' specs of a driver are gone; the next call for their claims restores them."""
    driver = random.choice(node.drivers)
    with driver.changing:
        residents = {ref.uid for pod in node.residents for ref in pod.claims.values()}
        for path in node.spec_files(driver.driver):
            if any(uid in path.name for uid in residents):
                path.unlink(missing_ok=True)  # the temporary file of a spec that is being written
        node.sync_residents(driver.driver)


COMMON: Final[Mapping[str, tuple[Fault, int]]] = {
    "requests refused": (_refuse_requests, 250),
    "connections broken": (_break_connections, 250),
    "requests slow": (_slow_requests, 250),
    "CDI specs removed": (_lose_cdi_specs, 500),
    "kubelet restarted": (_restart_kubelet, 1000),
    "runtime restarted": (_restart_runtime, 1000),
}
"""By name: a fault, and after how many pods there is one on average."""
PROCESSES: Final[Mapping[str, Callable[[DriverUnderTest, EnduranceNode], None]]] = {
    "driver killed": _kill,
    "driver restarted": _restart,
}
"""What ends a driver's process: a few times in a run of any length, because only a long life shows a leak."""


def plan(pods: int, drivers: tuple[DriverUnderTest, ...], random: Random) -> list[tuple[int, str, Fault]]:
    """Which fault comes before which pod, in order."""
    found: list[tuple[int, str, Fault]] = []
    for name, (fault, every) in COMMON.items():
        found.extend((random.randrange(pods), name, fault) for _ in range(max(1, pods // every)))
    for driver in drivers:
        for share, (name, end) in zip((0.2, 0.6), PROCESSES.items(), strict=True):
            moment = int(pods * (share + 0.15 * random.random()))
            found.append((moment, f"{name}: {driver.name}", _on(driver, end)))
    return sorted(found, key=lambda each: each[0])


def _on(driver: DriverUnderTest, end: Callable[[DriverUnderTest, EnduranceNode], None]) -> Fault:
    return lambda node, _random: end(driver, node)
