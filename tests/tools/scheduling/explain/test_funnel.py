from __future__ import annotations

from dra_sdk.tools.scheduling.allocator import Inventory
from dra_sdk.tools.scheduling.explain.funnel import Funnel, Reason, name_of
from tests.tools.scheduling.worlds import GPU, gpus, plain_node, pool_slice


def funnel(count: int) -> Funnel:
    view = Inventory([gpus("n1", count)]).view(plain_node("n1"))
    return Funnel("n1", view.candidates)


def test_counts_and_reasons():
    made = funnel(4)
    made.apply("use", "", lambda each: [Reason("odd", each.id.device)] if each.id.device[-1] in "13" else [])
    made.apply("taint", "", lambda _each: [], silent=True)
    made.apply("selector", "selector 0", lambda _each: [])
    assert [(stage.kind, stage.kept) for stage in made.stages] == [("use", 2), ("selector", 2)]
    (drop,) = made.stages[0].drops
    assert (drop.reason, drop.count, drop.example, drop.details) == ("odd", 2, "gpu-1", ("gpu-1", "gpu-3"))
    assert [each.id.device for each in made.left] == ["gpu-0", "gpu-2"]


def test_one_device_may_fail_for_several_reasons_and_frequent_ones_come_first():
    made = funnel(2)
    made.apply("x", "", lambda each: [Reason("rare")] * (each.id.device == "gpu-0") + [Reason("common")])
    assert [(drop.reason, drop.count) for drop in made.stages[0].drops] == [("common", 2), ("rare", 1)]


def test_many_values_are_cut_short():
    made = funnel(8)
    made.apply(
        "x", "", lambda each: [Reason("same", "even" if each.id.device in {"gpu-0", "gpu-2"} else each.id.device)]
    )
    assert made.stages[0].drops[0].details == ("even (2 devices)", "gpu-1", "gpu-3", "gpu-4", "and 3 more")


def test_names():
    view = Inventory([pool_slice("rack", GPU, [{"name": "gpu-0"}], allNodes=True)]).view(plain_node("n1"))
    assert name_of(view.candidates[0], "n1") == "rack/gpu-0"
    assert name_of(view.candidates[0], "rack") == "gpu-0"
