from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from dra_sdk.errors import ApiError, ConflictError, InvalidError, NotFoundError
from dra_sdk.kube.paths import resource_slices
from dra_sdk.node.slices.cache import Scope, SliceCache
from dra_sdk.node.slices.diff import Owner, PoolIdentity, diff
from dra_sdk.node.slices.gates import dropped_fields
from dra_sdk.node.slices.writer import DroppedFieldsError, SliceWriter, Stats, with_hint
from dra_sdk.tools.simulator import statuses
from dra_sdk.tools.simulator.objects import Write
from tests.node.slices.conftest import DRIVER, NODE, Cluster

IDENTITY = PoolIdentity(DRIVER, "p", Owner(NODE, "uid"))


@pytest.fixture
def cache() -> SliceCache:
    return SliceCache()


@pytest.fixture
def stats() -> Stats:
    return Stats()


@pytest.fixture
def writer(cluster: Cluster, cache: SliceCache, stats: Stats) -> SliceWriter:
    return SliceWriter(cluster.client(), cache, stats)


def wanted(*names: str) -> list[dict[str, Any]]:
    return [{"nodeName": NODE, "devices": [{"name": name, "attributes": {"a": {"int": 1}}}]} for name in names]


def sync(writer: SliceWriter, cache: SliceCache, slices: list[dict[str, Any]]) -> Any:
    """Return the specs as the server keeps them, and what it has dropped."""
    return writer.apply(diff(cache.of_pool("p"), slices, IDENTITY), slices, "p")


def test_writes_are_counted_and_known_at_once(cluster: Cluster, writer: SliceWriter, cache: SliceCache, stats: Stats):
    assert sync(writer, cache, wanted("a", "b"))[1] is None
    sync(writer, cache, wanted("a", "x"))
    sync(writer, cache, wanted("a"))
    assert stats == Stats(creates=2, updates=2, deletes=1)
    assert diff(cache.of_pool("p"), wanted("a"), IDENTITY) == []
    assert cluster.names() == ["a"]


def test_a_slice_that_is_already_gone_is_deleted(cluster: Cluster, writer: SliceWriter, cache: SliceCache):
    sync(writer, cache, wanted("a"))
    cluster.delete(cluster.slices()[0])
    sync(writer, cache, [])
    assert cache.pools() == set()


def test_a_changed_slice_is_not_deleted_unseen(cluster: Cluster, writer: SliceWriter, cache: SliceCache):
    sync(writer, cache, wanted("a"))
    (item,) = cluster.slices()
    cluster.local.update("resourceslices", {**item, "metadata": {**item["metadata"], "labels": {"x": "y"}}})
    with pytest.raises(ConflictError):
        sync(writer, cache, [])
    sync(writer, cache, [])  # now we know it
    assert cluster.slices() == []


@pytest.mark.parametrize("slices", [[], wanted("b")])
def test_a_slice_that_is_another_now(
    cluster: Cluster, writer: SliceWriter, cache: SliceCache, slices: list[dict[str, Any]]
):
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


def test_an_update_of_nothing(cluster: Cluster, writer: SliceWriter, cache: SliceCache):
    sync(writer, cache, wanted("a"))
    cluster.delete(cluster.slices()[0])
    with pytest.raises(NotFoundError):
        sync(writer, cache, wanted("b"))
    assert cache.pools() == set()


def test_what_was_written_before_an_error_is_kept(
    cluster: Cluster, writer: SliceWriter, cache: SliceCache, stats: Stats
):
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


def test_what_the_server_adds_is_accepted_in_silence(cluster: Cluster, writer: SliceWriter, cache: SliceCache):
    cluster.server.store.admit.append(lambda write: write.object["spec"].update(newField=True))
    slices, dropped = sync(writer, cache, wanted("a"))
    assert dropped is None
    assert slices[0]["newField"] is True
    assert diff(cache.of_pool("p"), slices, IDENTITY) == []


def test_what_the_server_drops_is_told_with_its_slice(cluster: Cluster, writer: SliceWriter, cache: SliceCache):
    def drop(write: Write) -> None:
        for device in write.object["spec"]["devices"]:
            if device["name"] == "b":
                del device["attributes"]

    cluster.server.store.admit.append(drop)
    slices, dropped = sync(writer, cache, wanted("a", "b"))
    assert dropped.slices == [1]
    assert "device b: attributes" in str(dropped)
    assert diff(cache.of_pool("p"), slices, IDENTITY) == []


def test_the_cache_agrees_with_the_server(cluster: Cluster, writer: SliceWriter, cache: SliceCache):
    sync(writer, cache, wanted("a", "b", "c"))
    listed = cluster.client().list(resource_slices())
    other = SliceCache()
    other.listed(Scope.NODE, listed["items"], listed["metadata"]["resourceVersion"])

    def plain(each: SliceCache) -> list[Any]:
        return sorted((item["metadata"]["name"], item["spec"]) for item in each.of_pool("p"))

    assert plain(cache) == plain(other)


@pytest.mark.parametrize("first", [False, True])
def test_a_refused_list_attribute_is_explained(cluster: Cluster, writer: SliceWriter, cache: SliceCache, first: bool):
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


FULL: dict[str, Any] = {
    "name": "d",
    "taints": [{"key": "k", "effect": "None"}],
    "consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "1"}}}],
    "bindsToNode": True,
    "bindingConditions": ["a"],
    "bindingFailureConditions": ["b"],
    "allowMultipleAllocations": True,
    "allNodes": True,
    "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1"}},
    "attributes": {"list": {"ints": [1]}, "plain": {"int": 1}},
    "capacity": {"m": {"value": "1", "requestPolicy": {"default": "1"}}},
    "madeUp": 1,
}


@pytest.mark.parametrize(
    ("field", "gate"),
    [
        ("taints", "DRADeviceTaints"),
        ("consumesCounters", "DRAPartitionableDevices"),
        ("allNodes", "DRAPartitionableDevices"),
        ("bindsToNode", "DRADeviceBindingConditions"),
        ("bindingConditions", "DRADeviceBindingConditions"),
        ("bindingFailureConditions", "DRADeviceBindingConditions"),
        ("allowMultipleAllocations", "DRAConsumableCapacity"),
        ("nodeAllocatableResourceMappings", "DRANodeAllocatableResources"),
        ("madeUp", "unknown"),
    ],
)
def test_a_field_of_a_device(field: str, gate: str):
    stored = {key: value for key, value in FULL.items() if key != field}
    assert dropped_fields({"devices": [FULL]}, {"devices": [stored]}) == [(f"device d: {field}", gate)]


def test_parts_of_fields():
    stored = {**FULL, "attributes": {"list": {}, "plain": {"int": 1}}, "capacity": {"m": {"value": "1"}}}
    assert dropped_fields({"devices": [FULL]}, {"devices": [stored]}) == [
        ("device d: attributes list", "DRAListTypeAttributes"),
        ("device d: capacity m", "DRAConsumableCapacity"),
    ]


@pytest.mark.parametrize("field", ["perDeviceNodeSelection", "sharedCounters"])
def test_a_field_of_the_slice(field: str):
    sent = {"perDeviceNodeSelection": True, "sharedCounters": [{"name": "s", "counters": {"c": {"value": "1"}}}]}
    stored = {key: value for key, value in sent.items() if key != field}
    assert dropped_fields(sent, stored) == [(field, "DRAPartitionableDevices")]


def test_what_thousands_of_devices_lose_is_told_in_a_few_words():
    lost = [(f"device d{i}: taints", "DRADeviceTaints") for i in range(64)]
    error = DroppedFieldsError("p", dict.fromkeys(range(80), lost))
    assert len(str(error)) < 4000
    assert "device d9: taints and 54 more; slice 1: " in str(error)
    assert str(error).endswith(
        "and so on in 70 more slices; probably these feature gates are disabled: DRADeviceTaints"
    )
    assert error.slices == list(range(80))


def test_a_whole_device():
    assert dropped_fields({"devices": [FULL]}, {}) == [("device d", "unknown")]


def test_more_than_was_sent_is_no_loss():
    stored = {"devices": [{**FULL, "future": 1}], "future": 2}
    assert dropped_fields({"devices": [FULL], "pool": {"name": "p"}}, stored) == []


def test_the_error_names_slices_fields_and_gates():
    error = DroppedFieldsError("p", {1: [("device d: taints", "DRADeviceTaints")], 0: [("sharedCounters", "X")]})
    assert (error.slices, error.gates) == ([0, 1], ["DRADeviceTaints", "X"])
    assert str(error) == (
        "pool p: slice 0: the API server dropped sharedCounters; slice 1: the API server dropped device d: taints; "
        "probably these feature gates are disabled: DRADeviceTaints, X"
    )


def test_list_attributes_that_are_refused_are_explained():
    error = InvalidError("exactly one value must be specified", status=422, reason="Invalid")
    plain = {"devices": [{"name": "d", "attributes": {"a": {"int": 1}}}, {"name": "e"}], "nodeName": "n"}
    assert with_hint(error, plain) is error
    told = with_hint(error, {"devices": [FULL]})
    assert str(told).startswith("exactly one value must be specified (")
    assert "DRAListTypeAttributes" in str(told)
    assert (told.status, told.reason) == (422, "Invalid")


def test_counter_sets_elsewhere_are_explained():
    words = "must reference a counterSet defined in the ResourceSlice sharedCounters"
    told = with_hint(InvalidError(f"spec.devices[0]: {words}", status=422, reason="Invalid"), {"devices": [FULL]})
    assert str(told).endswith(
        "(1.34 needs counter sets in one slice with the devices that use them, at most 32 counters and 128 devices)"
    )
