"""The node boots while a pod holds a claim: the pod runs again with the same CPUs, which nobody else gets."""

from __future__ import annotations

import json

from tests.cluster.driver_process import DriverUnderTest
from tests.lab import node_pods
from tests.lab.harness.node import LIMIT, Node
from tests.lab.rebooted import HELD


def test_the_pod_has_its_cpus_again_and_others_do_not_get_them(node: Node, cpus: DriverUnderTest) -> None:
    before = json.loads(HELD.read_text())
    node.wait_until(lambda: restarts(node, "held"), "the container of pod held runs again", LIMIT)
    node.wait_pod("held", timeout=LIMIT)
    assert node_pods.given_cpus(node, "held") == before

    (held,) = (int(number) for number in before.values())
    same_node = f'device.attributes["resource.kubernetes.io"].numaNode == {held // 2}'
    node_pods.create_claim(node, "other", 1, same_node)
    node_pods.run(node, "other", "other")
    (other,) = node_pods.given_cpus(node, "other").values()
    assert int(other) == held ^ 1  # the other thread of its core is the only other CPU of the NUMA node

    node_pods.delete(node, "held", "other")
    node_pods.delete_claims(node, "held", "other")
    cpus.wait(lambda: not cpus.held() and not cpus.specs(), LIMIT)


def restarts(node: Node, name: str) -> int:
    """Returns how often the container of a pod was restarted, as soon as it runs."""
    (status,) = node.api.get(f"{node_pods.PODS}/{name}")["status"]["containerStatuses"]
    return int(status["restartCount"]) if "running" in status["state"] else 0
