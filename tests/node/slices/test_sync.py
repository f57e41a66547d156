from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from dra_sdk.errors import ApiError, ConflictError, InvalidError, NotFoundError
from dra_sdk.kube.paths import resource_slices
from dra_sdk.node.slices.cache import Scope, SliceCache
from dra_sdk.node.slices.diff import Identity, Owner, diff
from dra_sdk.node.slices.sync import Stats, Writer
from dra_sdk.tools.simulator import statuses
from dra_sdk.tools.simulator.objects import Write
from tests.node.slices.conftest import DRIVER, NODE, Cluster

IDENTITY = Identity(DRIVER, "p", Owner(NODE, "uid"))


@pytest.fixture
def cache() -> SliceCache:
    return SliceCache()


@pytest.fixture
def stats() -> Stats:
    return Stats()


@pytest.fixture
def writer(cluster: Cluster, cache: SliceCache, stats: Stats) -> Writer:
    return Writer(cluster.client(), cache, stats)


def wanted(*names: str) -> list[dict[str, Any]]:
    return [{"nodeName": NODE, "devices": [{"name": name, "attributes": {"a": {"int": 1}}}]} for name in names]


def sync(writer: Writer, cache: SliceCache, slices: list[dict[str, Any]]) -> Any:
    return writer.carry_out(diff(cache.of_pool("p"), slices, IDENTITY), slices, "p")


def test_writes_are_counted_and_known_at_once(cluster: Cluster, writer: Writer, cache: SliceCache, stats: Stats):
    assert sync(writer, cache, wanted("a", "b")) is None
    sync(writer, cache, wanted("a", "x"))
    sync(writer, cache, wanted("a"))
    assert stats == Stats(creates=2, updates=2, deletes=1)
    assert diff(cache.of_pool("p"), wanted("a"), IDENTITY) == []
    assert cluster.names() == ["a"]


def test_a_slice_that_is_already_gone_is_deleted(cluster: Cluster, writer: Writer, cache: SliceCache):
    sync(writer, cache, wanted("a"))
    cluster.delete(cluster.slices()[0])
    sync(writer, cache, [])
    assert cache.pools() == set()


def test_a_changed_slice_is_not_deleted_unseen(cluster: Cluster, writer: Writer, cache: SliceCache):
    sync(writer, cache, wanted("a"))
    (item,) = cluster.slices()
    cluster.local.update("resourceslices", {**item, "metadata": {**item["metadata"], "labels": {"x": "y"}}})
    with pytest.raises(ConflictError):
        sync(writer, cache, [])
    sync(writer, cache, [])  # now we know it
    assert cluster.slices() == []


@pytest.mark.parametrize("slices", [[], wanted("b")])
def test_a_slice_that_is_another_now(cluster: Cluster, writer: Writer, cache: SliceCache, slices: list[dict[str, Any]]):
    sync(writer, cache, wanted("a"))
    (item,) = cluster.slices()
    cluster.delete(item)
    for field in ("uid", "resourceVersion", "creationTimestamp"):
        del item["metadata"][field]
    cluster.local.create("resourceslices", item)
    with pytest.raises(ConflictError):
        sync(writer, cache, deepcopy(slices))
    assert cache.of_pool("p")[0]["metadata"]["uid"] == cluster.slices()[0]["metadata"]["uid"]
    sync(writer, cache, deepcopy(slices))
    assert cluster.names() == [device["name"] for each in slices for device in each["devices"]]


def test_an_update_of_nothing(cluster: Cluster, writer: Writer, cache: SliceCache):
    sync(writer, cache, wanted("a"))
    cluster.delete(cluster.slices()[0])
    with pytest.raises(NotFoundError):
        sync(writer, cache, wanted("b"))
    assert cache.pools() == set()


def test_what_was_written_before_an_error_is_kept(cluster: Cluster, writer: Writer, cache: SliceCache, stats: Stats):
    created: list[str] = []

    def refuse_the_second(write: Write) -> None:
        created.append(write.verb)
        if len(created) == 2:
            raise statuses.internal_error("broken")

    cluster.server.store.admit.append(refuse_the_second)
    with pytest.raises(ApiError, match=r"500 InternalError: .*broken"):
        sync(writer, cache, wanted("a", "b"))
    cluster.server.store.admit.clear()
    assert stats.creates == 1
    sync(writer, cache, wanted("a", "b"))
    assert cluster.names() == ["a", "b"]
    assert len(cluster.slices()) == 2


def test_what_the_server_adds_is_accepted_in_silence(cluster: Cluster, writer: Writer, cache: SliceCache):
    cluster.server.store.admit.append(lambda write: write.object["spec"].update(newField=True))
    slices = wanted("a")
    assert sync(writer, cache, slices) is None
    assert slices[0]["newField"] is True
    assert diff(cache.of_pool("p"), slices, IDENTITY) == []


def test_what_the_server_drops_is_told_with_its_slice(cluster: Cluster, writer: Writer, cache: SliceCache):
    def drop(write: Write) -> None:
        for device in write.object["spec"]["devices"]:
            if device["name"] == "b":
                del device["attributes"]

    cluster.server.store.admit.append(drop)
    slices = wanted("a", "b")
    dropped = sync(writer, cache, slices)
    assert dropped.slices == [1]
    assert "device b: attributes" in str(dropped)
    assert diff(cache.of_pool("p"), slices, IDENTITY) == []


def test_the_cache_agrees_with_the_server(cluster: Cluster, writer: Writer, cache: SliceCache):
    sync(writer, cache, wanted("a", "b", "c"))
    listed = cluster.client().list(resource_slices())
    other = SliceCache()
    other.listed(Scope.NODE, listed["items"], listed["metadata"]["resourceVersion"])

    def plain(each: SliceCache) -> list[Any]:
        return sorted((item["metadata"]["name"], item["spec"]) for item in each.of_pool("p"))

    assert plain(cache) == plain(other)


@pytest.mark.parametrize("first", [False, True])
def test_a_refused_list_attribute_is_explained(cluster: Cluster, writer: Writer, cache: SliceCache, first: bool):
    """As a server does that drops the list first and checks then."""
    if first:
        sync(writer, cache, wanted("a"))

    def refuse(write: Write) -> None:
        raise statuses.invalid(write.resource, "", [("spec", "FieldValueInvalid", "exactly one value")])

    cluster.server.store.admit.append(refuse)
    slices = wanted("a")
    slices[0]["devices"][0]["attributes"] = {"numa": {"ints": [0, 1]}}
    with pytest.raises(InvalidError, match=r"exactly one value \(a server without .* DRAListTypeAttributes"):
        sync(writer, cache, slices)
