from __future__ import annotations

from dra_sdk.tools.scheduling.allocator import SchedulerFeatures
from dra_sdk.tools.scheduling.cluster.snapshot import bare_node
from dra_sdk.tools.scheduling.explain.device_checks import CheckFailure
from dra_sdk.tools.scheduling.explain.explanation_text import request_reason
from dra_sdk.tools.scheduling.explain.request_inspection import (
    InspectedSelector,
    RequestInspection,
    constraints_on,
    failing_requests,
)
from tests.tools.scheduling.allocator.build import NEWER
from tests.tools.scheduling.clusters import GPU, claim, cluster, exactly, gpus, pool_slice, with_devices
from tests.tools.scheduling.explain.situations import A100, BIG, inspected, problem_of

LOOP = "lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0))"


def reasons(expression: str) -> tuple[CheckFailure, ...]:
    problem = problem_of("memory").with_changes(claims=(claim("c", exactly("gpu", GPU, expression)),))
    (request,) = problem.parsed_claim.requests
    selector = InspectedSelector(problem, request, 2)
    assert (selector.kind, selector.number, selector.location) == ("selector", 0, "request gpu, selector 0")
    candidate = next(
        candidate
        for candidate in problem.inventory.node_devices(problem.nodes[0]).candidates
        if candidate.id.driver == GPU
    )
    assert selector(candidate) is selector(candidate), "evaluated once"
    return selector(candidate)


def test_a_device_that_passes():
    assert reasons(A100) == ()


def test_each_conjunct_that_fails():
    model = 'device.attributes["gpu.nvidia.com"].productName == "H100"'
    assert reasons(f"{BIG} && {A100} && {model}") == (
        CheckFailure(f"fail {BIG}", "memory is 40Gi", (1, 1)),
        CheckFailure(f"fail {model}", 'productName is "A100"', (1, len(BIG) + len(A100) + 9)),
    )


def test_a_conjunct_that_cannot_be_evaluated():
    (failure,) = reasons(f'{A100} &&\n device.attributes["gpu.nvidia.com"].modl == "x"')
    expected = 'on which device.attributes["gpu.nvidia.com"].modl == "x" cannot be evaluated: no such key: modl'
    assert failure.text == expected
    assert failure.position == (2, 37)


def test_a_conjunct_that_costs_too_much():
    (failure,) = reasons(f"{A100} && {LOOP}")
    assert failure.text == f"fail {LOOP}: actual cost limit exceeded: more than 1000000"
    assert failure.position == (1, len(A100) + 5)


def test_an_invalid_expression():
    (failure,) = reasons("device.foo == 1")
    assert failure.text == "fail because the expression is invalid: line 1, column 7: undefined field 'foo'"


def test_selectors_of_the_class():
    problem = problem_of("memory")
    (request,) = problem.parsed_claim.requests
    selector = InspectedSelector(problem, request, 1)
    assert (selector.kind, selector.number, selector.location) == ("class", 1, "class gpu.nvidia.com, selector 1")


def kept(inspection: RequestInspection) -> list[tuple[str, str, int]]:
    return [(stage.kind, stage.label, stage.kept) for stage in inspection.report.stages]


def test_the_selectors_of_class_and_request():
    (gpu,) = inspected(problem_of("memory"))
    assert kept(gpu) == [("class", "selector 0", 4), ("class", "selector 1", 4), ("selector", "selector 0", 0)]
    assert (gpu.report.devices, gpu.report.left, gpu.report.enough) == (6, 0, False)
    assert len(gpu.closest) == len(gpu.passing_class) == 4


def test_each_kind_of_check():
    assert kept(inspected(problem_of("taken"))[0])[-1] == ("use", "", 0)
    assert kept(inspected(problem_of("tainted"))[0])[-1] == ("taint", "", 0)
    assert kept(inspected(problem_of("counters"))[0])[-1] == ("counters", "", 0)
    assert kept(inspected(problem_of("shared"))[0])[-1] == ("capacity", "", 0)
    (gpu,) = inspected(problem_of("incomplete"))
    assert kept(gpu)[0] == ("pool", "", 0)
    assert gpu.report.devices == 2, "devices of an incomplete pool are counted"


def test_an_attribute_that_a_constraint_needs():
    wanted = claim("c", exactly("gpu", GPU), constraints=[{"matchAttribute": "rack.example.com/rail"}])
    problem = problem_of("taken").with_changes(claims=(wanted,), allocated_claims=())
    (gpu,) = inspected(problem)
    assert kept(gpu)[-1] == ("attribute", "constraint 0", 0)
    assert gpu.report.stages[-1].drops[0].reason == "without attribute rack.example.com/rail"


def test_constraints_name_requests_and_alternatives():
    both = [
        {"matchAttribute": "a/b"},
        {"matchAttribute": "a/b", "requests": ["x/y"]},
        {"distinctAttribute": "a/b", "requests": ["gpu"]},
    ]
    problem = problem_of("taken").with_changes(claims=(claim("c", exactly("gpu", GPU), constraints=both),))
    assert [index for index, _ in constraints_on(problem.parsed_claim, next(iter(problem.parsed_claim.requests)))] == [
        0,
        2,
    ]


def test_all_devices():
    (gpu,) = inspected(problem_of("everything"))
    assert (gpu.report.needed, len(gpu.matching), gpu.report.left, gpu.report.enough) == (None, 4, 3, False)


def test_since_1_37_mode_all_fails_while_a_device_is_full():
    wanted = claim("c", exactly("cpu", "cpu", allocationMode="All", capacity={"requests": {"dra.cpu/cpu": "16"}}))
    problem = problem_of("shared").with_changes(claims=(wanted,))
    (before,) = inspected(problem.with_changes(features=SchedulerFeatures()))
    assert kept(before)[-1] == ("capacity", "", 0)
    (gpu,) = inspected(problem.with_changes(features=NEWER))
    assert kept(gpu)[-1] == ("available", "", 0)
    assert len(gpu.matching) == 2
    assert request_reason(gpu.report).startswith("request cpu: none of 2 devices has enough capacity left")


def test_an_alternative_is_enough():
    many = {"name": "a", "deviceClassName": "nic.example.com", "count": 9}
    request = {"name": "r", "firstAvailable": [many, {"name": "b", "deviceClassName": GPU}]}
    problem = problem_of("memory").with_changes(claims=(claim("c", request),))
    assert failing_requests(problem.parsed_claim.groups, inspected(problem)) == []
    both = problem.with_changes(nodes=problem.nodes[-1:], slices=())
    assert [
        inspection.report.request for inspection in failing_requests(both.parsed_claim.groups, inspected(both))
    ] == [
        "r/a",
        "r/b",
    ]


def test_devices_of_other_nodes_are_not_accessible():
    mixed = [{"name": "near", "nodeName": "n1"}, {"name": "far", "nodeName": "n2"}, {"name": "net", "allNodes": True}]
    problem = problem_of("taken").with_changes(
        nodes=(bare_node("n1"),),
        slices=(pool_slice("p", GPU, mixed, perDeviceNodeSelection=True), gpus("n3")),
        allocated_claims=(),
    )
    assert inspected(problem)[0].report.devices == 2


def test_admin_access_ignores_devices_in_use():
    old = with_devices(claim("o", exactly("x", GPU)), ("x", GPU, "n1", "gpu-0"))
    problem = problem_of("taken").with_changes(
        allocated_claims=(old,), claims=(claim("c", exactly("gpu", GPU, allocationMode="All", adminAccess=True)),)
    )
    assert inspected(problem)[0].report.left == 2
    assert cluster(gpus("n1")).nodes
