from __future__ import annotations

from dra_sdk.tools.scheduling.cluster import Snapshot
from dra_sdk.tools.scheduling.cluster.snapshot import (
    claim_name_base,
    display_name,
    generated_name,
    generated_uid,
    object_key,
    unused_name,
    value_at,
)
from tests.tools.scheduling.cluster.objects import claim, cluster, gpus, node, pod


def test_a_generated_name_has_five_more_characters_and_is_always_the_same():
    name = generated_name("web-gpu-", "default", "uid-1")
    assert name == generated_name("web-gpu-", "default", "uid-1")
    assert name != generated_name("web-gpu-", "default", "uid-2")
    base, suffix = name[:8], name[8:]
    assert base == "web-gpu-"
    assert len(suffix) == 5
    assert set(suffix) <= set("bcdfghjklmnpqrstvwxz2456789")


def test_a_generated_name_is_never_longer_than_63_characters():
    assert len(generated_name("x" * 200)) == 63


def test_an_unused_name_is_the_first_one_that_is_free():
    first = generated_name("p-", "uid")
    assert unused_name("p-", set().__contains__, "uid") == first
    taken = {first}
    for _ in range(3):
        taken.add(unused_name("p-", taken.__contains__, "uid"))
    assert len(taken) == 4
    assert all(name.startswith("p-") and len(name) == 7 for name in taken)


def test_the_base_of_a_claim_name_is_truncated_proportionally():
    assert claim_name_base("web", "gpu") == "web-gpu-"
    base = claim_name_base("p" * 60, "c" * 20)
    assert base == "p" * (60 * 57 // 82) + "-" + "c" * (20 * 57 // 82)
    assert len(base) <= 57


def test_the_default_namespace_is_omitted():
    assert display_name(("default", "a")) == "a"
    assert display_name(("", "a")) == "a"
    assert display_name(("team", "a")) == "team/a"


def test_key_and_uid():
    assert object_key({"metadata": {"name": "a", "namespace": "b"}}) == ("b", "a")
    assert object_key({"metadata": {"name": "a"}}) == ("", "a")
    assert generated_uid("Pod", ("a", "b")) != generated_uid("Pod", ("a", "c"))


def test_adding_objects_returns_a_new_snapshot():
    before = Snapshot().with_objects([claim("a"), claim("b")])
    changed = claim("a") | {"status": {"x": 1}}
    after = before.with_objects([changed, claim("c"), node("n")])
    assert [claim["metadata"]["name"] for claim in after.claims] == ["a", "b", "c"]
    assert after.claims_by_key["default", "a"] is changed
    assert "status" not in before.claims_by_key["default", "a"]
    assert before.nodes == ()
    assert [claim["metadata"]["name"] for claim in after.without("ResourceClaim", ("default", "b")).claims] == [
        "a",
        "c",
    ]


def test_missing_nodes_are_created_from_names_in_slices_devices_and_pods():
    per_device = gpus("x", "d", nodeName=None, perDeviceNodeSelection=True)
    per_device["spec"]["devices"][0]["nodeName"] = "node-c"
    snapshot = cluster(
        node("node-a"), gpus("node-a", "g"), gpus("node-b", "g"), per_device, pod("p", nodeName="node-d")
    )
    found, missing = snapshot.with_missing_nodes()
    assert missing == ["node-b", "node-c", "node-d"]
    assert list(found.nodes_by_name) == ["node-a", "node-b", "node-c", "node-d"]
    assert found.nodes_by_name["node-b"]["metadata"]["labels"] == {"kubernetes.io/hostname": "node-b"}
    assert found.with_missing_nodes() == (found, [])


def test_values_at_paths():
    assert value_at({"a": [{"b": 1}]}, ("a", 0, "b")) == 1
    assert value_at({"a": [{"b": 1}]}, ("a", 1, "b")) is None
    assert value_at({"a": "text"}, ("a", "b")) is None
