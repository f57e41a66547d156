from __future__ import annotations

from dra_sdk.tools.scheduling.allocator import Allocated, Allocator, Inventory
from dra_sdk.tools.scheduling.cluster import schedule
from dra_sdk.tools.scheduling.cluster.amounts import Room
from dra_sdk.tools.scheduling.cluster.attempts import Attempts, Misfit
from dra_sdk.tools.scheduling.cluster.contenders import Contenders
from dra_sdk.tools.scheduling.cluster.core import Node
from dra_sdk.tools.scheduling.cluster.wishes import wish_of
from tests.tools.scheduling.cluster.objects import (
    claim,
    cluster,
    device_class,
    gpus,
    node,
    nodes_of,
    parsed,
    pod,
    template,
)

NODES = {each["metadata"]["name"]: (Node.model_validate(each), each) for each in map(node, "abc")}


def attempts():
    return Attempts(
        Allocator(Inventory([]), {"gpu": device_class()}), Allocated(), Room(each for each, _ in NODES.values())
    )


def wish():
    return wish_of(parsed(pod("p", claims=["x"])), {("default", "x"): claim("x")}, {"gpu": device_class()}, {})


def test_nodes_that_were_turned_down_are_not_tried_again():
    contenders = Contenders(NODES)
    assert [each.metadata.name for each, _ in contenders] == ["a", "b", "c"]
    contenders.turn_down("b", Misfit("cordoned"))
    contenders.turn_down("a", Misfit("claim x allocated elsewhere", ["x"]))
    assert [each.metadata.name for each, _ in contenders] == ["c"]
    assert list(contenders.elsewhere) == ["x"]


def test_reasons_are_counted_the_most_frequent_first():
    contenders = Contenders(NODES)
    contenders.turn_down("b", Misfit("cordoned"))
    contenders.turn_down("a", Misfit())
    contenders.turn_down("c", Misfit())
    expected = "0 of 3 nodes: no devices for claim x (2); cordoned (1)"
    assert contenders.summary(wish(), attempts()) == expected
    assert contenders.summary(wish(), attempts()) == expected
    assert Contenders({}).summary(wish(), attempts()) == "there are no nodes"


def test_many_pods_of_one_kind_look_at_each_full_node_once(monkeypatch):
    tried = []
    allocate = Allocator.allocate

    def counting(self, where, claims, allocated):
        tried.append(where["metadata"]["name"])
        return allocate(self, where, claims, allocated)

    monkeypatch.setattr(Allocator, "allocate", counting)
    names = [f"node-{number:03}" for number in range(100)]  # in smaller clusters every node is looked at each time
    pods = [pod(f"pod-{number:03}", templates=["one"]) for number in range(105)]
    outcome = schedule(cluster(*map(node, names), *(gpus(name, "gpu-0") for name in names), template("one"), *pods))
    assert sum(where is not None for where in nodes_of(outcome).values()) == 100
    assert len(tried) == 100 + 100  # once for each pod that fits, and once for each node when it is full
