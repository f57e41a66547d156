from __future__ import annotations

from dra_sdk.tools.scheduling.cluster import schedule
from dra_sdk.tools.scheduling.cluster.snapshot import bare_node
from dra_sdk.tools.scheduling.explain.allocation_problem import AllocationProblem, ScheduledCluster
from dra_sdk.tools.scheduling.explain.explanation import Conflict
from dra_sdk.tools.scheduling.explain.node_inspection import (
    NodeInspection,
    find_conflicts,
    group_nodes,
    inspect_nodes,
    merged_report,
)
from tests.tools.scheduling.clusters import (
    GPU,
    NIC,
    NUMA,
    ROOT,
    claim,
    cluster,
    device,
    exactly,
    gpus,
    nics,
    pool_slice,
    with_devices,
)
from tests.tools.scheduling.explain.situations import BIG, inspected, problem_of


def found(problem: AllocationProblem) -> tuple[Conflict, ...]:
    return find_conflicts(problem, problem.nodes[0], inspected(problem))


def test_the_values_of_a_constraint():
    (conflict,) = found(problem_of("aligned"))
    assert conflict.kind == "constraint"
    assert conflict.details == ("gpu: pci0000:02, pci0000:03", "nic: pci0000:00, pci0000:01")


def test_values_are_counted():
    wanted = claim("c", exactly("gpu", GPU, count=3), constraints=[{"matchAttribute": NUMA}])
    problem = problem_of("taken").with_changes(claims=(wanted,), allocated_claims=(), slices=(gpus("n1", 4),))
    (conflict,) = found(problem)
    assert conflict.details == ("gpu: 0 (2 devices), 1 (2 devices); 3 needed",)


def test_a_conflict_of_distinct_attribute():
    wanted = claim("c", exactly("gpu", GPU, count=3), constraints=[{"distinctAttribute": NUMA}])
    (conflict,) = found(
        problem_of("taken").with_changes(claims=(wanted,), allocated_claims=(), slices=(gpus("n1", 4),))
    )
    assert conflict.text == f"constraint 0 (distinctAttribute {NUMA}): there are not enough different values"


def test_two_constraints_that_conflict_only_together():
    constraints = [{"matchAttribute": ROOT}, {"distinctAttribute": ROOT}]
    wanted = claim("c", exactly("gpu", GPU), exactly("nic", NIC), constraints=constraints)
    problem = problem_of("aligned").with_changes(
        claims=(wanted,), allocated_claims=(), slices=(gpus("n1", 4), nics("n1", 4))
    )
    # Each constraint can be met without the other.
    assert [conflict.text.partition(" (")[0] for conflict in found(problem)] == ["constraint 0", "constraint 1"]
    assert all(
        conflict.text.endswith(": cannot be met together with the other constraints") for conflict in found(problem)
    )
    double = claim("c", exactly("gpu", GPU, count=3), constraints=[{"matchAttribute": NUMA}, {"matchAttribute": NUMA}])
    both = problem.with_changes(claims=(double,))
    assert [conflict.text.partition(" (")[0] for conflict in found(both)] == ["constraint 0", "constraint 1"]


def test_counters():
    (conflict,) = found(problem_of("counters_together"))
    assert conflict.kind == "counters"
    assert conflict.details[0] == (
        "a: a device such as gpu-0-mig-4g-20gb-0 takes memory 19968Mi, multiprocessors 56, copy-engines 4"
    )
    assert conflict.details[-1] == "gpu-0-counter-set has memory 40192Mi, multiprocessors 98, copy-engines 7 left"


def test_requests_that_need_the_same_devices():
    problem = problem_of("taken").with_changes(
        claims=(claim("c", exactly("a", GPU), exactly("b", GPU, count=2)),), allocated_claims=()
    )
    assert found(problem)[0].text == "requests a, b need 3 devices together, 2 are left for them"


def test_requests_that_need_the_same_capacity():
    amount = {"requests": {"cpu": "5"}}
    shared = device("numa-0", {}, {"cpu": "8"}, allowMultipleAllocations=True)
    wanted = claim("c", exactly("a", "cpu", capacity=amount), exactly("b", "cpu", capacity=amount))
    problem = problem_of("shared").with_changes(
        claims=(wanted,), allocated_claims=(), slices=(pool_slice("n1", "dra.cpu", [shared]),)
    )
    assert found(problem) == (
        Conflict("capacity", "requests a, b each find enough capacity, but not all of them together"),
    )


def groups(*objects: object) -> list[list[str]]:
    target = ScheduledCluster(schedule(cluster(*objects))).target_of_claim(("default", "c"))  # type: ignore[arg-type]
    return names(group_nodes(inspect_nodes(target.problem(target.claims, target.snapshot.nodes), {})))


def names(groups: list[list[NodeInspection]]) -> list[list[str]]:
    return [[inspection.report.example for inspection in group] for group in groups]


def test_nodes_with_the_same_findings_are_grouped():
    problem = problem_of("memory")
    groups = group_nodes(inspect_nodes(problem, {}))
    assert names(groups) == [["a0", "a1", "a2", "a3", "a4"], ["l0", "l1"]], "it does not matter that a0 has NICs too"
    assert merged_report(groups[1]).nodes == ("l0", "l1")


def test_the_node_with_most_devices_left_comes_first():
    old = [with_devices(claim(f"o{node}{gpu}", exactly("x", GPU)), ("x", GPU, f"n{node}", f"gpu-{gpu}"))
           for node, count in enumerate((3, 1, 2)) for gpu in range(count)]  # fmt: skip
    fleet = [gpus(f"n{index}", 4) for index in range(3)]
    assert groups(fleet, old, claim("c", exactly("gpu", GPU, count=4))) == [["n1", "n2", "n0"]]


def test_groups_are_coarser_if_there_would_be_many():
    fleet = [gpus(f"n{index}", memory=f"{index + 1}Gi") for index in range(9)]
    assert groups(fleet, claim("c", exactly("gpu", GPU, BIG))) == [[f"n{index}" for index in range(9)]]
    few = [gpus(f"n{index}", memory=f"{index + 1}Gi") for index in range(3)]
    assert groups(few, claim("c", exactly("gpu", GPU, BIG))) == [["n0"], ["n1"], ["n2"]]


def test_errors_come_first_and_rejections_last():
    good = pool_slice("n2", GPU, [device("gpu-0", {"type": "gpu", "fast": True})])
    wanted = claim("c", exactly("gpu", GPU, 'device.attributes["gpu.nvidia.com"].fast', count=2))
    target = ScheduledCluster(schedule(cluster(gpus("n0"), good, gpus("n1"), wanted))).target_of_claim(("default", "c"))
    inspections = inspect_nodes(target.problem(target.claims, target.snapshot.nodes), {"n0": "cordoned"})
    assert names(group_nodes(inspections)) == [["n0"], ["n1"], ["n2"]] or names(group_nodes(inspections))[0] == ["n1"]
    assert (
        next(inspection for inspection in inspections if inspection.report.example == "n0").report.rejection
        == "cordoned"
    )


def test_a_search_that_is_given_up_still_has_a_conflict():
    wanted = claim("c", exactly("a", GPU, count=2), exactly("b", GPU, count=3))
    problem = problem_of("taken").with_changes(
        claims=(wanted,), allocated_claims=(), slices=(gpus("n1", 4),), max_steps=3
    )
    report = inspect_nodes(problem, {})[0].report
    assert report.error == "the search was given up after 3 steps, as kube-scheduler gives up after 10 s"
    assert report.conflicts[0].text == "requests a, b need 5 devices together, 4 are left for them"


def test_no_more_nodes_are_inspected_after_three_that_are_given_up():
    wanted = claim("c", exactly("a", GPU, count=2), exactly("b", GPU, count=3))
    slices = tuple(gpus(f"n{number}", 4) for number in range(6))
    nodes = tuple(bare_node(f"n{number}") for number in range(6))
    problem = problem_of("taken").with_changes(claims=(wanted,), allocated_claims=(), slices=slices, nodes=nodes)
    assert len(inspect_nodes(problem, {})) == 6
    inspections = inspect_nodes(problem.with_changes(max_steps=3), {})
    assert [inspection.given_up for inspection in inspections] == [True, True, True]


def test_devices_of_other_claims_of_the_pod_are_in_use():
    problem = problem_of("taken").with_changes(allocated_claims=())
    both = problem.with_changes(claims=(claim("other", exactly("gpu", GPU)), *problem.claims))
    (first, _) = inspect_nodes(both, {})
    assert first.report.requests[0].left == 1
    greedy = problem.with_changes(claims=(claim("other", exactly("gpu", GPU, count=3)), *problem.claims))
    (first, _) = inspect_nodes(greedy, {})
    assert first.report.rejection == "no devices for claim other"
