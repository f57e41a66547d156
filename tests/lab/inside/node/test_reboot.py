"""Leaves two pods running, one with a claim, for the next boot of the machine: see `tests/lab/rebooted`."""

from __future__ import annotations

import json

from dra_sdk.hardware import parse_cpuset
from tests.lab import node_pods
from tests.lab.conftest import NodeDriver
from tests.lab.harness.node import Node
from tests.lab.rebooted import BESIDE, HELD, STATE


def test_a_pod_holds_a_claim_when_the_machine_is_turned_off(node: Node, cpus: NodeDriver) -> None:
    node_pods.create_claim(node, HELD, node_pods.cpus(2, node_pods.of_numa_node(1)))  # four CPUs
    node_pods.create(node, BESIDE)
    node_pods.create(node, HELD, HELD)
    node_pods.wait(node, BESIDE, HELD)
    told = node_pods.told_cpus(node, HELD)
    assert len(told) == len(cpus.held()) == 1
    assert [parse_cpuset(text) for text in told.values()] == [node_pods.given_cpus(node, HELD)]
    STATE.write_text(json.dumps(told))
