from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.cluster import schedule
from dra_sdk.tools.scheduling.cluster.names import key_of
from dra_sdk.tools.scheduling.cluster.snapshot import Snapshot, plain_node
from dra_sdk.tools.scheduling.explain.subject import ExplainError, Subject, nodes_of, subject_of_claim, subject_of_pod
from tests.tools.scheduling.explain import situations
from tests.tools.scheduling.worlds import GPU, claim, exactly, given, gpus, obj, pod, world

KEY = ("default", "c")


def subject(snapshot: Snapshot) -> Subject:
    return subject_of_claim(schedule(snapshot), KEY)


def test_a_claim_without_a_pod():
    found = subject(situations.taken())
    assert found.pod is None
    assert found.obstacles(found.snapshot.nodes) == {}
    setting = found.setting(found.claims, found.snapshot.nodes)
    assert [each["metadata"]["name"] for each in setting.holders] == ["old-gpu-0", "old-gpu-1", "o"]


def test_a_claim_that_has_devices_is_looked_at_as_if_it_had_none():
    found = subject(world(gpus("n1"), claim("c", exactly("gpu", GPU))))
    setting = found.setting(found.claims, found.snapshot.nodes)
    assert "allocation" not in setting.claim["status"]
    assert setting.holders == ()


def test_a_pod_with_its_claims():
    found = subject(situations.together())
    assert found.pod is not None
    assert [key_of(each)[1] for each in found.claims] == ["a", "c"]


def test_obstacles():
    tainted = plain_node("n2") | {"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}}
    small = plain_node("n3") | {"status": {"allocatable": {"cpu": "1", "pods": "10"}}}
    wanting = pod("p", "c", "fixed")
    wanting["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "2"}
    fixed = given(claim("fixed", exactly("gpu", GPU)), ("gpu", GPU, "n1", "gpu-0"), node="n1", pod="q")
    found = subject(
        world(gpus("n1", 1), tainted, small, plain_node("n4"), fixed, claim("c", exactly("gpu", GPU)), wanting)
    )
    obstacles = found.obstacles(found.snapshot.nodes)
    assert obstacles == {
        "n2": "taint gpu:NoSchedule not tolerated",
        "n3": "not enough cpu",
        "n4": "claim fixed has its devices elsewhere",
    }


def test_what_no_node_can_fulfil():
    waiting = pod("p", "c", "missing")
    found = subject_of_pod(schedule(world(gpus("n1"), claim("c", exactly("gpu", GPU)), waiting)), ("default", "p"))
    assert found.refused == "claim missing: there is no ResourceClaim missing in namespace default"
    assert found.obstacles(found.snapshot.nodes) == {}


def test_claims_for_extended_resources():
    cls = obj("DeviceClass", "fast", spec={"extendedResourceName": "example.com/gpu"})
    wanting = pod("p")
    wanting["spec"]["containers"] = [{"name": "m", "resources": {"requests": {"example.com/gpu": "3"}}}]
    found = subject_of_pod(schedule(world(gpus("n1"), cls, wanting)), ("default", "p"))
    (made,) = found.claims
    assert made["metadata"]["generateName"] == "p-extended-resources-"


def test_nodes():
    snapshot = situations.taken()
    assert nodes_of(snapshot, None) == snapshot.nodes
    assert [each["metadata"]["name"] for each in nodes_of(snapshot, "n2")] == ["n2"]
    with pytest.raises(ExplainError):
        nodes_of(snapshot, "n3")
