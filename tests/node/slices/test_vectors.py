"""The upstream slice controller's own test table, run through `diff`, `SliceWriter` and, where it splits alike, `plan`.

Not applicable: TestControllerUpdateReconcilePoolWithNameValidation. It checks the option ReconcilePoolWithName, with
which a Go driver says which one pool of a shared driver name is its own; here slices for several nodes are told apart
by their owner, the Node, so that there is no such option to be used wrongly.
"""

from __future__ import annotations

import json
import re
from copy import deepcopy
from datetime import datetime
from typing import Any

import pytest

from dra_sdk.errors import InvalidObjectError
from dra_sdk.model.device import CounterConsumption, CounterSet, Device, DeviceTaint, NodeSelection, ResourcePool
from dra_sdk.node.slices.cache import SliceCache
from dra_sdk.node.slices.diff import Owner, PoolIdentity, decode_index, diff, encode_index, index_length
from dra_sdk.node.slices.plan import PoolPlan, plan
from dra_sdk.node.slices.writer import DroppedFieldsError, SliceWriter, Stats
from tests import vectors
from tests.vectors import ROOT

JSON = dict[str, Any]

VECTORS = ROOT / "dra-lib-cases"
NOT_APPLICABLE = {"TestControllerUpdateReconcilePoolWithNameValidation"}


def cases(test: str) -> list[Any]:
    return vectors.cases(f"dra-lib-cases/resourceslice.{test}")


def test_every_table_is_run_or_named_with_its_reason():
    tables = {path.name.removeprefix("resourceslice.") for path in VECTORS.glob("resourceslice.*")}
    assert (
        tables
        == {"TestControllerSyncPool", "TestDecodeIndex", "TestEncodeIndex", "TestGetIndexLength"} | NOT_APPLICABLE
    )


@pytest.mark.parametrize("case", cases("TestGetIndexLength"))
def test_get_index_length(case: JSON):
    assert index_length(case["numSlices"]) == case["expected"]


@pytest.mark.parametrize("case", cases("TestEncodeIndex"))
def test_encode_index(case: JSON):
    assert encode_index(case["index"], case["expectedLength"]) == case["expected"]


@pytest.mark.parametrize("case", cases("TestDecodeIndex"))
def test_decode_index(case: JSON):
    if case["expectError"]:
        said = {
            "invalid index length or missing separator": "does not begin with an index of",
            "failed to parse index": "does not begin with a hexadecimal index",
        }
        with pytest.raises(ValueError, match=said[case["expectedError"]]):
            decode_index(case["name"], case["expectedLength"])
    else:
        assert decode_index(case["name"], case["expectedLength"]) == case["expected"]


class TableApi:
    """The table's API server: numbered names, no uids, versions only on update, fields of disabled features lost."""

    def __init__(self, objects: list[JSON], features: JSON, now: str) -> None:
        self.objects = {each["metadata"]["name"]: deepcopy(each) for each in objects}
        self.features = features
        self.now = now
        self.created = 0

    def get(self, path: str, params: object = None) -> JSON:
        raise AssertionError(f"the table expects no read of {path}")

    list = watch = get  # type: ignore[assignment]

    def create(self, path: str, body: JSON, *, dry_run: bool = False) -> JSON:
        assert not dry_run
        stored = self._admitted(body)
        stored["metadata"]["name"] = f"{stored['metadata']['generateName']}{self.created}"
        self.created += 1
        return self._store(stored)

    def update(self, path: str, body: JSON) -> JSON:
        stored = self._admitted(body)
        metadata = stored["metadata"]
        assert metadata["name"] in self.objects
        metadata["resourceVersion"] = str(int(metadata.get("resourceVersion") or 0) + 1)
        return self._store(stored)

    def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None) -> None:
        gone = self.objects.pop(path.rpartition("/")[2])
        assert gone["metadata"].get("uid") == uid

    def _store(self, stored: JSON) -> JSON:
        del stored["apiVersion"], stored["kind"]
        self.objects[stored["metadata"]["name"]] = stored
        return deepcopy(stored)

    def _admitted(self, body: JSON) -> JSON:
        stored = deepcopy(body)
        lost = {
            "disableDeviceTaints": ["taints"],
            "disableBindingConditions": ["bindsToNode", "bindingConditions", "bindingFailureConditions"],
            "disableConsumableCapacity": ["allowMultipleAllocations"],
            "disablePartitionableDevices": ["consumesCounters", "nodeName", "nodeSelector", "allNodes"],
        }
        for device in stored["spec"].get("devices", []):
            for field in [field for name, fields in lost.items() if self.features[name] for field in fields]:
                device.pop(field, None)
            for taint in device.get("taints", []):
                taint.setdefault("timeAdded", self.now)
        if self.features["disablePartitionableDevices"]:
            stored["spec"].pop("perDeviceNodeSelection", None)
            stored["spec"].pop("sharedCounters", None)
        return stored


def identity_of(case: JSON, pool: str) -> PoolIdentity:
    if case["noOwner"]:
        return PoolIdentity("driver", pool)
    if case["nodeUID"]:
        return PoolIdentity("driver", pool, Owner("owner", case["nodeUID"]))
    return PoolIdentity("driver", pool, Owner("owner", "", "apps/v1", "Something"))


def nodes_of(case: JSON, pool: JSON) -> NodeSelection | None:
    if pool["NodeSelector"] or pool["AllNodes"]:
        return NodeSelection(node_selector=pool["NodeSelector"], all_nodes=pool["AllNodes"])
    return None


def wanted_of(case: JSON, pool: JSON) -> list[JSON]:
    """The table's desired slices as specs, which are already split."""
    found = []
    for each in pool["Slices"]:
        spec: JSON = {"devices": each["Devices"], "sharedCounters": each["SharedCounters"]}
        if each["PerDeviceNodeSelection"]:
            spec["perDeviceNodeSelection"] = True
        elif pool["NodeSelector"]:
            spec["nodeSelector"] = pool["NodeSelector"]
        elif pool["AllNodes"]:
            spec["allNodes"] = True
        else:
            spec["nodeName"] = "owner"
        found.append({key: value for key, value in spec.items() if value})
    return found


def model_of(case: JSON, name: str, pool: JSON) -> ResourcePool:
    """The table's desired slices as the author of a driver would write them."""
    devices = [each for part in pool["Slices"] for each in part["Devices"] or []]
    sets = [each for part in pool["Slices"] for each in part["SharedCounters"] or []]
    return ResourcePool(
        name,
        [device_of(each) for each in devices],
        [CounterSet(each["name"], amounts(each)) for each in sets],
        nodes_of(case, pool),
    )


def amounts(raw: JSON) -> dict[str, str]:
    return {key: value["value"] for key, value in raw.get("counters", {}).items()}


def device_of(raw: JSON) -> Device:
    node = {"nodeName": "node_name", "nodeSelector": "node_selector", "allNodes": "all_nodes"}
    chosen = {ours: raw[theirs] for theirs, ours in node.items() if theirs in raw}
    return Device(
        raw["name"],
        attributes={key: value["string"] for key, value in raw.get("attributes", {}).items()},
        taints=[
            DeviceTaint(
                key=each["key"],
                effect=each["effect"],
                time_added=datetime.fromisoformat(each["timeAdded"]) if "timeAdded" in each else None,
            )
            for each in raw.get("taints", [])
        ],
        consumes=[CounterConsumption(each["counterSet"], amounts(each)) for each in raw.get("consumesCounters", [])],
        allow_multiple_allocations=raw.get("allowMultipleAllocations", False),
        binds_to_node=raw.get("bindsToNode", False),
        binding_conditions=raw.get("bindingConditions", []),
        binding_failure_conditions=raw.get("bindingFailureConditions", []),
        node=NodeSelection(**chosen) if chosen else None,
    )


def synced(case: JSON) -> tuple[list[JSON], Stats, list[DroppedFieldsError | InvalidObjectError]]:
    """Final slices, writes and errors."""
    times = re.findall(r'"timeAdded": "([^"]+)"', json.dumps(case["expectedResourceSlices"]))
    api = TableApi(case["initialObjects"] or [], case["features"], max(times, default=""))
    cache, stats = SliceCache(), Stats()
    for each in api.objects.values():
        cache.put(deepcopy(each))
    pools = case["inputDriverResources"]["Pools"] or {}
    models = [model_of(case, name, pool) for name, pool in pools.items()]
    # The table's objects are not valid ones (taints without key), so the limits of the API are left out.
    plans = plan(models, driver="driver", node_name="owner", check=lambda *_: [])
    errors: list[DroppedFieldsError | InvalidObjectError] = []
    for name in cache.pools() | set(pools):
        if isinstance(planned := plans.get(name), InvalidObjectError):
            errors.append(planned)
            continue
        wanted = wanted_of(case, pools[name]) if name in pools else []
        if isinstance(planned, PoolPlan) and len(planned.slices) == len(wanted):
            assert list(planned.slices) == wanted
        for _ in range(2):  # the second time there must be nothing left to do
            generation = pools[name]["Generation"] if name in pools else 0
            operations = diff(cache.of_pool(name), wanted, identity_of(case, name), generation)
            wanted, dropped = SliceWriter(api, cache, stats).apply(operations, wanted, name)
            if dropped:
                errors.append(dropped)
    return sorted(api.objects.values(), key=lambda each: each["metadata"]["name"]), stats, errors


@pytest.mark.parametrize("case", cases("TestControllerSyncPool"))
def test_sync_pool(case: JSON):
    slices, stats, errors = synced(case)
    expected = case["expectedStats"]
    assert stats == Stats(expected["NumCreates"], expected["NumUpdates"], expected["NumDeletes"])
    assert slices == (case["expectedResourceSlices"] or [])
    check_errors(case["expectedErrors"] or [], errors)


def check_errors(expected: list[str], errors: list[DroppedFieldsError | InvalidObjectError]) -> None:
    """The same problems, in our own words: which slices lost fields of which features, or which object is wrong."""
    lost = {
        (int(found[1]), found[2])
        for each in expected
        if (found := re.search(r"slice #(\d+): some fields were dropped .* disabled: (\w+)", each))
    }
    got = {
        (index, gate)
        for each in errors
        if isinstance(each, DroppedFieldsError)
        for index in each.slices
        for gate in each.gates
    }
    assert got == lost
    wrong = [re.findall(r'"([^"]+)"', each) for each in expected if each.startswith("pool validation failed")]
    told = [str(each) for each in errors if not isinstance(each, DroppedFieldsError)]
    assert len(told) == len(wrong)
    for text, names in zip(told, wrong, strict=True):
        assert all(name in text for name in names)
