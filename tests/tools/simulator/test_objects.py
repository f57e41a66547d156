from __future__ import annotations

import re
from typing import Any

import pytest

from dra_sdk.tools.simulator import statuses
from dra_sdk.tools.simulator.local import LocalClient
from dra_sdk.tools.simulator.objects import ObjectStore, Write, WriteOptions
from dra_sdk.tools.simulator.selectors import parse
from dra_sdk.tools.simulator.statuses import StatusError
from dra_sdk.tools.simulator.watch_cache import Watcher
from tests.tools.simulator.conftest import claim_object, slice_object


def failure(code: int, reason: str) -> Any:
    return pytest.raises(StatusError, check=lambda error: (error.code, error.reason) == (code, reason))


def drained(watch: Watcher) -> list[tuple[str, str]]:
    events = []
    while event := watch.next(0.01):
        metadata = event.object["metadata"]
        events.append((event.type, metadata.get("name", metadata.get("resourceVersion"))))
    return events


class TestCreate:
    def test_the_server_fills_metadata_in(self, local: LocalClient) -> None:
        created = local.create("resourceslices", slice_object("a"))
        metadata = created["metadata"]
        assert (created["kind"], created["apiVersion"]) == ("ResourceSlice", "resource.k8s.io/v1")
        assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", metadata["uid"])
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
        assert metadata["resourceVersion"] == str(local.store.version)
        assert metadata["generation"] == 1
        assert local.get("resourceslices", "a") == created

    def test_every_write_of_any_kind_raises_the_version(self, local: LocalClient) -> None:
        first = local.create("resourceslices", slice_object("a"))
        second = local.create("deviceclasses", {"metadata": {"name": "c"}, "spec": {}})
        versions = [int(entry["metadata"]["resourceVersion"]) for entry in (first, second)]
        assert versions[1] == versions[0] + 1

    @pytest.mark.parametrize("length", [10, 58, 70])
    def test_a_generated_name_has_at_most_63_characters(self, local: LocalClient, length: int) -> None:
        wanted = {"metadata": {"generateName": "x" * length}, "spec": {}}
        name = local.create("deviceclasses", wanted)["metadata"]["name"]
        assert re.fullmatch("x" * min(length, 58) + "[a-z0-9]{5}", name)

    def test_metadata_of_the_server_is_ignored_in_a_create(self, local: LocalClient) -> None:
        wanted = claim_object(uid="mine", generation=7, creationTimestamp="2000-01-01T00:00:00Z", managedFields=[])
        wanted["status"] = {"reservedFor": []}
        created = local.create("resourceclaims", wanted)
        assert created["metadata"]["uid"] != "mine"
        assert created["metadata"]["creationTimestamp"] > "2000"
        assert "generation" not in created["metadata"]
        assert "status" not in created

    def test_a_node_keeps_its_status(self, local: LocalClient) -> None:
        node = local.create("nodes", {"metadata": {"name": "n"}, "status": {"phase": "x"}})
        assert node["status"] == {"phase": "x"}

    def test_a_name_that_exists(self, local: LocalClient) -> None:
        local.create("resourceclaims", claim_object())
        with failure(409, "AlreadyExists") as caught:
            local.create("resourceclaims", claim_object())
        assert caught.value.status == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": 'resourceclaims.resource.k8s.io "claim-1" already exists',
            "reason": "AlreadyExists",
            "details": {"name": "claim-1", "group": "resource.k8s.io", "kind": "resourceclaims"},
            "code": 409,
        }

    def test_no_name(self, local: LocalClient) -> None:
        with failure(422, "Invalid"):
            local.create("deviceclasses", {"metadata": {}})

    def test_a_resource_version(self, local: LocalClient) -> None:
        with failure(500, ""):
            local.create("deviceclasses", {"metadata": {"name": "a", "resourceVersion": "1"}})

    def test_another_kind(self, local: LocalClient) -> None:
        with failure(400, "BadRequest"):
            local.create("deviceclasses", {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}})

    def test_a_missing_namespace(self, local: LocalClient) -> None:
        with failure(404, "NotFound") as caught:
            local.create("resourceclaims", {"metadata": {"name": "a", "namespace": "nowhere"}})
        assert caught.value.message == 'namespaces "nowhere" not found'

    def test_another_namespace_than_the_requests(self, local: LocalClient) -> None:
        with failure(400, "BadRequest"):
            local.create("resourceclaims", claim_object(), "kube-system")


class TestUpdate:
    def test_a_stale_version_is_a_conflict(self, local: LocalClient) -> None:
        stale = local.create("deviceclasses", {"metadata": {"name": "a"}, "spec": {"x": 1}})
        local.update("deviceclasses", {**stale, "spec": {"x": 2}})
        with failure(409, "Conflict") as caught:
            local.update("deviceclasses", {**stale, "spec": {"x": 3}})
        assert caught.value.message == (
            'Operation cannot be fulfilled on deviceclasses.resource.k8s.io "a": the object has been modified; '
            "please apply your changes to the latest version and try again"
        )

    def test_without_a_version_the_last_writer_wins(self, local: LocalClient) -> None:
        local.create("deviceclasses", {"metadata": {"name": "a"}, "spec": {"x": 1}})
        updated = local.update("deviceclasses", {"metadata": {"name": "a"}, "spec": {"x": 2}})
        assert updated["spec"] == {"x": 2}

    def test_another_uid_is_a_conflict(self, local: LocalClient) -> None:
        local.create("deviceclasses", {"metadata": {"name": "a"}})
        with failure(409, "Conflict") as caught:
            local.update("deviceclasses", {"metadata": {"name": "a", "uid": "other"}})
        assert "UID in precondition: other" in caught.value.message

    def test_the_generation_counts_changes_of_spec(self, local: LocalClient) -> None:
        created = local.create("resourceslices", slice_object("a"))
        created["metadata"]["labels"] = {"x": "y"}
        labelled = local.update("resourceslices", created)
        assert labelled["metadata"]["generation"] == 1
        labelled["spec"]["pool"] = {"name": "other"}
        assert local.update("resourceslices", labelled)["metadata"]["generation"] == 2

    def test_metadata_of_the_server_stays_in_an_update(self, local: LocalClient) -> None:
        created = local.create("deviceclasses", {"metadata": {"name": "a"}})
        wanted = {"metadata": {"name": "a", "creationTimestamp": "2000-01-01T00:00:00Z", "generation": 9}, "spec": {}}
        updated = local.update("deviceclasses", wanted)["metadata"]
        for key in ("uid", "creationTimestamp"):
            assert updated[key] == created["metadata"][key]
        assert updated["generation"] == 2

    def test_an_update_that_changes_nothing_is_no_write(self, local: LocalClient) -> None:
        created = local.create("resourceslices", slice_object("a"))
        watch = local.watch("resourceslices", version=local.store.version)
        assert local.update("resourceslices", created) == created
        assert local.update("resourceslices", slice_object("a")) == created
        assert drained(watch) == []
        local.close(watch)

    def test_status_and_the_rest_are_written_separately(self, local: LocalClient) -> None:
        created = local.create("resourceclaims", claim_object())
        changed = {**created, "spec": {"other": 1}, "status": {"reservedFor": []}}
        changed["metadata"] = {**created["metadata"], "labels": {"a": "b"}}
        with_status = local.update_status("resourceclaims", changed)
        assert with_status["spec"] == created["spec"]
        assert "labels" not in with_status["metadata"]
        assert with_status["status"] == {"reservedFor": []}
        changed["metadata"] = {**with_status["metadata"], "labels": {"a": "b"}}
        del changed["status"]
        with_rest = local.update("resourceclaims", changed)
        assert (with_rest["spec"], with_rest["status"]) == ({"other": 1}, {"reservedFor": []})

    def test_a_missing_object(self, local: LocalClient) -> None:
        with failure(404, "NotFound"):
            local.update("deviceclasses", {"metadata": {"name": "a"}})


class TestMergePatch:
    def test_null_removes_and_objects_merge(self, local: LocalClient) -> None:
        local.create("deviceclasses", {"metadata": {"name": "a", "labels": {"x": "1", "y": "2"}}, "spec": {"l": [1]}})
        patch = {"metadata": {"labels": {"x": None, "z": "3"}}, "spec": {"l": [2]}}
        patched = local.patch("deviceclasses", patch, "a")
        assert (patched["metadata"]["labels"], patched["spec"]) == ({"y": "2", "z": "3"}, {"l": [2]})

    def test_only_the_status(self, local: LocalClient) -> None:
        local.create("resourceclaims", claim_object())
        patch = {"spec": {"x": 1}, "status": {"devices": []}}
        patched = local.patch("resourceclaims", patch, "claim-1", "default", subresource="status")
        assert (patched["spec"], patched["status"]) == ({"devices": {}}, {"devices": []})

    def test_a_version_in_the_patch_must_be_current(self, local: LocalClient) -> None:
        local.create("deviceclasses", {"metadata": {"name": "a"}})
        with failure(409, "Conflict"):
            local.patch("deviceclasses", {"metadata": {"resourceVersion": "0815"}}, "a")


class TestDelete:
    def test_preconditions(self, local: LocalClient) -> None:
        created = local.create("deviceclasses", {"metadata": {"name": "a"}})["metadata"]
        for wrong in ({"uid": "other"}, {"resourceVersion": "1"}):
            with failure(409, "Conflict"):
                local.delete("deviceclasses", "a", preconditions=wrong)
        gone = local.delete("deviceclasses", "a", preconditions=created)
        assert int(gone["metadata"]["resourceVersion"]) > int(created["resourceVersion"])
        with failure(404, "NotFound"):
            local.delete("deviceclasses", "a")

    def test_a_finalizer_holds_the_object(self, local: LocalClient) -> None:
        local.create("resourceclaims", claim_object(finalizers=["keep"]))
        watch = local.watch("resourceclaims", version=local.store.version)
        marked = local.delete("resourceclaims", "claim-1", "default")
        assert marked["metadata"]["deletionTimestamp"]
        again = local.delete("resourceclaims", "claim-1", "default")
        assert again["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]
        local.patch("resourceclaims", {"metadata": {"finalizers": None}}, "claim-1", "default")
        assert not local.list("resourceclaims")
        assert drained(watch) == [("MODIFIED", "claim-1"), ("DELETED", "claim-1")]
        local.close(watch)

    def test_a_collection(self, local: LocalClient) -> None:
        for name, node in (("a", "node-1"), ("b", "node-2"), ("c", "node-1")):
            local.create("resourceslices", slice_object(name, node=node))
        gone = local.delete_collection("resourceslices", fields="spec.nodeName=node-1")
        assert [entry["metadata"]["name"] for entry in gone] == ["a", "c"]
        assert [entry["metadata"]["name"] for entry in local.list("resourceslices")] == ["b"]


class TestAdmission:
    def test_an_admission_may_refuse(self, local: LocalClient) -> None:
        def refuse(write: Write) -> None:
            devices = write.object["spec"].get("devices", [])
            if len(devices) > 1:
                cause = ("spec.devices", "FieldValueTooMany", "Too many: 2: must have at most 1 item")
                raise statuses.invalid(write.resource, write.object["metadata"]["name"], [cause])

        local.store.admit.append(refuse)
        with failure(422, "Invalid") as caught:
            local.create("resourceslices", slice_object("a", devices=[{}, {}]))
        assert caught.value.message.startswith('ResourceSlice.resource.k8s.io "a" is invalid: spec.devices: Too many')
        (cause,) = caught.value.status["details"]["causes"]
        assert cause["field"] == "spec.devices"
        assert local.list("resourceslices") == []

    def test_an_admission_may_drop_fields(self, local: LocalClient) -> None:
        stored = local.create("resourceslices", slice_object("a", devices=[{"name": "d", "taints": [{"key": "k"}]}]))

        def drop(write: Write) -> None:
            for device in write.object["spec"]["devices"]:
                device.pop("taints", None)

        local.store.admit.append(drop)
        created = local.create("resourceslices", slice_object("b", devices=[{"name": "d", "taints": []}]))
        assert created["spec"]["devices"] == [{"name": "d"}]
        # What an admission does to its object must not reach what is stored.
        assert local.get("resourceslices", "a") == stored

    def test_an_admission_sees_every_kind_of_write(self, local: LocalClient) -> None:
        seen = []
        local.store.admit.append(lambda write: seen.append((write.verb, write.subresource, write.old is None)))
        local.create("resourceclaims", claim_object())
        local.patch("resourceclaims", {"status": {"a": 1}}, "claim-1", "default", subresource="status")
        config = {**claim_object(), "status": {"b": 1}}
        local.apply("resourceclaims", config, manager="m", subresource="status")
        local.delete("resourceclaims", "claim-1", "default")
        status = ("update", "status", False)
        assert seen == [("create", "", True), status, status, ("delete", "", False)]


class TestDryRun:
    def test_nothing_is_stored(self, store: ObjectStore, local: LocalClient) -> None:
        classes, dry_run = store.catalog["deviceclasses"], WriteOptions(dry_run=True)
        local.create("deviceclasses", {"metadata": {"name": "a"}, "spec": {}})
        before = store.version
        assert store.create(classes, {"metadata": {"name": "b"}}, options=dry_run).name == "b"
        changed = {"metadata": {"name": "a"}, "spec": {"x": 1}}
        assert store.update(classes, changed, options=dry_run).object["spec"]
        store.delete(classes, "a", dry_run=True)
        assert store.version == before
        assert local.get("deviceclasses", "a")["spec"] == {}


class TestWatch:
    def test_it_starts_with_the_present_objects(self, local: LocalClient) -> None:
        local.create("resourceslices", slice_object("a"))
        watch = local.watch("resourceslices")
        local.create("resourceslices", slice_object("b"))
        local.patch("resourceslices", {"spec": {"x": 1}}, "a")
        local.delete("resourceslices", "a")
        assert drained(watch) == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "a")]
        local.close(watch)
        assert list(watch) == []

    def test_it_starts_after_a_version(self, local: LocalClient) -> None:
        local.create("resourceslices", slice_object("a"))
        version = local.store.version
        local.create("resourceslices", slice_object("b"))
        watch = local.watch("resourceslices", version=version)
        assert drained(watch) == [("ADDED", "b")]
        local.close(watch)

    def test_it_may_start_after_a_version_that_is_not_reached_yet(self, local: LocalClient) -> None:
        watch = local.watch("resourceslices", version=local.store.version + 1)
        local.create("resourceslices", slice_object("a"))
        local.create("resourceslices", slice_object("b"))
        assert drained(watch) == [("ADDED", "b")]
        local.close(watch)

    def test_the_last_event_of_an_object_has_a_version_of_its_own(self, local: LocalClient) -> None:
        created = local.create("resourceslices", slice_object("a"))
        watch = local.watch("resourceslices", version=local.store.version)
        local.delete("resourceslices", "a")
        event = watch.next(1)
        assert event
        assert event.version == int(event.object["metadata"]["resourceVersion"]) == local.store.version
        assert event.object["spec"] == created["spec"]
        local.close(watch)

    def test_an_object_enters_and_leaves_a_selection(self, local: LocalClient) -> None:
        watch = local.watch("resourceslices", labels="here=yes")
        local.create("resourceslices", slice_object("a"))
        local.patch("resourceslices", {"metadata": {"labels": {"here": "yes"}}}, "a")
        local.patch("resourceslices", {"spec": {"x": 1}}, "a")
        local.patch("resourceslices", {"metadata": {"labels": {"here": "no"}}}, "a")
        local.delete("resourceslices", "a")
        assert drained(watch) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
        local.close(watch)

    def test_a_version_before_the_watch_cache_is_gone(self) -> None:
        local = LocalClient(ObjectStore(watch_cache_size=3))
        versions = []
        for name in "abcdef":
            local.create("resourceslices", slice_object(name))
            versions.append(local.store.version)
        expired = local.watch("resourceslices", version=versions[0])
        (event,) = list(expired)
        assert (event.type, event.object["code"], event.object["reason"]) == ("ERROR", 410, "Expired")
        remembered = local.watch("resourceslices", version=versions[2])
        assert [name for _, name in drained(remembered)] == ["d", "e", "f"]
        local.close(remembered)

    def test_expiring_the_history(self, local: LocalClient) -> None:
        local.create("resourceslices", slice_object("a"))
        before = local.store.version
        local.create("resourceslices", slice_object("b"))
        local.store.expire_history()
        (event,) = list(local.watch("resourceslices", version=before))
        assert event.type == "ERROR"
        current = local.watch("resourceslices", version=local.store.version)
        assert drained(current) == []
        local.close(current)

    def test_the_watch_list_protocol(self, local: LocalClient) -> None:
        local.create("resourceslices", slice_object("a"))
        resource = local.store.catalog["resourceslices"]
        watch = local.store.watch(resource, parse(resource), initial=True)
        local.store.bookmark(watch)
        added, end, bookmark = (watch.next(1) for _ in range(3))
        assert added
        assert end
        assert bookmark
        assert added.type == "ADDED"
        assert end.object["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert end.object["metadata"]["resourceVersion"] == str(local.store.version)
        assert (bookmark.type, "annotations" in bookmark.object["metadata"]) == ("BOOKMARK", False)
        local.close(watch)

    def test_a_closed_watch_gets_no_more_events(self, local: LocalClient) -> None:
        watch = local.watch("resourceslices")
        assert local.store.watches == (watch,)
        local.close(watch)
        assert local.store.watches == ()
