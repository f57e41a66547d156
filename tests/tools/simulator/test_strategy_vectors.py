"""The upstream validation tables (Kubernetes 1.36) through the HTTP endpoint: the causes of the answer are the table's.

The tables come from unit tests of the validation functions alone. A server does more, so three things differ here, on
purpose: gates of fields that a server would drop before it validates are on; an old object is stored unchecked; and the
cases in `DECIDED_EARLIER` get the answer that a server gives before it comes to validation.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from dra_sdk.tools.simulator import metadata
from dra_sdk.tools.simulator.objects import ObjectStore, WriteOptions
from dra_sdk.tools.simulator.resources import server_catalog
from dra_sdk.tools.simulator.server import ApiServer
from dra_sdk.tools.simulator.strategy import ADMIN_ACCESS_LABEL, Strategy
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.validation import dropped
from tests.tools.simulator.conftest import Http, path_of
from tests.vectors import ROOT

NO_NAMESPACE = (400, "needs a namespace")
HAS_VERSION = (500, "resourceVersion should not be set")
RENAMED = (404, "not found")
DECIDED_EARLIER = {
    "TestValidateClaim/missing-namespace": NO_NAMESPACE,
    "TestValidateClaim/resource-version": HAS_VERSION,
    "TestValidateClaimTemplate/missing-namespace": NO_NAMESPACE,
    "TestValidateClaimTemplate/resource-version": HAS_VERSION,
    "TestValidateClass/resource-version": HAS_VERSION,
    "TestValidateDeviceTaint/resource-version": HAS_VERSION,
    "TestValidateDeviceTaintUpdate/invalid-name-update": RENAMED,
    "TestValidateResourceSlice/resource-version": HAS_VERSION,
    "TestValidateResourceSliceUpdate/invalid-name-update": RENAMED,
}
TABLES = ROOT / "validation-cases"
CASES = {str(path.relative_to(TABLES).with_suffix("")): path for path in sorted(TABLES.glob("*/*.json"))}
OWNED = ("uid", "resourceVersion")


@pytest.fixture(autouse=True)
def at_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A taint's time is a default value, and the old and the new taint of an update are to have the same."""
    monkeypatch.setattr(metadata, "now", lambda: "2026-01-01T00:00:00Z")


def profile_of(case: dict[str, Any]) -> ServerProfile:
    gates = {**case["featureGates"], "DRADeviceTaintRules": True}
    every = (gate for obj in (case["object"], case.get("oldObject")) if obj for gate in drops(obj, gates))
    return ServerProfile.of("1.36", gates | dict.fromkeys(every, True))


def drops(obj: dict[str, Any], gates: dict[str, bool]) -> list[str]:
    return [gate for field in dropped(obj, ServerProfile.of("1.36", gates)) for gate in field.gates]


def without(obj: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key not in keys}}


def stored(profile: ServerProfile, case: dict[str, Any]) -> ObjectStore:
    """A store with the namespaces of the case and its old object, and the strategy of the server."""
    store = ObjectStore(server_catalog(profile))
    strategy = Strategy(store, profile)
    store.decode = strategy.decode
    old = case.get("oldObject")
    namespaces = {stored["metadata"].get("namespace") for stored in (case["object"], old) if stored}
    for name in filter(None, namespaces):
        labels = {ADMIN_ACCESS_LABEL: "true"}
        store.create(store.catalog["namespaces"], {"metadata": {"name": name, "labels": labels}})
    if old:
        kind = store.catalog[plural(old)]
        created = store.create(kind, without(old, *OWNED))
        if kind.status and old.get("status"):
            store.update(kind, {**created.copy(), "status": old["status"]}, options=WriteOptions(subresource="status"))
    strategy.install()
    return store


def plural(obj: dict[str, Any]) -> str:
    return f"{obj['kind'].lower()}{'es' if obj['kind'].endswith('s') else 's'}"


def answer(case: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    profile, obj = profile_of(case), case["object"]
    store = stored(profile, case)
    path = path_of(store.catalog[plural(obj)], obj["metadata"].get("namespace", ""))
    with ApiServer(store) as server:
        http = Http(server)
        if case["op"] == "create":
            return http("POST", path, without(obj, "uid"))
        name = obj["metadata"]["name"] + ("/status" if case["op"] == "status-update" else "")
        return http("PUT", f"{path}/{name}", without(obj, *OWNED))


def causes(status: dict[str, Any]) -> set[tuple[str, str]]:
    causes = status.get("details", {}).get("causes", [])
    return {(cause["field"], cause["reason"].removeprefix("FieldValue")) for cause in causes}


@pytest.mark.parametrize("name", sorted(CASES.keys() - DECIDED_EARLIER.keys()))
def test_the_causes_are_those_of_the_table(name: str) -> None:
    case = json.loads(CASES[name].read_text())
    wanted = {(error["field"], error["type"].removeprefix("FieldValue")) for error in case["errorsViaAPI"] or ()}
    code, body = answer(case)
    assert causes(body) == wanted
    assert code == (422 if wanted else 201 if case["op"] == "create" else 200)


@pytest.mark.parametrize("name", DECIDED_EARLIER)
def test_cases_that_are_decided_before_validation(name: str) -> None:
    code, body = answer(json.loads(CASES[name].read_text()))
    wanted, why = DECIDED_EARLIER[name]
    assert code == wanted
    assert why in body["message"]


def test_all_tables_are_there() -> None:
    assert len(CASES) == 282
    assert len(CASES.keys() - DECIDED_EARLIER.keys()) == 273
