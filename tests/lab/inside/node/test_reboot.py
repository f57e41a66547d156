"""Leaves a pod with a claim running, for the next boot of the machine: see `tests/lab/rebooted`."""

from __future__ import annotations

import json

from tests.cluster.driver_process import DriverUnderTest
from tests.lab import node_pods
from tests.lab.harness.node import Node
from tests.lab.rebooted import HELD


def test_a_pod_holds_a_claim_when_the_machine_is_turned_off(node: Node, cpus: DriverUnderTest) -> None:
    node_pods.create_claim(node, "held", 1)
    node_pods.run(node, "held", "held")
    given = node_pods.given_cpus(node, "held")
    assert len(given) == len(cpus.held()) == 1
    HELD.write_text(json.dumps(given))
