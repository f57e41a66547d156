from __future__ import annotations

from dataclasses import replace
from functools import partial

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator import Inventory
from dra_sdk.tools.scheduling.allocator.pools import Candidate
from dra_sdk.tools.scheduling.cluster.snapshot import bare_node
from dra_sdk.tools.scheduling.explain.allocation_problem import AllocationProblem
from dra_sdk.tools.scheduling.explain.device_checks import (
    CheckFailure,
    DeviceCheck,
    DeviceChecks,
    DeviceFunnel,
    short_device_name,
)
from tests.tools.scheduling.allocator.build import NEWER
from tests.tools.scheduling.clusters import GPU, NUMA, claim, device, exactly, gpus, pool_slice, with_devices
from tests.tools.scheduling.explain.situations import problem_of


def funnel(count: int) -> DeviceFunnel:
    view = Inventory([gpus("n1", count)]).node_devices(bare_node("n1"))
    return DeviceFunnel("n1", view.candidates)


def test_counts_and_reasons():
    made = funnel(4)
    made.apply("use", lambda gpu: [CheckFailure("odd", gpu.id.device)] if gpu.id.device[-1] in "13" else [])
    made.apply("taint", lambda _gpu: [])
    made.apply("selector", lambda _gpu: [], "selector 0", always=True)
    assert [(stage.kind, stage.kept) for stage in made.stages] == [("use", 2), ("selector", 2)]
    (drop,) = made.stages[0].drops
    assert (drop.reason, drop.count, drop.example, drop.details) == ("odd", 2, "gpu-1", ("gpu-1", "gpu-3"))
    assert [candidate.id.device for candidate in made.left] == ["gpu-0", "gpu-2"]


def test_a_device_may_fail_for_several_reasons_the_frequent_ones_first():
    made = funnel(2)
    made.apply("x", lambda gpu: [CheckFailure("rare")] * (gpu.id.device == "gpu-0") + [CheckFailure("common")])
    assert [(drop.reason, drop.count) for drop in made.stages[0].drops] == [("common", 2), ("rare", 1)]


def test_many_values_are_truncated():
    made = funnel(8)
    made.apply(
        "x", lambda gpu: [CheckFailure("same", "even" if gpu.id.device in {"gpu-0", "gpu-2"} else gpu.id.device)]
    )
    assert made.stages[0].drops[0].details == ("even (2 devices)", "gpu-1", "gpu-3", "gpu-4", "and 3 more")


def test_short_device_names():
    view = Inventory([pool_slice("rack", GPU, [{"name": "gpu-0"}], allNodes=True)]).node_devices(bare_node("n1"))
    assert short_device_name(view.candidates[0], "n1") == "rack/gpu-0"
    assert short_device_name(view.candidates[0], "rack") == "gpu-0"


def candidates(problem: AllocationProblem) -> list[Candidate]:
    return list(problem.inventory.node_devices(problem.nodes[0]).candidates)


def checks(problem: AllocationProblem, node: JSON | None = None) -> DeviceChecks:
    """The checks for the first request of the claim, on the first node unless another one is given."""
    return DeviceChecks(problem, next(iter(problem.parsed_claim.requests)), node or problem.nodes[0])


def details(problem: AllocationProblem, check: DeviceCheck) -> list[tuple[str, str]]:
    return [(failure.text, failure.detail) for candidate in candidates(problem) for failure in check(candidate)]


def test_taints():
    problem = problem_of("tainted")
    assert details(problem, checks(problem).taints_tolerated)[0][0] == (
        "with taint gpu.nvidia.com/xid=79:NoExecute, which is not tolerated"
    )
    tolerating = claim("c", exactly("gpu", "gpu.nvidia.com", tolerations=[{"operator": "Exists"}]))
    assert details(problem, checks(problem.with_changes(claims=(tolerating,))).taints_tolerated) == []


def test_devices_in_use():
    problem = problem_of("taken")
    assert details(problem, checks(problem).not_in_use) == [
        ("in use", "gpu-0 by old-gpu-0"), ("in use", "gpu-1 by old-gpu-1"),
    ]  # fmt: skip
    assert details(problem, checks(problem, bare_node("elsewhere")).not_in_use)[0][1] == "n1/gpu-0 by old-gpu-0"


def test_capacity_of_shared_devices():
    problem = problem_of("shared")
    assert details(problem, checks(problem).capacity_available) == [
        ("short of capacity dra.cpu/cpu: 16 needed", "12 of 32 left, the rest is held by old-0"),
        ("short of capacity dra.cpu/cpu: 16 needed", "8 of 32 left, the rest is held by old-1"),
    ]


def capacity_failures(problem: AllocationProblem, **amounts: str) -> list[tuple[str, str]]:
    wanted = claim("c", exactly("cpu", "cpu", capacity={"requests": amounts}))
    changed = problem.with_changes(claims=(wanted,), allocated_claims=())
    return details(changed, checks(changed).capacity_available)


def test_capacity_that_is_missing_or_not_allowed():
    policy = {"default": "1", "validValues": ["1", "2"]}
    numa = device("numa-0", {NUMA: 0}, allowMultipleAllocations=True) | {
        "capacity": {"cpu": {"value": "8", "requestPolicy": policy}}
    }
    problem = problem_of("shared").with_changes(slices=(pool_slice("n1", "dra.cpu", [numa]),))
    assert capacity_failures(problem, memory="1Gi") == [("without capacity memory", "it has cpu")]
    assert capacity_failures(problem, cpu="3") == [("whose request policy does not allow cpu: 3", "")]
    assert capacity_failures(problem, cpu="2") == []
    plain = problem_of("shared").with_changes(
        slices=(pool_slice("n1", "dra.cpu", [device("a", capacity={"m": "1Gi"})]),)
    )
    assert capacity_failures(plain, m="2Gi") == [("short of capacity m: 2Gi needed", "the device has 1Gi")]


def test_counters():
    problem = problem_of("counters")
    whole = [detail for detail in details(problem, checks(problem).counters_available) if "40192Mi needed" in detail[1]]
    assert whole == [
        (
            "short of counter memory",
            (f"gpu-{index}-counter-set: 40192Mi needed, 35328Mi of 40192Mi left; "
            f"gpu-{index}-mig-1g-5gb-6 is held by old-gpu-{index}-mig-1g-5gb-6"),
        )
        for index in (0, 1)
    ]  # fmt: skip
    none = problem.with_changes(allocated_claims=())
    assert details(none, checks(none).counters_available) == []


def test_attributes_of_constraints():
    problem = problem_of("taken")
    missing = partial(checks(problem).attribute_present, {"matchAttribute": "a.example.com/x"})
    assert details(problem, missing)[0] == ("without attribute a.example.com/x", "")
    assert details(problem, partial(checks(problem).attribute_present, {"distinctAttribute": NUMA})) == []
    lists = pool_slice("n1", "gpu.nvidia.com", [device("a", {"x.example.com/y": ["a", "b"]})])
    other = problem.with_changes(slices=(lists,), features=replace(problem.features, list_attributes=True))
    constraint = {"matchAttribute": "x.example.com/y"}
    assert details(other, partial(checks(other).attribute_present, constraint)) == []
    off = other.with_changes(features=replace(other.features, list_attributes=False))
    ((text, _),) = details(off, partial(checks(off).attribute_present, constraint))
    assert "has a type that cannot be compared" in text


def test_attributes_that_a_request_derives():
    problem = problem_of("taken").with_changes(features=NEWER)
    name = "x.example.com/y"
    for expression, expected in (
        ("device.driver", []),
        ("1 / 0", [(f"for which attribute {name} cannot be derived", "division by zero")]),
    ):
        fields = {"derivedAttributes": [{"name": name, "expression": expression}]}
        wanted = claim("c", exactly("gpu", "gpu.nvidia.com", **fields))
        changed = problem.with_changes(claims=(wanted,))
        failures = details(changed, partial(checks(changed).attribute_present, {"matchAttribute": name}))
        assert [(text, why in detail) for (text, detail), (_, why) in zip(failures, expected * 2, strict=True)] == [
            (text, True) for text, _ in expected * 2
        ]


def test_capacity_of_unused_devices():
    problem = problem_of("shared")
    assert details(problem, checks(problem).capacity_available)
    assert details(problem, checks(problem).capacity_when_unused) == []


def test_capacity_request_with_an_error():
    policy = {"default": "1", "validRange": {"min": "1", "step": "1"}}
    numa = device("numa-0", {NUMA: 0}, allowMultipleAllocations=True) | {
        "capacity": {"cpu": {"value": "8", "requestPolicy": policy}}
    }
    problem = problem_of("shared").with_changes(slices=(pool_slice("n1", "dra.cpu", [numa]),), features=NEWER)
    ((text, detail),) = capacity_failures(problem, cpu="1000500u")
    assert "1000500u is not a multiple of 1m" in text
    assert not detail


def test_compatibility_groups():
    consumed = {"counterSet": "set", "counters": {"memory": {"value": "1"}}}
    names = {"a": ["x"], "b": ["y"]}
    devices = [
        device(name) | {"consumesCounters": [consumed | {"compatibilityGroups": groups}]}
        for name, groups in names.items()
    ]
    counters = {"name": "set", "counters": {"memory": {"value": "9"}}}
    slices = (
        pool_slice("n1", "d.example.com", devices, count=2),
        pool_slice("n1", "d.example.com", [], name="sets", count=2, sharedCounters=[counters]),
    )
    held = with_devices(claim("old", exactly("x", "c")), ("x", "d.example.com", "n1", "a"), node="n1")
    problem = problem_of("taken").with_changes(slices=slices, features=NEWER, allocated_claims=(held,))
    assert details(problem, checks(problem).groups_compatible) == [
        ("that are not compatible with devices in use on the same counter set", "")
    ]
    none = problem.with_changes(allocated_claims=())
    assert details(none, checks(none).groups_compatible) == []


def test_skipped_operations():
    slices = (pool_slice("n1", "d.example.com", [device("a")], skipNodeOperations=["*"]),)
    problem = problem_of("taken").with_changes(slices=slices, features=NEWER)
    (node, *_) = problem.nodes
    ((text, _),) = details(problem, checks(problem, node).operations_supported)
    assert text == "that skip *, but the node does not declare DRAOptionalNodeOperations in status.declaredFeatures"
    able = node | {"status": {"declaredFeatures": ["DRAOptionalNodeOperations"]}}
    assert details(problem, checks(problem, able).operations_supported) == []
    off = problem.with_changes(features=replace(NEWER, optional_node_operations=False))
    ((text, _),) = details(off, checks(off, able).operations_supported)
    assert text == "that skip *, but the feature DRAOptionalNodeOperations is off"
