from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.node.slices.cache import Scope, SliceCache, select


def item(name: str, version: int, uid: str = "", *, pool: str = "p", node: str | None = "n") -> dict[str, Any]:
    metadata = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version), "managedFields": [{}]}
    return {"metadata": metadata, "spec": {"pool": {"name": pool}, **({"nodeName": node} if node else {})}}


def versions(cache: SliceCache, pool: str = "p") -> dict[str, str]:
    return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in cache.of_pool(pool)}


def test_slices_by_pool():
    cache = SliceCache()
    cache.listed(Scope.NODE, [item("a", 1), item("b", 2, pool="q")], "5")
    assert cache.pools() == {"p", "q"}
    assert versions(cache) == {"a": "1"}
    assert "managedFields" not in cache.of_pool("p")[0]["metadata"]


def test_an_event_older_than_our_write_is_ignored():
    cache = SliceCache()
    cache.put(item("a", 10))
    assert not cache.seen("MODIFIED", item("a", 9))
    assert versions(cache) == {"a": "10"}
    assert cache.seen("MODIFIED", item("a", 11))
    assert cache.seen("MODIFIED", item("a", 100))  # as numbers, not as text
    assert versions(cache) == {"a": "100"}


def test_the_event_of_our_write_is_no_news():
    cache = SliceCache()
    cache.put(item("a", 10))
    assert not cache.seen("ADDED", item("a", 10))
    assert cache.seen("ADDED", item("a", 10, uid="restored"))


def test_the_answer_to_a_write_may_come_after_its_events():
    cache = SliceCache()
    assert cache.seen("ADDED", item("a", 10))
    assert cache.seen("DELETED", item("a", 11))
    cache.put(item("a", 10))
    assert versions(cache) == {}


def test_late_events_do_not_bring_back_what_we_deleted():
    cache = SliceCache()
    cache.put(item("a", 10))
    cache.forget(item("a", 10))
    assert not cache.seen("ADDED", item("a", 10))
    assert not cache.seen("DELETED", item("a", 11))
    assert versions(cache) == {}
    assert cache.seen("ADDED", item("a", 12, uid="another"))
    assert not cache.seen("DELETED", item("a", 11))  # that of the older one


def test_a_list_replaces_its_scope_only():
    cache = SliceCache()
    cache.listed(Scope.NODE, [item("a", 1), item("b", 2)], "5")
    cache.listed(Scope.CLUSTER, [item("c", 3, node=None)], "5")
    cache.listed(Scope.NODE, [item("b", 6)], "7")
    assert versions(cache) == {"b": "6", "c": "3"}


def test_what_we_wrote_while_a_list_was_read_stays():
    cache = SliceCache()
    cache.put(item("before", 20))
    cache.before_list(Scope.NODE)
    cache.put(item("meanwhile", 30))
    cache.put(item("old", 5))
    cache.listed(Scope.NODE, [], "10")
    assert versions(cache) == {"meanwhile": "30"}


def test_two_lists_that_are_read_at_once_do_not_disturb_each_other():
    """As after a server has forgotten its history: both watches list again, while slices are written."""
    cache = SliceCache()
    cache.before_list(Scope.NODE)
    cache.put(item("meanwhile", 30))
    cache.before_list(Scope.CLUSTER)
    cache.listed(Scope.NODE, [], "10")
    cache.listed(Scope.CLUSTER, [], "40")
    assert versions(cache) == {"meanwhile": "30"}


def test_a_list_of_a_restored_server_counts_although_its_versions_are_lower():
    cache = SliceCache()
    cache.put(item("a", 900))
    cache.before_list(Scope.NODE)
    cache.listed(Scope.NODE, [item("a", 3, uid="restored")], "4")
    assert versions(cache) == {"a": "3"}


def test_lost():
    cache = SliceCache()
    cache.put(item("a", 1))
    assert cache.lost("a")
    assert not cache.lost("a")
    assert cache.seen("ADDED", item("a", 2))


def test_only_so_many_deletions_are_remembered():
    cache = SliceCache()
    for number in range(1001):
        cache.seen("DELETED", item(f"x{number}", 1))
    assert not cache.seen("ADDED", item("x1000", 1))
    assert not cache.seen("ADDED", item("x1", 1))
    assert cache.seen("ADDED", item("x0", 1))


def test_versions_that_are_no_numbers_do_not_order():
    cache = SliceCache()
    first, second = item("a", 1), item("a", 1)
    first["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"] = "zz", "aa"
    cache.put(first)
    assert cache.seen("MODIFIED", second)


def slice_of(driver: str = "d", node: str | None = None, owner: tuple[str, str] | None = None) -> dict[str, Any]:
    references = [{"kind": owner[0], "name": owner[1]}] if owner else None
    return {
        "metadata": {"ownerReferences": references},
        "spec": {"driver": driver, **({"nodeName": node} if node else {})},
    }


@pytest.mark.parametrize(
    ("scope", "node", "selector"),
    [
        (Scope.NODE, "n", "spec.driver=d,spec.nodeName=n"),
        (Scope.CLUSTER, "n", "spec.driver=d,spec.nodeName="),
        (Scope.CLUSTER, None, "spec.driver=d,spec.nodeName="),
    ],
)
def test_field_selector(scope: Scope, node: str | None, selector: str):
    assert select(scope, "d", node).field_selector == selector


def test_the_nodes_own():
    accepts = select(Scope.NODE, "d", "n").accepts
    assert accepts(slice_of(node="n"))
    assert not accepts(slice_of(node="m"))
    assert not accepts(slice_of(driver="x", node="n"))
    assert not accepts(slice_of(owner=("Node", "n")))


def test_what_several_nodes_see_belongs_to_its_owner():
    accepts = select(Scope.CLUSTER, "d", "n").accepts
    assert accepts(slice_of(owner=("Node", "n")))
    assert not accepts(slice_of(owner=("Node", "m")))
    assert not accepts(slice_of(owner=("Deployment", "n")))
    assert not accepts(slice_of())
    assert not accepts(slice_of(node="n", owner=("Node", "n")))


def test_a_driver_of_the_cluster_minds_all():
    accepts = select(Scope.CLUSTER, "d", None).accepts
    assert accepts(slice_of())
    assert not accepts(slice_of(node="n"))
    assert not accepts(slice_of(driver="x"))
