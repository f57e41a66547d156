from __future__ import annotations

from dra_sdk.tools.scheduling.allocator import Features
from dra_sdk.tools.scheduling.explain.requests import Looked, Looker, constraints_on, short
from dra_sdk.tools.scheduling.explain.setting import Setting
from dra_sdk.tools.scheduling.explain.summary import of_request
from tests.tools.scheduling.allocator.build import NEWER
from tests.tools.scheduling.explain.test_setting import setting
from tests.tools.scheduling.worlds import GPU, claim, exactly, given, gpus, plain_node, pool_slice, world


def looked(made: Setting) -> list[Looked]:
    return [Looker(made).look(made.plan, each, made.nodes[0]) for each in made.plan.requests]


def kept(found: Looked) -> list[tuple[str, str, int]]:
    return [(stage.kind, stage.label, stage.kept) for stage in found.report.stages]


def test_the_selectors_of_class_and_request():
    (found,) = looked(setting("memory"))
    assert kept(found) == [("class", "selector 0", 4), ("class", "selector 1", 4), ("selector", "selector 0", 0)]
    assert (found.report.devices, found.report.left, found.report.enough) == (6, 0, False)
    assert len(found.nearest) == len(found.of_class) == 4


def test_each_kind_of_test():
    assert kept(looked(setting("taken"))[0])[-1] == ("use", "", 0)
    assert kept(looked(setting("tainted"))[0])[-1] == ("taint", "", 0)
    assert kept(looked(setting("counters"))[0])[-1] == ("counters", "", 0)
    assert kept(looked(setting("shared"))[0])[-1] == ("capacity", "", 0)
    (found,) = looked(setting("incomplete"))
    assert kept(found)[0] == ("pool", "", 0)
    assert found.report.devices == 2, "devices of a pool that cannot be used are there all the same"


def test_an_attribute_that_a_constraint_needs():
    wanted = claim("c", exactly("gpu", GPU), constraints=[{"matchAttribute": "rack.example.com/rail"}])
    made = setting("taken").changed(claims=(wanted,), holders=())
    (found,) = looked(made)
    assert kept(found)[-1] == ("attribute", "constraint 0", 0)
    assert found.report.stages[-1].drops[0].reason == "without attribute rack.example.com/rail"


def test_constraints_name_requests_and_alternatives():
    both = [
        {"matchAttribute": "a/b"},
        {"matchAttribute": "a/b", "requests": ["x/y"]},
        {"distinctAttribute": "a/b", "requests": ["gpu"]},
    ]
    made = setting("taken").changed(claims=(claim("c", exactly("gpu", GPU), constraints=both),))
    assert [index for index, _ in constraints_on(made.plan, next(iter(made.plan.requests)))] == [0, 2]


def test_all_devices():
    (found,) = looked(setting("everything"))
    assert (found.report.needed, len(found.matching), found.report.left, found.report.enough) == (None, 4, 3, False)


def test_all_devices_are_not_to_be_had_while_one_is_full_since_1_37():
    asked = claim("c", exactly("cpu", "cpu", allocationMode="All", capacity={"requests": {"dra.cpu/cpu": "16"}}))
    made = setting("shared").changed(claims=(asked,))
    (before,) = looked(made.changed(features=Features()))
    assert kept(before)[-1] == ("capacity", "", 0)
    (found,) = looked(made.changed(features=NEWER))
    assert kept(found)[-1] == ("room", "", 0)
    assert len(found.matching) == 2
    assert of_request(found.report).startswith("request cpu: of 2 devices none has enough capacity left")


def test_an_alternative_is_enough():
    many = {"name": "a", "deviceClassName": "nic.example.com", "count": 9}
    request = {"name": "r", "firstAvailable": [many, {"name": "b", "deviceClassName": GPU}]}
    made = setting("memory").changed(claims=(claim("c", request),))
    assert short(made.plan.groups, looked(made)) == []
    both = made.changed(nodes=made.nodes[-1:], slices=())
    assert [each.report.request for each in short(both.plan.groups, looked(both))] == ["r/a", "r/b"]


def test_devices_for_other_nodes_are_not_in_reach():
    mixed = [{"name": "near", "nodeName": "n1"}, {"name": "far", "nodeName": "n2"}, {"name": "net", "allNodes": True}]
    made = setting("taken").changed(
        nodes=(plain_node("n1"),),
        slices=(pool_slice("p", GPU, mixed, perDeviceNodeSelection=True), gpus("n3")),
        holders=(),
    )
    assert looked(made)[0].report.devices == 2


def test_admin_access_does_not_care_who_holds_a_device():
    old = given(claim("o", exactly("x", GPU)), ("x", GPU, "n1", "gpu-0"))
    made = setting("taken").changed(
        holders=(old,), claims=(claim("c", exactly("gpu", GPU, allocationMode="All", adminAccess=True)),)
    )
    assert looked(made)[0].report.left == 2
    assert world(gpus("n1")).nodes
