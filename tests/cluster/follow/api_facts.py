"""Feature gates, kinds and fields of an API server, beside those of `dra_sdk.wire`.

The server tells its gates as a metric, and its kinds and fields as OpenAPI documents. It runs with the default gates of
its release, so that defaults can be compared. OpenAPI has all fields, whether or not their gates are on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, get_args

from dra_sdk.wire.profile import GATES, NEWEST, ServerProfile
from dra_sdk.wire.resource.base import Available, Object
from dra_sdk.wire.validation.decoding import GROUP, KINDS
from tests.cluster.follow.report import Difference
from tests.cluster.harness.api import Api, fetch
from tests.cluster.harness.cache import Version
from tests.cluster.harness.errors import HarnessError

JSON = dict[str, Any]
_GATE: Final = re.compile(r'^kubernetes_feature_enabled\{name="([^"]+)",stage="([^"]*)"\} ([01])', re.MULTILINE)
_ABOUT_DEVICES: Final = re.compile(r"^DRA|^ResourceHealth|DynamicResources|ResourceClaim|ResourcePool")
_WITHOUT_EFFECT: Final = {
    "DRAResourceClaimGranularStatusAuthorization": "who may write a claim's status; the chart has the verbs",
    "DRAResourcePoolStatus": "an API of its own, for people: ResourcePoolStatusRequest",
    "DRASchedulerFilterTimeout": "how long kube-scheduler searches for devices",
    "KubeletPodResourcesDynamicResources": "what the kubelet tells monitors",
    "ResourceHealthStatus": "what the kubelet writes into a pod's status; see tests/cluster/features.py",
    "ResourceHealthStatusMessage": "the same",
}
"""Gates about devices that change no object that this package reads or writes, and no decision that it repeats."""
_KINDS_WITHOUT_EFFECT: Final = frozenset({"ResourcePoolStatusRequest"})
"""Kinds that no driver, scheduler or kubelet reads."""
_OWN: Final = ".resource."
"""A part of the names of the group's schemas; those of all groups, such as DeleteOptions, do not have it."""
_OF_ALL_KINDS: Final = frozenset({"apiVersion", "kind", "metadata"})
_METADATA: Final = "ObjectMeta"
"""The schema and the model of metadata, which is not of this group."""
_OK: Final = 200


def gates(metrics: str) -> dict[str, bool]:
    """Returns the gates about devices in the metrics of a component, each with whether it is on."""
    return {name: on == "1" for name, _, on in _GATE.findall(metrics) if _ABOUT_DEVICES.search(name)}


def compare_gates(server: Mapping[str, bool], version: Version) -> Iterator[Difference]:
    """Compares the gates of a server with default gates with those of `wire/profile.py`."""
    area, profile = "feature gate", ServerProfile.of(f"1.{version.minor}")
    for name, on in sorted(server.items()):
        if name in _WITHOUT_EFFECT:
            continue
        if name not in GATES:
            yield Difference(area, name, f"new, {_switch(on)} by default")
        elif profile.enabled(name) != on:
            yield Difference(area, name, f"{_switch(on)} by default; here it is {_switch(not on)}")
    for name, (since, _) in sorted(GATES.items()):
        if since <= profile.minor and name not in server:
            yield Difference(area, name, "gone: the release does not have it, or no longer")


def server_fields(documents: Mapping[str, JSON]) -> dict[str, set[str]]:
    """Returns the paths of all fields of each kind of v1, from OpenAPI documents by version.

    A kind that v1 does not have is taken from the newest of the other versions. Lists and maps leave no mark in a path.
    """
    found: dict[str, set[str]] = {}
    for version in sorted(documents, key=_newest_first):
        schemas = documents[version]["components"]["schemas"]
        for name, schema in schemas.items():
            for kind in _kinds(schema) if _OWN in name else ():
                found.setdefault(kind, set(_paths(schema, schemas)))
    return found


def our_fields(minor: int) -> dict[str, set[str]]:
    """Returns the paths of all fields of each kind that this package knows of a release."""
    return {kind: set(_model_paths(model, minor)) for kind, model in KINDS.items()}


def compare_fields(server: Mapping[str, set[str]], ours: Mapping[str, set[str]]) -> Iterator[Difference]:
    """Compares kinds, and the fields of those that both know. Of fields within a new field only that one is told."""
    for kind in sorted(server.keys() - ours.keys() - _KINDS_WITHOUT_EFFECT):
        yield Difference("kind", kind, "new: this package does not read it")
    for kind in sorted(ours.keys() - server.keys()):
        yield Difference("kind", kind, "gone: the release does not serve it")
    for kind in sorted(ours.keys() & server.keys()):
        for path in _outermost(server[kind] - ours[kind]):
            yield Difference("field", f"{kind}.{path}", "new: this package does not know it")
        for path in _outermost(ours[kind] - server[kind]):
            yield Difference("field", f"{kind}.{path}", "gone: the release does not have it")


def read_gates(api: Api) -> dict[str, bool]:
    """Reads the gates of an API server. Raises HarnessError if it tells none."""
    status, body = fetch(f"{api.server}/metrics", api.trust)
    found = gates(body.decode()) if status == _OK else {}
    if not found:
        raise HarnessError(f"GET /metrics: {status}, and no metric kubernetes_feature_enabled about devices")
    return found


def read_documents(api: Api) -> dict[str, JSON]:
    """Reads the OpenAPI documents of all versions of resource.k8s.io that are served."""
    versions = [each["version"] for each in api.get(f"/apis/{GROUP}")["versions"]]
    return {version: api.get(f"/openapi/v3/apis/{GROUP}/{version}") for version in versions}


def known(minor: int) -> str:
    """Says which release of this package is compared with."""
    return f"1.{min(minor, NEWEST)}"


def _switch(on: bool) -> str:
    return "on" if on else "off"


def _newest_first(version: str) -> tuple[int, str]:
    """v1, then v1beta2, v1beta1, v1alpha3."""
    stage = 0 if "beta" not in version and "alpha" not in version else 1 if "beta" in version else 2
    return stage, "".join(chr(0x10FFFF - ord(letter)) for letter in version)


def _kinds(schema: JSON) -> Iterator[str]:
    for each in schema.get("x-kubernetes-group-version-kind", ()):
        listed = each["kind"].endswith("List") and "items" in schema.get("properties", {})
        if each["group"] == GROUP and not listed:
            yield each["kind"]


def _paths(schema: JSON, schemas: Mapping[str, JSON], before: str = "") -> Iterator[str]:
    for name, value in schema.get("properties", {}).items():
        inner = _schema_in(value)
        if before or name not in _OF_ALL_KINDS:
            yield f"{before}{name}"
            if inner is not None and not inner.endswith(_METADATA):
                yield from _paths(schemas[inner], schemas, f"{before}{name}.")


def _schema_in(value: JSON) -> str | None:
    """The name of the schema of a property, of its items, or of the values of a map."""
    for each in (value, *value.get("allOf", ())):
        if reference := each.get("$ref"):
            return str(reference).rpartition("/")[2]
    for key in ("items", "additionalProperties"):
        if isinstance(inside := value.get(key), dict):
            return _schema_in(inside)
    return None


def _model_paths(model: type[Object], minor: int, before: str = "") -> Iterator[str]:
    for info in model.model_fields.values():
        available = next((each for each in info.metadata if isinstance(each, Available)), Available())
        served = available.since <= min(minor, NEWEST) <= (available.until or NEWEST)
        if served and (before or info.alias not in _OF_ALL_KINDS):
            yield f"{before}{info.alias}"
            inner = _model_in(info.annotation)
            if inner is not None and not inner.__name__.endswith(_METADATA):
                yield from _model_paths(inner, minor, f"{before}{info.alias}.")


def _model_in(annotation: Any) -> type[Object] | None:
    if isinstance(annotation, type) and issubclass(annotation, Object):
        return annotation
    return next((found for each in get_args(annotation) if (found := _model_in(each)) is not None), None)


def _outermost(paths: Iterable[str]) -> list[str]:
    """The paths that lie below none of the others, sorted."""
    chosen: list[str] = []
    for path in sorted(paths):
        if not any(path.startswith(f"{each}.") for each in chosen):
            chosen.append(path)
    return chosen
