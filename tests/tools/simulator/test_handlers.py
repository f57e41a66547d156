from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.simulator.local import LocalClient
from dra_sdk.tools.simulator.request_handler import MAX_BODY
from tests.tools.simulator.conftest import CLAIMS, SLICES, Http, claim_object, slice_object

MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"


class TestObjects:
    @pytest.mark.parametrize("path", ["/api/v1/nodes", SLICES])
    @pytest.mark.parametrize("metadata", ["x", [1], {"name": 5}, {"name": "a", "labels": "x"}, {"generateName": 5}])
    def test_metadata_of_another_type_is_400(self, http: Http, path: str, metadata: Any) -> None:
        http("POST", path, {"metadata": {"name": "a"}, "spec": slice_object("a")["spec"]})
        sent = {"metadata": metadata}
        calls = [("POST", path, "application/json"), ("PUT", f"{path}/a", "application/json")]
        calls += [("PATCH", f"{path}/a", MERGE), ("PATCH", f"{path}/a?fieldManager=m", APPLY)]
        for verb, url, media_type in calls:
            code, status = http(verb, url, sent, media_type)
            assert (code, status["reason"]) == (400, "BadRequest"), verb
            assert "metadata" in status["message"]

    def test_preconditions_of_another_type_are_400(self, http: Http) -> None:
        http("POST", "/api/v1/nodes", {"metadata": {"name": "a"}})
        assert http("DELETE", "/api/v1/nodes/a", {"preconditions": "x"})[0] == 400
        assert http("GET", "/api/v1/nodes/a")[0] == 200

    def test_the_life_of_an_object(self, http: Http) -> None:
        code, created = http("POST", SLICES, slice_object("a"))
        assert (code, created["kind"]) == (201, "ResourceSlice")
        assert http("GET", f"{SLICES}/a") == (200, created)
        created["spec"]["pool"]["generation"] = 2
        code, updated = http("PUT", f"{SLICES}/a", created)
        assert (code, updated["metadata"]["generation"]) == (200, 2)
        code, conflict = http("PUT", f"{SLICES}/a", created)
        assert (code, conflict["kind"], conflict["reason"]) == (409, "Status", "Conflict")
        code, patched = http("PATCH", f"{SLICES}/a", {"metadata": {"labels": {"x": "y"}}}, MERGE)
        assert (code, patched["metadata"]["labels"]) == (200, {"x": "y"})
        code, gone = http("DELETE", f"{SLICES}/a")
        assert (code, gone["kind"]) == (200, "ResourceSlice")
        code, missing = http("GET", f"{SLICES}/a")
        assert (code, missing) == (
            404,
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "message": 'resourceslices.resource.k8s.io "a" not found',
                "reason": "NotFound",
                "details": {"name": "a", "group": "resource.k8s.io", "kind": "resourceslices"},
                "code": 404,
            },
        )

    def test_a_list_has_items_without_their_kind(self, http: Http, local: LocalClient) -> None:
        local.create("resourceslices", slice_object("b"))
        local.create("resourceslices", slice_object("a"))
        code, listed = http("GET", f"{SLICES}?fieldSelector=spec.nodeName%3Dnode-1")
        assert (code, listed["kind"], listed["apiVersion"]) == (200, "ResourceSliceList", "resource.k8s.io/v1")
        assert listed["metadata"] == {"resourceVersion": str(local.store.version)}
        assert [item["metadata"]["name"] for item in listed["items"]] == ["a", "b"]
        assert "kind" not in listed["items"][0]

    def test_all_pages_of_a_list_are_of_one_moment(self, http: Http, local: LocalClient) -> None:
        for name in "abcde":
            local.create("resourceslices", slice_object(name))
        names, token = [], ""
        while True:
            _, page = http("GET", f"{SLICES}?limit=2&continue={token}")
            names += [item["metadata"]["name"] for item in page["items"]]
            token = page["metadata"].get("continue", "")
            if not token:
                break
            local.create("resourceslices", slice_object(f"a{len(names)}"))
        assert names == list("abcde")
        assert http("GET", f"{SLICES}?limit=2&continue=YWJj")[0] == 410

    def test_a_list_at_a_version_that_is_not_reached_yet(self, http: Http) -> None:
        code, status = http("GET", f"{SLICES}?resourceVersion=9999")
        assert (code, status["reason"]) == (504, "Timeout")
        assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"

    def test_namespaces(self, http: Http, local: LocalClient) -> None:
        local.create("namespaces", {"metadata": {"name": "other"}})
        assert http("POST", CLAIMS, claim_object())[0] == 201
        assert http("POST", CLAIMS.replace("default", "other"), claim_object())[0] == 400
        assert http("GET", f"{CLAIMS}/claim-1")[1]["metadata"]["namespace"] == "default"
        assert len(http("GET", "/apis/resource.k8s.io/v1/resourceclaims")[1]["items"]) == 1
        assert http("GET", CLAIMS.replace("default", "other"))[1]["items"] == []
        assert http("GET", "/api/v1/namespaces/other")[1]["metadata"]["name"] == "other"

    def test_the_status(self, http: Http) -> None:
        http("POST", CLAIMS, claim_object())
        _, stored = http("GET", f"{CLAIMS}/claim-1/status")
        stored["status"] = {"reservedFor": [{"uid": "1"}]}
        assert http("PUT", f"{CLAIMS}/claim-1/status", stored)[1]["status"] == stored["status"]
        code, patched = http("PATCH", f"{CLAIMS}/claim-1/status", {"status": {"x": 1}}, MERGE)
        assert (code, patched["status"]) == (200, {**stored["status"], "x": 1})

    def test_server_side_apply(self, http: Http) -> None:
        http("POST", CLAIMS, claim_object())
        head = b"apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\n"
        yaml = head + b"status:\n  devices:\n  - {driver: d, pool: p, device: x}\n"
        path = f"{CLAIMS}/claim-1/status?fieldManager=d&force=true"
        code, applied = http("PATCH", path, yaml, APPLY)
        assert (code, applied["status"]["devices"]) == (200, [{"driver": "d", "pool": "p", "device": "x"}])
        assert http("PATCH", f"{CLAIMS}/claim-1/status", yaml, APPLY)[0] == 422
        new = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "spec": {}}
        assert http("PATCH", f"{SLICES}/new?fieldManager=d", new, APPLY)[0] == 201
        assert http("PATCH", f"{SLICES}/new?fieldManager=d", new, APPLY)[0] == 200

    def test_preconditions_of_a_delete(self, http: Http, local: LocalClient) -> None:
        created = local.create("resourceslices", slice_object("a"))["metadata"]
        wrong = {"preconditions": {"uid": created["uid"], "resourceVersion": "1"}}
        assert http("DELETE", f"{SLICES}/a", wrong)[0] == 409
        right = {"preconditions": {"uid": created["uid"], "resourceVersion": created["resourceVersion"]}}
        assert http("DELETE", f"{SLICES}/a", right)[0] == 200

    def test_deleting_a_collection(self, http: Http, local: LocalClient) -> None:
        for name, node in (("a", "node-1"), ("b", "node-2")):
            local.create("resourceslices", slice_object(name, node=node))
        code, gone = http("DELETE", f"{SLICES}?fieldSelector=spec.nodeName%3Dnode-1")
        assert (code, [item["metadata"]["name"] for item in gone["items"]]) == (200, ["a"])
        assert [entry["metadata"]["name"] for entry in local.list("resourceslices")] == ["b"]

    def test_a_kind_whose_delete_answers_with_a_status(self, http: Http, local: LocalClient) -> None:
        uid = local.create("nodes", {"metadata": {"name": "n"}})["metadata"]["uid"]
        _, status = http("DELETE", "/api/v1/nodes/n")
        assert (status["status"], status["details"]) == ("Success", {"name": "n", "kind": "nodes", "uid": uid})

    def test_dry_run(self, http: Http) -> None:
        assert http("POST", f"{SLICES}?dryRun=All", slice_object("a"))[0] == 201
        assert http("GET", f"{SLICES}/a")[0] == 404

    def test_null_is_absent_except_in_free_form_json(self, http: Http) -> None:
        wanted = claim_object(labels=None)
        wanted["spec"] = {"a": None, "b": [{"c": None}], "opaque": {"parameters": {"x": None}}}
        _, created = http("POST", CLAIMS, wanted)
        assert created["spec"] == {"b": [{}], "opaque": {"parameters": {"x": None}}}
        assert "labels" not in created["metadata"]

    def test_the_manager_of_a_write_is_the_user_agent(self, http: Http) -> None:
        _, created = http("POST", SLICES, slice_object("a"), User_Agent="gpu-driver/v1.2 (linux)")
        assert created["metadata"]["managedFields"][0]["manager"] == "gpu-driver"

    @pytest.mark.parametrize(
        ("method", "path", "body", "code"),
        [
            ("POST", SLICES, b"not json", 400),
            ("POST", SLICES, b"[]", 400),
            ("POST", SLICES, slice_object("a") | {"kind": "Pod"}, 400),
            ("PUT", SLICES, {}, 405),
            ("POST", f"{SLICES}/a", {}, 405),
            ("GET", f"{SLICES}?limit=x", None, 400),
            ("GET", f"{SLICES}?fieldSelector=spec.x%3Dy", None, 400),
            ("GET", f"{SLICES}/a/status", None, 404),
            ("GET", "/apis/resource.k8s.io/v1beta9/resourceslices", None, 404),
            ("GET", "/nowhere", None, 404),
            ("PUT", f"{CLAIMS}/claim-2", claim_object("claim-1"), 400),
        ],
    )
    def test_bad_requests(self, http: Http, method: str, path: str, body: Any, code: int) -> None:
        assert http(method, path, body)[0] == code

    def test_bad_media_types(self, http: Http) -> None:
        assert http("POST", SLICES, b"x", "application/cbor")[0] == 415
        assert http("PATCH", f"{SLICES}/a", {}, "application/strategic-merge-patch+json")[0] == 415
        assert http("PATCH", f"{SLICES}/a?fieldManager=m", b"{", APPLY)[0] == 400

    def test_a_body_over_the_limit(self, http: Http) -> None:
        code, status = http("POST", SLICES, b" " * (MAX_BODY + 1))
        assert (code, status["reason"]) == (413, "RequestEntityTooLarge")
