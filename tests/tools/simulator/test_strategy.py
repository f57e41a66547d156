"""What the embedded API server does to objects of resource.k8s.io, release by release, seen over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dra_sdk.tools.simulator import metadata
from dra_sdk.tools.simulator.local import LocalClient
from dra_sdk.tools.simulator.objects import ObjectStore
from dra_sdk.tools.simulator.resources import server_catalog
from dra_sdk.tools.simulator.server import ApiServer
from dra_sdk.tools.simulator.strategy import Strategy
from dra_sdk.wire.profile import ServerProfile
from tests.tools.simulator.conftest import CLAIMS, SLICES, Http, path_of
from tests.wire.validation.objects import claim, device, device_class, request, resource_slice, taint_rule, template

GROUP = "/apis/resource.k8s.io/v1"
MERGE, JSON_PATCH, APPLY = (
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
)
TAINT = {"key": "example.com/hot", "effect": "NoSchedule"}


class VersionedServer:
    """One server of a release, with the namespace `default`."""

    def __init__(self, version: str, gates: dict[str, bool], server: ApiServer) -> None:
        profile = ServerProfile.of(version, gates)
        self.store, self.http, self.local = server.store, Http(server), LocalClient(server.store)
        Strategy(self.store, profile).install()
        self.local.create("namespaces", {"metadata": {"name": "default"}})

    def post(self, obj: dict[str, Any], path: str = "", **query: str) -> tuple[int, Any]:
        plural = {"DeviceClass": "deviceclasses"}.get(obj["kind"], f"{obj['kind'].lower()}s")
        group, version = obj["apiVersion"].split("/")
        kind = self.store.catalog.find(group, version, plural)
        assert kind, f"{obj['apiVersion']} {plural} is not served"
        given = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
        parameters = "&".join(f"{key}={value}" for key, value in query.items())
        url = path_of(kind, given.get("namespace", "")) + (f"?{parameters}" if parameters else "")
        return self.http("POST", url, {**obj, "metadata": given})

    def allocated(self) -> dict[str, Any]:
        """A stored claim with two allocated devices."""
        assert self.post(claim())[0] == 201
        results = [{"request": "gpu", "driver": "d.example.com", "pool": "p", "device": name} for name in ("a", "b")]
        _, stored = self.http("GET", f"{CLAIMS}/gpu")
        code, stored = self.status(stored, {"allocation": {"devices": {"results": results}}})
        assert code == 200
        return dict(stored)

    def status(self, stored: dict[str, Any], status: dict[str, Any]) -> tuple[int, Any]:
        return self.http("PUT", f"{CLAIMS}/gpu/status", {**stored, "status": status})


@contextmanager
def world(version: str = "1.36", **gates: bool) -> Iterator[VersionedServer]:
    store = ObjectStore(server_catalog(ServerProfile.of(version, gates)))
    with ApiServer(store) as server:
        yield VersionedServer(version, gates, server)


@pytest.fixture
def server() -> Iterator[VersionedServer]:
    with world() as server:
        yield server


def causes(status: dict[str, Any]) -> list[tuple[str, str]]:
    return [(cause["field"], cause["reason"]) for cause in status["details"]["causes"]]


class TestDecoding:
    def test_a_wrong_type_is_a_bad_request(self, server: VersionedServer) -> None:
        code, status = server.post(claim(request(count="two")))
        assert (code, status["reason"]) == (400, "BadRequest")
        assert "cannot be handled as a ResourceClaim: spec.devices.requests[0].exactly.count" in status["message"]

    def test_an_unknown_field_is_dropped_with_a_warning(self, server: VersionedServer) -> None:
        body = resource_slice(device(colour="red"))
        del body["metadata"]["resourceVersion"]
        code, headers, created = server.http.full("POST", SLICES, body)
        assert (code, created["spec"]["devices"]) == (201, [{"name": "gpu-0"}])
        assert headers["Warning"] == '299 - "unknown field \\"spec.devices[0].colour\\""'
        code, headers, _ = server.http.full("PUT", f"{SLICES}/node-a-gpu?fieldValidation=Ignore", body)
        assert (code, headers.get("Warning")) == (200, None)

    def test_an_unknown_field_is_refused_if_the_client_asks_for_that(self, server: VersionedServer) -> None:
        code, status = server.post(resource_slice(device(colour="red")), fieldValidation="Strict")
        assert (code, status["message"]) == (400, 'strict decoding error: unknown field "spec.devices[0].colour"')
        assert server.local.list("resourceslices") == []

    def test_an_older_server_drops_newer_fields(self) -> None:
        body = resource_slice(device(attributes={"a": {"strings": ["x"]}}))
        with world("1.35") as server:
            assert server.post(body, fieldValidation="Strict")[0] == 400

    def test_quantities_are_stored_in_canonical_form(self, server: VersionedServer) -> None:
        body = resource_slice(device(capacity={"memory": {"value": "1024Mi"}, "share": {"value": "0.5"}}))
        capacity = server.post(body)[1]["spec"]["devices"][0]["capacity"]
        assert capacity == {"memory": {"value": "1Gi"}, "share": {"value": "500m"}}

    def test_null_in_free_form_json_stays(self, server: VersionedServer) -> None:
        parameters = {"kind": "K", "a": None, "b": [None, {"c": None}], "n": 1.5}
        config = [{"opaque": {"driver": "d.example.com", "parameters": parameters}}]
        _, created = server.post(claim(config=config))
        assert created["spec"]["devices"]["config"][0]["opaque"]["parameters"] == parameters

    def test_objects_of_other_groups_are_not_changed(self, server: VersionedServer) -> None:
        node = {"metadata": {"name": "n"}, "spec": {"anything": {"goes": None}}}
        assert server.http("POST", "/api/v1/nodes", node)[0] == 201


class TestDefaults:
    def test_requests_and_tolerations_get_defaults(self, server: VersionedServer) -> None:
        first = {"name": "b", "firstAvailable": [{"name": "x", "deviceClassName": "c", "tolerations": [{"key": "k"}]}]}
        _, created = server.post(claim(request("a"), first, request("c", allocationMode="All")))
        a, b, c = created["spec"]["devices"]["requests"]
        assert (a["exactly"]["allocationMode"], a["exactly"]["count"]) == ("ExactCount", 1)
        assert (b["firstAvailable"][0]["count"], b["firstAvailable"][0]["tolerations"][0]["operator"]) == (1, "Equal")
        assert "count" not in c["exactly"]

    def test_templates_get_defaults(self, server: VersionedServer) -> None:
        _, created = server.post(template())
        assert created["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1

    def test_a_taint_gets_the_time(self, server: VersionedServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(metadata, "now", lambda: "2026-01-01T00:00:00Z")
        _, created = server.post(resource_slice(device(taints=[TAINT])))
        assert created["spec"]["devices"][0]["taints"] == [{**TAINT, "timeAdded": "2026-01-01T00:00:00Z"}]

    def test_a_rule_gets_a_new_time_when_its_effect_changes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with world("1.37") as server:
            monkeypatch.setattr(metadata, "now", lambda: "2026-01-01T00:00:00Z")
            _, rule = server.post(taint_rule())
            monkeypatch.setattr(metadata, "now", lambda: "2026-01-02T00:00:00Z")
            rule["metadata"]["labels"] = {"a": "b"}
            _, rule = server.http("PUT", f"{GROUP}/devicetaintrules/broken", rule)
            assert rule["spec"]["taint"]["timeAdded"] == "2026-01-01T00:00:00Z"
            rule["spec"]["taint"]["effect"] = "NoSchedule"
            _, rule = server.http("PUT", f"{GROUP}/devicetaintrules/broken", rule)
            assert rule["spec"]["taint"]["timeAdded"] == "2026-01-02T00:00:00Z"
            assert rule["metadata"]["generation"] == 2

    def test_an_update_with_the_stored_object_is_no_write(self, server: VersionedServer) -> None:
        server.post(claim(request(tolerations=[{"key": "k"}])))
        version = server.store.version
        _, stored = server.http("GET", f"{CLAIMS}/gpu")
        assert server.http("PUT", f"{CLAIMS}/gpu", stored)[1] == stored
        assert server.store.version == version


class TestDropping:
    BODY = resource_slice(device(taints=[TAINT], bindsToNode=True))

    @pytest.mark.parametrize(
        ("version", "kept"), [("1.34", set()), ("1.35", set()), ("1.36", {"taints", "bindsToNode"})]
    )
    def test_a_release_drops_the_fields_it_does_not_have(self, version: str, kept: set[str]) -> None:
        with world(version) as server:
            code, created = server.post(self.BODY)
            assert (code, created["spec"]["devices"][0].keys() - {"name"}) == (201, kept)

    def test_a_disabled_gate_drops_its_fields(self) -> None:
        with world("1.34", DRADeviceTaints=True) as server:
            assert set(server.post(self.BODY)[1]["spec"]["devices"][0]) == {"name", "taints"}
        with world("1.36", DRAResourceClaimDeviceStatus=False) as server:
            assert set(server.post(self.BODY)[1]["spec"]["devices"][0]) == {"name", "taints"}

    def test_a_field_in_use_is_kept(self) -> None:
        with world("1.36") as server:
            server.post(self.BODY)
            (stored,) = server.local.list("resourceslices")
            server.store.admit.clear()
            Strategy(server.store, ServerProfile.of("1.36", {"DRADeviceTaints": False})).install()
            stored["spec"]["devices"].append(device("gpu-1", taints=[TAINT]))
            _, updated = server.http("PUT", f"{SLICES}/node-a-gpu", stored)
            assert all(tainted["taints"] for tainted in updated["spec"]["devices"])
            updated["spec"]["devices"] = [device()]
            _, updated = server.http("PUT", f"{SLICES}/node-a-gpu", updated)
            updated["spec"]["devices"] = [device(taints=[TAINT])]
            assert server.http("PUT", f"{SLICES}/node-a-gpu", updated)[1]["spec"]["devices"] == [device()]

    def test_validation_comes_after_dropping(self) -> None:
        first = {"name": "a", "firstAvailable": [{"name": "x", "deviceClassName": "c"}]}
        with world("1.36", DRAPrioritizedList=False) as server:
            code, status = server.post(claim(first))
            assert (code, causes(status)) == (422, [("spec.devices.requests[0]", "FieldValueRequired")])


class TestValidation:
    def test_every_problem_is_a_cause(self, server: VersionedServer) -> None:
        code, status = server.post(resource_slice(device("GPU"), device("gpu-1"), device("gpu-1"), driver=""))
        assert (code, status["reason"], status["details"]["kind"]) == (422, "Invalid", "ResourceSlice")
        assert set(causes(status)) == {
            ("spec.driver", "FieldValueRequired"),
            ("spec.devices[0].name", "FieldValueInvalid"),
            ("spec.devices[2]", "FieldValueDuplicate"),
        }

    def test_an_expression_that_does_not_compile_is_refused(self, server: VersionedServer) -> None:
        selectors = [{"cel": {"expression": text}} for text in ("device.driver ==", "1", "device.nothing")]
        code, status = server.post(device_class(selectors=selectors))
        assert code == 422
        assert set(causes(status)) == {(f"spec.selectors[{n}].cel.expression", "FieldValueInvalid") for n in range(3)}
        assert "line 1, column 17" in status["message"]

    def test_an_expression_that_costs_too_much_is_refused(self, server: VersionedServer) -> None:
        numbers = str(list(range(100)))
        dear = "true"
        for name in "abcd":
            dear = f"{numbers}.all({name}, {dear})"
        code, status = server.post(device_class(selectors=[{"cel": {"expression": dear}}]))
        assert (code, causes(status)) == (422, [("spec.selectors[0].cel.expression", "FieldValueForbidden")])

    def test_gates_decide_what_an_expression_may_use(self) -> None:
        body = device_class(selectors=[{"cel": {"expression": "device.allowMultipleAllocations == true"}}])
        with world("1.35") as server:
            assert server.post(body)[0] == 422
        with world("1.36") as server:
            code, created = server.post(body)
            assert code == 201
            server.store.admit.clear()
            Strategy(server.store, ServerProfile.of("1.36", {"DRAConsumableCapacity": False})).install()
            created["metadata"]["labels"] = {"a": "b"}
            assert server.http("PUT", f"{GROUP}/deviceclasses/gpu.example.com", created)[0] == 200

    def test_an_update_and_every_kind_of_patch(self, server: VersionedServer) -> None:
        assert server.post(claim())[0] == 201
        _, stored = server.http("GET", f"{CLAIMS}/gpu")
        stored["spec"]["devices"]["requests"][0]["exactly"]["count"] = 2
        code, status = server.http("PUT", f"{CLAIMS}/gpu", stored)
        assert (code, causes(status)) == (422, [("spec", "FieldValueInvalid")])
        patch = {"spec": {"devices": {"requests": []}}}
        assert server.http("PATCH", f"{CLAIMS}/gpu", patch, MERGE)[0] == 422
        operations = [{"op": "replace", "path": "/spec/devices/requests/0/name", "value": "other"}]
        assert server.http("PATCH", f"{CLAIMS}/gpu", operations, JSON_PATCH)[0] == 422
        config = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **patch}
        assert server.http("PATCH", f"{CLAIMS}/gpu?fieldManager=m&force=true", config, APPLY)[0] == 422

    def test_which_fields_may_be_updated(self, server: VersionedServer) -> None:
        assert server.post(claim())[0] == 201
        operations = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
        code, patched = server.http("PATCH", f"{CLAIMS}/gpu", operations, JSON_PATCH)
        assert (code, patched["metadata"]["labels"]) == (200, {"a": "b"})

    def test_applying_a_field_that_is_not_in_the_schema(self, server: VersionedServer) -> None:
        config = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "spec": {"colour": "red"}}
        code, status = server.http("PATCH", f"{GROUP}/deviceclasses/c?fieldManager=m", config, APPLY)
        assert code == 500
        assert ".spec.colour: field not declared in schema" in status["message"]


class TestStatus:
    def test_the_status_in_a_create_is_ignored(self, server: VersionedServer) -> None:
        body = claim(status={"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]})
        code, created = server.post(body)
        assert (code, created.get("status") or {}) == (201, {})

    def test_a_status_is_validated(self, server: VersionedServer) -> None:
        stored = server.allocated()
        reserved = {**stored["status"], "reservedFor": [{"resource": "pods", "name": "p"}]}
        code, status = server.status(stored, reserved)
        assert (code, causes(status)) == (422, [("status.reservedFor[0].uid", "FieldValueRequired")])
        other = {"allocation": {"devices": {"results": stored["status"]["allocation"]["devices"]["results"][:1]}}}
        code, status = server.status(stored, other)
        assert (code, causes(status)) == (422, [("status.allocation", "FieldValueInvalid")])

    def test_device_statuses_are_removed_with_the_allocation(self, server: VersionedServer) -> None:
        stored = server.allocated()
        said = [{"driver": "d.example.com", "pool": "p", "device": name} for name in ("a", "b")]
        code, stored = server.status(stored, {**stored["status"], "devices": said})
        assert (code, stored["status"]["devices"]) == (200, said)
        code, stored = server.status(stored, {"devices": said})
        assert (code, stored.get("status") or {}) == (200, {})

    def test_device_statuses_need_their_gate(self) -> None:
        with world("1.36", DRAResourceClaimDeviceStatus=False) as server:
            stored = server.allocated()
            said = [{"driver": "d.example.com", "pool": "p", "device": "a"}]
            assert "devices" not in server.status(stored, {**stored["status"], "devices": said})[1]["status"]


class TestAdminAccess:
    BODY = claim(request(adminAccess=True))

    def test_admin_access_needs_a_labelled_namespace(self, server: VersionedServer) -> None:
        code, status = server.post(self.BODY)
        assert (code, causes(status)) == (422, [("spec.devices.requests[0].adminAccess", "FieldValueForbidden")])
        labels = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
        server.local.patch("namespaces", labels, "default")
        assert server.post(self.BODY)[0] == 201

    def test_admin_access_in_templates_and_allocations(self, server: VersionedServer) -> None:
        body = template()
        body["spec"]["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = True
        assert causes(server.post(body)[1]) == [("spec.devices.requests[0].adminAccess", "FieldValueForbidden")]
        server.post(claim())
        _, stored = server.http("GET", f"{CLAIMS}/gpu")
        result = {"request": "gpu", "driver": "d.example.com", "pool": "p", "device": "a", "adminAccess": True}
        code, status = server.status(stored, {"allocation": {"devices": {"results": [result]}}})
        wanted = ("status.allocation.devices.results[0].adminAccess", "FieldValueForbidden")
        assert (code, causes(status)) == (422, [wanted])

    def test_admin_access_is_dropped_without_its_gate(self) -> None:
        with world("1.36", DRAAdminAccess=False) as server:
            code, created = server.post(self.BODY)
            assert (code, "adminAccess" in created["spec"]["devices"]["requests"][0]["exactly"]) == (201, False)


class TestReleases:
    @pytest.mark.parametrize(
        ("version", "gates", "served"),
        [
            ("1.34", {}, None),
            ("1.34", {"DRADeviceTaints": True}, "v1alpha3"),
            ("1.35", {"DRADeviceTaintRules": True}, "v1alpha3"),
            ("1.36", {}, None),
            ("1.36", {"DRADeviceTaintRules": True}, "v1beta2"),
            ("1.37", {}, "v1"),
        ],
    )
    def test_taint_rules(self, version: str, gates: dict[str, bool], served: str | None) -> None:
        catalog = server_catalog(ServerProfile.of(version, gates))
        versions = [kind.version for kind in catalog if kind.plural == "devicetaintrules"]
        assert versions == ([served] if served else [])
        if served:
            with world(version, **gates) as server:
                assert server.post(taint_rule(served))[0] == 201

    def test_field_selectors(self) -> None:
        for version, code in (("1.36", 400), ("1.37", 200)):
            with world(version) as server:
                assert server.http("GET", f"{SLICES}?fieldSelector=spec.pool.name%3Dnode-a")[0] == code

    @pytest.mark.parametrize(("version", "code"), [("1.34", 201), ("1.35", 422)])
    def test_limits(self, version: str, code: int) -> None:
        body = resource_slice(*(device(f"gpu-{n}", taints=[TAINT]) for n in range(65)))
        with world(version, DRADeviceTaints=True) as server:
            assert server.post(body)[0] == code
