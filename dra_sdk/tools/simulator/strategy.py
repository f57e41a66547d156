"""What a server of one release does with objects of resource.k8s.io before it stores them.

    strategy = Strategy(store, ServerProfile.of("1.36", {"DRAListTypeAttributes": True}))
    strategy.install()

An object is decoded (wrong types: 400; unknown fields are dropped), gets its default values, loses the fields of
disabled feature gates, and is validated (422 with a cause per field). Objects of other groups are stored as they are.
Source: Kubernetes 1.36 pkg/registry/resource and pkg/apis/resource. Status writes are not authorized.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cel_validation import cel_compiler
from dra_sdk.tools.scheduling.cluster.claim_controller import claim_results
from dra_sdk.tools.simulator import metadata, statuses
from dra_sdk.tools.simulator.objects import ObjectStore, Write
from dra_sdk.tools.simulator.resources import ResourceType
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.validation import validate
from dra_sdk.wire.validation.decoding import GROUP, decoded, without_disabled
from dra_sdk.wire.validation.problems import DECODING, Problem, ProblemType

ADMIN_ACCESS_LABEL = "resource.kubernetes.io/admin-access"
_NAMESPACED = frozenset({"ResourceClaim", "ResourceClaimTemplate"})


class Strategy:
    """The strategies of all kinds of resource.k8s.io, for one server."""

    def __init__(self, store: ObjectStore, profile: ServerProfile) -> None:
        self._store = store
        self._profile = profile
        self._compile_cel = cel_compiler(profile)

    def install(self) -> None:
        """Make the store decode and admit objects by these rules."""
        self._store.decode = self.decode
        self._store.admit.append(self.admit)

    def decode(self, resource: ResourceType, obj: JSON) -> tuple[JSON, list[str]]:
        """Return the object with defaults, without unknown fields, and the paths of these; 400 for wrong types."""
        if resource.group != GROUP:
            return obj, []
        whole = {**obj, "apiVersion": resource.api_version, "kind": resource.kind}
        value, problems = decoded(whole, self._profile, metadata.now())
        if value is None:
            raise statuses.not_decoded(resource, "; ".join(map(str, problems)))
        return value, [problem.field for problem in problems]

    def admit(self, write: Write) -> None:
        """Drop disabled fields and validate; `StatusError` 422 if the object breaks a rule."""
        if write.resource.group != GROUP or write.verb == "delete":
            return
        if write.old is not None:
            _prepare_for_update(write.object, write.old, write.subresource)
        kept = without_disabled(write.object, write.old, self._profile)
        write.object.clear()
        write.object.update(kept)
        if problems := [*self._admin_access(write), *self._problems(write)]:
            causes = [(problem.field, f"FieldValue{problem.type}", problem.detail) for problem in problems]
            raise statuses.invalid(write.resource, write.object["metadata"]["name"], causes)

    def _problems(self, write: Write) -> Iterator[Problem]:
        subresource = write.subresource if write.old is not None else ""
        obj, old = write.object, write.old
        problems = validate(obj, old=old, profile=self._profile, subresource=subresource, compile_cel=self._compile_cel)
        return (problem for problem in problems if problem.type not in DECODING)

    def _admin_access(self, write: Write) -> Iterator[Problem]:
        """Check that the namespace has the label for admin access; only at creation, because the spec cannot change."""
        field = _admin_field(write.object, write.old, write.subresource)
        namespaces = self._store.catalog.find("", "v1", "namespaces")
        if not field or namespaces is None:
            return
        namespace = self._store.get(namespaces, write.object["metadata"]["namespace"]).object
        if namespace["metadata"].get("labels", {}).get(ADMIN_ACCESS_LABEL) != "true":
            why = f"admin access to devices requires the `{ADMIN_ACCESS_LABEL}: true` label on the containing namespace"
            yield Problem(field, ProblemType.FORBIDDEN, why)


def _admin_field(obj: JSON, old: JSON | None, subresource: str) -> str:
    """Return the field that newly asks for admin access, "" if there is none."""
    if subresource == "status":
        index = _first(claim_results(obj), "adminAccess")
        had = old is not None and _first(claim_results(old), "adminAccess") is not None
        return "" if index is None or had else f"status.allocation.devices.results[{index}].adminAccess"
    if old is not None or obj["kind"] not in _NAMESPACED:
        return ""
    spec = obj.get("spec") or {}
    spec = spec.get("spec") or {} if obj["kind"] == "ResourceClaimTemplate" else spec
    requests = (spec.get("devices") or {}).get("requests") or []
    index = _first([request.get("exactly") or {} for request in requests], "adminAccess")
    return "" if index is None else f"spec.devices.requests[{index}].adminAccess"


def _first(items: list[JSON], flag: str) -> int | None:
    return next((index for index, item in enumerate(items) if item.get(flag)), None)


def _prepare_for_update(obj: JSON, old: JSON, subresource: str) -> None:
    if obj["kind"] == "ResourceClaim" and subresource == "status":
        _drop_deallocated(obj, old)
    if obj["kind"] == "DeviceTaintRule" and not subresource:
        _restart_taint((obj.get("spec") or {}).get("taint") or {}, old["spec"]["taint"])


def _drop_deallocated(claim: JSON, old: JSON) -> None:
    """Drop the device statuses of devices that are no longer allocated."""
    lost = {*map(_device_id, claim_results(old))} - {*map(_device_id, claim_results(claim))}
    status = claim.get("status") or {}
    if "devices" in status:
        status["devices"] = [device for device in status["devices"] if _device_id(device) not in lost]
        if not status["devices"]:
            del status["devices"]


def _device_id(device: JSON) -> tuple[Any, ...]:
    return tuple(device.get(key) or "" for key in ("driver", "pool", "device", "shareID"))


def _restart_taint(taint: JSON, old: JSON) -> None:
    """Set the time of a taint whose effect changed, unless the client set it."""
    if taint.get("effect") != old.get("effect") and taint.get("timeAdded") == old.get("timeAdded"):
        taint["timeAdded"] = metadata.now()
