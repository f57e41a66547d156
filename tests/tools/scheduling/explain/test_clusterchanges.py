from __future__ import annotations

from dra_sdk.tools.scheduling.cluster import schedule
from dra_sdk.tools.scheduling.explain import clusterchanges
from dra_sdk.tools.scheduling.explain.reports import see
from dra_sdk.tools.scheduling.explain.subject import subject_of_claim
from tests.tools.scheduling.explain import situations
from tests.tools.scheduling.explain.test_setting import setting
from tests.tools.scheduling.worlds import GPU, obj


def test_claims_that_end():
    made = setting("taken")
    first, second = see(made, {})
    found = list(clusterchanges.freed(made, first))
    assert [each.text for each in found] == [
        "claim old-gpu-0 gives its devices back (gpu-0 on n1)",
        "claim old-gpu-1 gives its devices back (gpu-1 on n1)",
        "claims old-gpu-0, old-gpu-1 give their devices back (on n1)",
    ]
    assert [each.apply(made).attempt(first.node).fits for each in found] == [False, False, True]
    assert [each.name for each in clusterchanges.freed(made, second)] == ["o"]


def test_a_taint_that_goes():
    made = setting("tainted")
    (found,) = clusterchanges.untainted(see(made, {})[0])
    assert found.apply(made).attempt(made.nodes[0]).fits
    assert not made.attempt(made.nodes[0]).fits


def test_a_taint_of_a_rule():
    spec = {"deviceSelector": {"driver": GPU}, "taint": {"key": "x", "effect": "NoSchedule"}}
    rule = obj("DeviceTaintRule", "r", version="resource.k8s.io/v1beta2", spec=spec)
    made = setting("taken").changed(holders=(), rules=(rule,))
    (seen, _) = see(made, {})
    assert [each.text for each in clusterchanges.untainted(seen)] == [
        "taint x:NoSchedule is taken from gpu-0, gpu-1 (on n1)"
    ]
    assert next(clusterchanges.untainted(seen)).apply(made).attempt(seen.node).fits


def test_slices_that_come():
    made = setting("incomplete")
    (seen,) = see(made, {})
    (found,) = clusterchanges.completed(made, seen)
    assert found.apply(made).attempt(seen.node).fits


def test_a_node_that_comes():
    subject = subject_of_claim(schedule(situations.taken()), ("default", "c"))
    made = subject.setting(subject.claims, subject.snapshot.nodes)
    (found,) = clusterchanges.another_node(subject.snapshot, see(made, {})[0])
    assert found.nodes[0]["metadata"]["name"] == "n1-new-1"
    assert found.apply(made).attempt(found.nodes[0]).fits
    empty = subject.snapshot.without("ResourceSlice", ("", "n1-gpu-0"))
    assert list(clusterchanges.another_node(empty, see(made, {})[0])) == []


def test_a_pod_that_may_run_there():
    made = setting("taken").changed(holders=())
    (seen, _) = see(made, {"n1": "cordoned"})
    (found,) = clusterchanges.opened(seen, "p")
    assert found.text == "pod p can run on n1 (now: cordoned)"
    assert found.apply(made).attempt(found.nodes[0]).fits
