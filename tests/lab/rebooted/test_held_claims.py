"""The node boots while a pod holds a claim: the pod runs again on the same CPUs, which nobody else gets."""

from __future__ import annotations

import json

from dra_sdk.hardware import parse_cpuset
from tests.lab import node_pods
from tests.lab.conftest import NodeDriver
from tests.lab.harness.node import LIMIT, Node
from tests.lab.rebooted import BESIDE, HELD, STATE

ALL = frozenset(range(8))
OTHER = "other"


def test_the_pod_runs_on_its_cpus_again_and_others_do_not_get_them(node: Node, cpus: NodeDriver) -> None:
    before = json.loads(STATE.read_text())
    for name in (BESIDE, HELD):
        node.wait_until(lambda name=name: restarts(node, name), f"the container of pod {name} runs again", LIMIT)  # type: ignore[misc]
        node.wait_pod(name, timeout=LIMIT)
    assert cpus.answered("prepare"), "the kubelet has not prepared the claim again"
    assert node_pods.told_cpus(node, HELD) == before
    (held,) = map(parse_cpuset, before.values())
    assert node_pods.given_cpus(node, HELD) == held
    cpus.wait(lambda: node_pods.given_cpus(node, BESIDE) == ALL - held)

    node_pods.create_claim(node, OTHER, node_pods.cpus(2, node_pods.of_numa_node(1)))
    node_pods.run(node, OTHER, OTHER)
    other = node_pods.given_cpus(node, OTHER)
    assert len(other) == 2
    assert not other & held
    cpus.wait(lambda: node_pods.given_cpus(node, BESIDE) == ALL - held - other)

    node_pods.delete(node, BESIDE, HELD, OTHER)
    node_pods.delete_claims(node, HELD, OTHER)
    cpus.wait(lambda: not cpus.held() and not cpus.specs())


def restarts(node: Node, name: str) -> int:
    """Returns how often the container of a pod was restarted, as soon as it runs."""
    (status,) = node.api.get(f"{node_pods.PODS}/{name}")["status"]["containerStatuses"]
    return int(status["restartCount"]) if "running" in status["state"] else 0
