from __future__ import annotations

from dra_sdk.tools.scheduling.cluster import schedule
from dra_sdk.tools.scheduling.explain.allocation_problem import ScheduledCluster
from dra_sdk.tools.scheduling.explain.cluster_changes import (
    claims_deallocated,
    node_added,
    node_opened,
    pools_completed,
    taints_removed,
)
from dra_sdk.tools.scheduling.explain.node_inspection import inspect_nodes
from tests.tools.scheduling.clusters import GPU, obj
from tests.tools.scheduling.explain import situations
from tests.tools.scheduling.explain.situations import problem_of


def test_deallocated_claims():
    problem = problem_of("taken")
    first, second = inspect_nodes(problem, {})
    proposals = list(claims_deallocated(problem, first))
    assert [proposal.text for proposal in proposals] == [
        "claim old-gpu-0 releases its devices (gpu-0 on n1)",
        "claim old-gpu-1 releases its devices (gpu-1 on n1)",
        "claims old-gpu-0, old-gpu-1 release their devices (on n1)",
    ]
    assert [proposal.apply(problem).allocate_on(first.node).fits for proposal in proposals] == [False, False, True]
    assert [proposal.name for proposal in claims_deallocated(problem, second)] == ["o"]


def test_a_removed_taint():
    problem = problem_of("tainted")
    (proposal,) = taints_removed(inspect_nodes(problem, {})[0])
    assert proposal.apply(problem).allocate_on(problem.nodes[0]).fits
    assert not problem.allocate_on(problem.nodes[0]).fits


def test_a_removed_taint_of_a_rule():
    spec = {"deviceSelector": {"driver": GPU}, "taint": {"key": "x", "effect": "NoSchedule"}}
    rule = obj("DeviceTaintRule", "r", version="resource.k8s.io/v1beta2", spec=spec)
    problem = problem_of("taken").with_changes(allocated_claims=(), rules=(rule,))
    (inspection, _) = inspect_nodes(problem, {})
    assert [proposal.text for proposal in taints_removed(inspection)] == [
        "taint x:NoSchedule is removed from gpu-0, gpu-1 (on n1)"
    ]
    assert next(taints_removed(inspection)).apply(problem).allocate_on(inspection.node).fits


def test_a_completed_pool():
    problem = problem_of("incomplete")
    (inspection,) = inspect_nodes(problem, {})
    (proposal,) = pools_completed(problem, inspection)
    assert proposal.apply(problem).allocate_on(inspection.node).fits


def test_an_added_node():
    target = ScheduledCluster(schedule(situations.taken())).target_of_claim(("default", "c"))
    problem = target.problem(target.claims, target.snapshot.nodes)
    (proposal,) = node_added(target.snapshot, inspect_nodes(problem, {})[0])
    assert proposal.nodes[0]["metadata"]["name"] == "n1-new-1"
    assert proposal.apply(problem).allocate_on(proposal.nodes[0]).fits
    empty = target.snapshot.without("ResourceSlice", ("", "n1-gpu-0"))
    assert list(node_added(empty, inspect_nodes(problem, {})[0])) == []


def test_a_node_opened_for_the_pod():
    problem = problem_of("taken").with_changes(allocated_claims=())
    (inspection, _) = inspect_nodes(problem, {"n1": "cordoned"})
    (proposal,) = node_opened(inspection)
    assert proposal.text == "the pod is allowed on n1 (now: cordoned)"
    assert proposal.apply(problem).allocate_on(proposal.nodes[0]).fits


def test_a_pool_with_more_slices_than_it_says():
    taken = situations.taken()
    slices = [
        raw | {"spec": raw["spec"] | {"pool": raw["spec"]["pool"] | {"resourceSliceCount": 1}}} for raw in taken.slices
    ]
    second = slices[0] | {"metadata": {"name": "second"}, "spec": slices[0]["spec"] | {"devices": []}}
    problem = problem_of("taken").with_changes(slices=(*slices, second), allocated_claims=())
    (proposal,) = (proposal for node in inspect_nodes(problem, {}) for proposal in pools_completed(problem, node))
    assert proposal.text.startswith("all slices of pool ")
    assert proposal.text.endswith(" say that there are 2")
    assert proposal.apply(problem).allocate_on(proposal.nodes[0]).fits
