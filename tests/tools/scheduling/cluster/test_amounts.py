from __future__ import annotations

from fractions import Fraction

import pytest

from dra_sdk.tools.scheduling.cluster.amounts import Room, pod_requests
from dra_sdk.tools.scheduling.cluster.core import Node
from tests.tools.scheduling.cluster.objects import node, parsed, pod


def container(sidecar=False, **requests):
    made = {"resources": {"requests": {key: str(value) for key, value in requests.items()}}}
    return made | {"restartPolicy": "Always"} if sidecar else made


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {}),
        ({"containers": [container(cpu=1, memory=2), container(cpu="500m")]}, {"cpu": Fraction(3, 2), "memory": 2}),
        ({"containers": [{"resources": {"limits": {"a.b/c": "2"}}}]}, {"a.b/c": 2}),
        ({"containers": [{"resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}]}, {"cpu": 1}),
        ({"containers": [container(cpu=1)], "initContainers": [container(cpu=3), container(cpu=2)]}, {"cpu": 3}),
        ({"containers": [container(cpu=1)], "initContainers": [container(True, cpu=2)]}, {"cpu": 3}),
        (
            {"containers": [container(cpu=1)], "initContainers": [container(True, cpu=2), container(cpu=4)]},
            {"cpu": 6},
        ),
        ({"containers": [container(cpu=1)], "overhead": {"cpu": "250m"}}, {"cpu": Fraction(5, 4)}),
        (
            {"containers": [container(cpu=1)], "resources": {"requests": {"cpu": "4", "a.b/c": "9"}}},
            {"cpu": 4},
        ),
    ],
)
def test_what_a_pod_requests(spec, expected):
    assert pod_requests(parsed(pod("p", **({"containers": []} | spec)))) == expected


def room(**allocatable):
    given = {key: str(value) for key, value in allocatable.items()}
    return Room([Node.model_validate(node("a", allocatable=given)), Node.model_validate(node("open"))])


def test_a_node_fills_up():
    found = room(cpu=2, memory="1Gi", pods=2)
    assert found.lacking("a", {"cpu": Fraction(2)}, ()) == []
    found.add("a", {"cpu": Fraction(3, 2)})
    assert found.lacking("a", {"cpu": Fraction(1), "memory": Fraction(2**30)}, ()) == ["cpu"]
    assert found.lacking("a", {"cpu": Fraction(1, 2)}, ()) == []
    found.add("a", {})
    assert found.lacking("a", {}, ()) == ["pods"]


def test_an_extended_resource_comes_from_a_device_plugin_or_elsewhere():
    found = room(**{"a.b/c": 1, "a.b/none": 0})
    assert found.provides("a", "a.b/c")
    assert not found.provides("a", "a.b/none")
    assert not found.provides("open", "a.b/c")
    assert found.lacking("a", {"a.b/c": Fraction(2)}, ()) == ["a.b/c"]
    assert found.lacking("a", {"a.b/c": Fraction(2)}, {"a.b/c"}) == []
    assert found.lacking("open", {"a.b/c": Fraction(1)}, ()) == ["a.b/c"]
    assert found.lacking("open", {"cpu": Fraction(1000)}, ()) == []
