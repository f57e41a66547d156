from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.allocator import DeviceId
from dra_sdk.tools.scheduling.cluster.scheduling_cycle import schedule
from dra_sdk.tools.scheduling.cluster.snapshot import Snapshot, bare_node, object_key
from dra_sdk.tools.scheduling.explain.allocation_problem import (
    ExplainError,
    ExplainTarget,
    ScheduledCluster,
    select_nodes,
)
from tests.tools.scheduling.clusters import GPU, claim, cluster, exactly, gpus, obj, pod, with_devices
from tests.tools.scheduling.explain import situations
from tests.tools.scheduling.explain.situations import problem_of


def test_allocation_attempts():
    problem = problem_of("taken")
    assert not problem.allocate_on(problem.nodes[0]).fits
    assert problem.allocate_on(problem.nodes[1], [problem.allocated_claims[0]]).fits
    assert object_key(problem.claim) == ("default", "c")
    assert problem.parsed_claim.label == "default/c"


def test_errors_are_shortened():
    problem = problem_of("error")
    attempt = problem.allocate_on(problem.nodes[0])
    assert attempt.final
    assert attempt.error == "request gpu: selector 0 fails on gpu.nvidia.com/n1/gpu-0: no such key: memory"
    broken = gpus("n2")
    broken["spec"]["devices"].append(broken["spec"]["devices"][0])
    other = problem.with_changes(slices=(broken,)).allocate_on(bare_node("n2"))
    assert (other.fits, other.final) == (False, False)
    assert "duplicate device name gpu-0" in other.error


def test_an_attempt_stops_at_its_step_limit():
    problem = problem_of("taken").with_changes(allocated_claims=(), max_steps=1)
    attempt = problem.allocate_on(problem.nodes[0])
    assert (attempt.fits, attempt.given_up, attempt.final) == (False, True, True)
    assert attempt.error == "the search was given up after 1 steps, as kube-scheduler gives up after 10 s"


def test_unchanged_parts_of_a_problem_are_reused():
    problem = problem_of("taken")
    freed = problem.with_changes(allocated_claims=())
    assert freed.allocator is problem.allocator
    assert freed.allocated is not problem.allocated
    assert freed.allocate_on(problem.nodes[0]).fits
    more = problem.with_changes(slices=(*problem.slices, gpus("n3")))
    assert more.inventory is not problem.inventory
    assert more.selectors is problem.selectors
    assert more.allocate_on(bare_node("n3")).fits


def test_claims_by_device():
    problem = problem_of("taken")
    device = DeviceId("gpu.nvidia.com", "n2", "gpu-0")
    assert [object_key(holder)[1] for holder in problem.claims_by_device[device]] == ["o"]
    admin = with_devices(situations.claim("a", situations.exactly("x", "y")), ("x", *device), adminAccess=True)
    assert device not in problem.with_changes(allocated_claims=(admin,)).claims_by_device


KEY = ("default", "c")


def target_of(snapshot: Snapshot) -> ExplainTarget:
    return ScheduledCluster(schedule(snapshot)).target_of_claim(KEY)


def test_a_claim_without_a_pod():
    target = target_of(situations.taken())
    assert target.pod is None
    assert target.rejections(target.snapshot.nodes) == {}
    problem = target.problem(target.claims, target.snapshot.nodes)
    assert [holder["metadata"]["name"] for holder in problem.allocated_claims] == ["old-gpu-0", "old-gpu-1", "o"]


def test_an_allocated_claim_is_explained_as_if_it_had_no_devices():
    target = target_of(cluster(gpus("n1"), claim("c", exactly("gpu", GPU))))
    problem = target.problem(target.claims, target.snapshot.nodes)
    assert "allocation" not in problem.claim["status"]
    assert problem.allocated_claims == ()


def test_the_target_of_a_claim_has_all_claims_of_its_pod():
    target = target_of(situations.together())
    assert target.pod is not None
    assert [object_key(claim)[1] for claim in target.claims] == ["a", "c"]


def test_rejections_of_nodes():
    tainted = bare_node("n2") | {"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}}
    small = bare_node("n3") | {"status": {"allocatable": {"cpu": "1", "pods": "10"}}}
    wanting = pod("p", "c", "fixed")
    wanting["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "2"}
    fixed = with_devices(claim("fixed", exactly("gpu", GPU)), ("gpu", GPU, "n1", "gpu-0"), node="n1", pod="q")
    target = target_of(
        cluster(gpus("n1", 1), tainted, small, bare_node("n4"), fixed, claim("c", exactly("gpu", GPU)), wanting)
    )
    rejections = target.rejections(target.snapshot.nodes)
    assert rejections == {
        "n2": "taint gpu:NoSchedule not tolerated",
        "n3": "not enough cpu",
        "n4": "claim fixed allocated elsewhere",
    }


def test_an_unschedulable_pod():
    waiting = pod("p", "c", "missing")
    target = ScheduledCluster(schedule(cluster(gpus("n1"), claim("c", exactly("gpu", GPU)), waiting))).target_of_pod(
        ("default", "p")
    )
    assert target.unschedulable_reason == "claim missing: there is no ResourceClaim missing in namespace default"
    assert target.rejections(target.snapshot.nodes) == {}


def test_claims_for_extended_resources():
    cls = obj("DeviceClass", "fast", spec={"extendedResourceName": "example.com/gpu"})
    wanting = pod("p")
    wanting["spec"]["containers"] = [{"name": "m", "resources": {"requests": {"example.com/gpu": "3"}}}]
    target = ScheduledCluster(schedule(cluster(gpus("n1"), cls, wanting))).target_of_pod(("default", "p"))
    (made,) = target.claims
    assert made["metadata"]["generateName"] == "p-extended-resources-"


def test_selecting_nodes():
    snapshot = situations.taken()
    assert select_nodes(snapshot, None) == snapshot.nodes
    assert [node["metadata"]["name"] for node in select_nodes(snapshot, "n2")] == ["n2"]
    with pytest.raises(ExplainError):
        select_nodes(snapshot, "n3")
