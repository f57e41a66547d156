from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.simulator.local import LocalClient
from dra_sdk.tools.simulator.managed_fields import (
    ITEM,
    ManagedFields,
    Manager,
    Ownership,
    after_update,
    fields_of,
    path_text,
)
from dra_sdk.tools.simulator.statuses import StatusError
from tests.tools.simulator.conftest import claim_object

GPU = 'k:{"device":"a","driver":"gpu","pool":"p"}'
CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "c", "uid": "1", "labels": {"x": "y"}, "finalizers": ["f"]},
    "spec": {"devices": {"requests": [{"name": "r"}]}},
    "status": {"devices": [{"driver": "gpu", "pool": "p", "device": "a", "data": {"free": {"form": 1}}}]},
}


def test_the_fields_of_an_object() -> None:
    assert fields_of(CLAIM) == {
        ("f:metadata", "f:labels", "f:x"): "y",
        ("f:metadata", "f:finalizers", 'v:"f"'): "f",
        ("f:spec", "f:devices", "f:requests"): [{"name": "r"}],
        ("f:status", "f:devices", GPU): ITEM,
        ("f:status", "f:devices", GPU, "f:driver"): "gpu",
        ("f:status", "f:devices", GPU, "f:pool"): "p",
        ("f:status", "f:devices", GPU, "f:device"): "a",
        ("f:status", "f:devices", GPU, "f:data"): {"free": {"form": 1}},
    }


def test_paths_in_messages() -> None:
    data = ("f:status", "f:devices", GPU, "f:data")
    assert path_text(data) == '.status.devices[device="a",driver="gpu",pool="p"].data'
    assert path_text(("f:metadata", "f:finalizers", 'v:"f"')) == '.metadata.finalizers[="f"]'


def test_ownership_is_read_as_it_was_written() -> None:
    manager = Manager("m", "Apply", "status")
    fields = frozenset(fields_of(CLAIM))
    managed = ManagedFields({}).with_fields(manager, Ownership(fields, "t", "v1"), ())
    read = ManagedFields.of({"metadata": {"managedFields": managed.encoded()}})
    assert read.owners == managed.owners
    assert read.fields_of_others(manager) == frozenset()


def test_an_update_owns_the_fields_that_it_changed_alone() -> None:
    def updated(before: dict[str, object] | None, after: dict[str, object], name: str) -> dict[str, set[str]]:
        manager = Manager(name, "Update")
        fields = after_update(before, {"apiVersion": "v1", **after}, manager, f"by {name}")  # type: ignore[arg-type]
        after["metadata"] = {"managedFields": fields}
        return {entry["manager"]: set(entry["fieldsV1"]["f:spec"]) for entry in fields}

    first: dict[str, object] = {"metadata": {}, "spec": {"a": 1, "b": 1, "c": 1}}
    assert updated(None, first, "one") == {"one": {"f:a", "f:b", "f:c"}}
    second: dict[str, object] = {"metadata": {}, "spec": {"a": 1, "b": 2, "d": 1}}
    assert updated(first, second, "two") == {"one": {"f:a"}, "two": {"f:b", "f:d"}}
    third: dict[str, object] = {"metadata": {}, "spec": {"d": 1, "b": 2}}
    assert updated(second, third, "three") == {"two": {"f:b", "f:d"}}


def device(driver: str, name: str, *, share: str = "", **more: Any) -> dict[str, Any]:
    entry = {"driver": driver, "pool": "node-1", "device": name, **more}
    return {**entry, "shareID": share} if share else entry


def apply(local: LocalClient, manager: str, *devices: dict[str, Any], force: bool = False) -> list[dict[str, Any]]:
    config = {**claim_object(), "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    del config["spec"]
    config["status"] = {"devices": list(devices)}
    applied = local.apply("resourceclaims", config, manager=manager, force=force, subresource="status")
    statuses: list[dict[str, Any]] = applied.get("status", {}).get("devices", [])
    return statuses


@pytest.fixture
def local(local: LocalClient) -> LocalClient:
    local.create("resourceclaims", claim_object())
    return local


def test_managers_do_not_touch_each_others_entries(local: LocalClient) -> None:
    apply(local, "gpu", device("gpu", "a", data={"x": 1}))
    both = apply(local, "nic", device("nic", "eth0", networkData={"ips": ["10.0.0.1/24"]}))
    assert [entry["driver"] for entry in both] == ["gpu", "nic"]
    assert apply(local, "gpu", device("gpu", "a", data={"y": 2})) == [device("gpu", "a", data={"y": 2}), both[1]]
    assert apply(local, "gpu") == [both[1]]
    assert apply(local, "nic") == []
    assert "status" not in local.get("resourceclaims", "claim-1", "default")


def test_the_share_id_is_part_of_the_key(local: LocalClient) -> None:
    entries = (device("gpu", "a", share="s1"), device("gpu", "a", share="s2"), device("gpu", "a"))
    assert apply(local, "gpu", *entries) == list(entries)
    assert apply(local, "gpu", entries[1]) == [entries[1]]


def test_a_field_that_is_no_longer_applied_is_removed_and_its_item_stays(local: LocalClient) -> None:
    apply(local, "gpu", device("gpu", "a", data={"x": 1}, conditions=[{"type": "Ready", "status": "True"}]))
    assert apply(local, "gpu", device("gpu", "a", data={"x": 1})) == [device("gpu", "a", data={"x": 1})]


def test_conditions_are_merged_by_type(local: LocalClient) -> None:
    apply(local, "gpu", device("gpu", "a", conditions=[{"type": "Ready", "status": "True"}]))
    apply(local, "other", device("gpu", "a", conditions=[{"type": "Hot", "status": "False"}]))
    (entry,) = apply(local, "gpu", device("gpu", "a", conditions=[{"type": "Ready", "status": "False"}]))
    assert entry["conditions"] == [{"type": "Ready", "status": "False"}, {"type": "Hot", "status": "False"}]
    # The other manager still owns the item, so only the fields that this one owned alone are removed.
    (entry,) = apply(local, "gpu")
    assert entry == device("gpu", "a", conditions=[{"type": "Hot", "status": "False"}])


def test_another_value_for_the_field_of_another_manager_is_a_conflict(local: LocalClient) -> None:
    apply(local, "gpu", device("gpu", "a", data={"x": 1}))
    with pytest.raises(StatusError) as caught:
        apply(local, "thief", device("gpu", "a", data={"x": 2}))
    assert (caught.value.code, caught.value.reason) == (409, "Conflict")
    path = '.status.devices[device="a",driver="gpu",pool="node-1"].data'
    assert caught.value.message == f'Apply failed with 1 conflict: conflict with "gpu" using resource.k8s.io/v1: {path}'
    (cause,) = caught.value.status["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldManagerConflict", path)


def test_force_takes_a_field_over(local: LocalClient) -> None:
    apply(local, "gpu", device("gpu", "a", data={"x": 1}))
    assert apply(local, "thief", device("gpu", "a", data={"x": 2}), force=True)[0]["data"] == {"x": 2}
    with pytest.raises(StatusError, match='conflict with "thief"'):
        apply(local, "gpu", device("gpu", "a", data={"x": 1}))
    assert apply(local, "gpu", device("gpu", "a")) == [device("gpu", "a", data={"x": 2})]


def test_managers_that_apply_the_same_value_share_it(local: LocalClient) -> None:
    apply(local, "one", device("gpu", "a", data={"x": 1}))
    apply(local, "two", device("gpu", "a", data={"x": 1}))
    assert apply(local, "one") == [device("gpu", "a", data={"x": 1})]
    assert apply(local, "two") == []


def test_applying_the_same_again_is_no_write(local: LocalClient) -> None:
    apply(local, "gpu", device("gpu", "a"))
    version = local.store.version
    apply(local, "gpu", device("gpu", "a"))
    assert local.store.version == version


def test_an_update_takes_the_fields_that_it_changes(local: LocalClient) -> None:
    apply(local, "gpu", device("gpu", "a", data={"x": 1}), device("gpu", "b"))
    current = local.get("resourceclaims", "claim-1", "default")
    current["status"]["devices"][0]["data"] = {"x": 2}
    local.update_status("resourceclaims", current)
    with pytest.raises(StatusError, match='conflict with "simulator"'):
        apply(local, "gpu", device("gpu", "a", data={"x": 1}), device("gpu", "b"))
    # The field that the update did not change still belongs to gpu, so it is removed when gpu no longer applies it.
    assert apply(local, "gpu", device("gpu", "a")) == [device("gpu", "a", data={"x": 2})]


def test_the_status_endpoint_applies_only_the_status(local: LocalClient) -> None:
    config = {**claim_object(labels={"a": "b"}), "status": {"devices": [device("gpu", "a")]}}
    config["spec"] = {"other": True}
    applied = local.apply("resourceclaims", config, manager="gpu", subresource="status")
    assert applied["spec"] == {"devices": {}}
    assert "labels" not in applied["metadata"]
    plain = local.apply("resourceclaims", {**config, "status": {"devices": []}}, manager="gpu")
    assert plain["metadata"]["labels"] == {"a": "b"}
    assert plain["status"] == applied["status"]


def test_managed_fields_have_the_servers_form(local: LocalClient) -> None:
    apply(local, "gpu", device("gpu", "a", data={"x": 1}))
    managed = local.get("resourceclaims", "claim-1", "default")["metadata"]["managedFields"]
    created, applied = managed
    assert (created["manager"], created["operation"]) == ("simulator", "Update")
    assert {key: applied[key] for key in ("manager", "operation", "subresource", "apiVersion", "fieldsType")} == {
        "manager": "gpu",
        "operation": "Apply",
        "subresource": "status",
        "apiVersion": "resource.k8s.io/v1",
        "fieldsType": "FieldsV1",
    }
    item = {".": {}, "f:data": {}, "f:device": {}, "f:driver": {}, "f:pool": {}}
    key = 'k:{"device":"a","driver":"gpu","pool":"node-1"}'
    assert applied["fieldsV1"] == {"f:status": {"f:devices": {key: item}}}


def test_apply_creates_a_missing_object(local: LocalClient) -> None:
    applied = local.apply("deviceclasses", {"metadata": {"name": "c"}, "spec": {"x": 1}}, manager="m")
    assert applied["metadata"]["generation"] == 1
    again = local.apply("deviceclasses", {"metadata": {"name": "c"}, "spec": {"x": 1}}, manager="m")
    assert again == applied
    changed = local.apply("deviceclasses", {"metadata": {"name": "c"}, "spec": {"y": 1}}, manager="m")
    assert (changed["spec"], changed["metadata"]["generation"]) == ({"y": 1}, 2)


def test_a_subresource_creates_nothing(local: LocalClient) -> None:
    with pytest.raises(StatusError, match="not found"):
        local.apply("resourceclaims", claim_object("other"), manager="m", subresource="status")


def test_finalizers_are_a_set(local: LocalClient) -> None:
    local.apply("resourceclaims", claim_object(finalizers=["a"]), manager="one")
    both = local.apply("resourceclaims", claim_object(finalizers=["b"]), manager="two")
    assert both["metadata"]["finalizers"] == ["a", "b"]
    left = local.apply("resourceclaims", claim_object(), manager="one")
    assert left["metadata"]["finalizers"] == ["b"]


def test_a_manager_must_be_named(local: LocalClient) -> None:
    with pytest.raises(StatusError) as caught:
        apply(local, "")
    assert caught.value.code == 422
