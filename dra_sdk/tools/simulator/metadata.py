"""How the server fills in and checks `metadata`, and which fields of an object an endpoint may change.

Source: k8s.io/apiserver pkg/registry/rest (BeforeCreate, BeforeUpdate) and pkg/storage/names.
"""

from __future__ import annotations

import secrets
import uuid
from datetime import UTC, datetime

from dra_sdk.model import JSON
from dra_sdk.tools.simulator import statuses
from dra_sdk.tools.simulator.resources import ResourceType
from dra_sdk.wire.validation.decoding import top_level_problems

GENERATED_BASE = 58
GENERATED_SUFFIX = 5
# Without vowels, so that it forms no words, and without characters that look alike.
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SERVER_OWNED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


def now() -> str:
    """Return the time as in `metadata`: RFC 3339, whole seconds, UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def generated_name(base: str) -> str:
    """Return `base` cut to 58 characters plus five random ones."""
    suffix = "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(GENERATED_SUFFIX))
    return base[:GENERATED_BASE] + suffix


def for_create(resource: ResourceType, obj: JSON, namespace: str) -> JSON:
    """Return the object as the server first stores it; `StatusError` if its metadata is invalid."""
    given = obj.get("metadata") or {}
    if given.get("resourceVersion"):
        raise statuses.StatusError(500, "", "resourceVersion should not be set on objects to be created")
    namespace = checked_namespace(resource, given, namespace)
    dropped = {*_SERVER_OWNED, "namespace", "managedFields"}
    metadata = {key: value for key, value in given.items() if value is not None and key not in dropped}
    if not metadata.get("name"):
        if not metadata.get("generateName"):
            cause = ("metadata.name", "FieldValueRequired", "Required value: name or generateName is required")
            raise statuses.invalid(resource, "", [cause])
        metadata["name"] = generated_name(metadata["generateName"])
    if namespace:
        metadata["namespace"] = namespace
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = now()
    if resource.generation:
        metadata["generation"] = 1
    created = {**obj, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
    if resource.status and not resource.keeps_status_on_create:
        created.pop("status", None)
    return created


def checked_namespace(resource: ResourceType, metadata: JSON, namespace: str) -> str:
    """Return the object's namespace; `StatusError` 400 if object and request name different ones, or none."""
    if not resource.namespaced:
        return ""
    named = metadata.get("namespace") or namespace
    if not named:
        raise statuses.bad_request(f"{resource.kind} needs a namespace")
    if namespace and named != namespace:
        raise statuses.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    return str(named)


def check_structure(resource: ResourceType, obj: JSON) -> None:
    """Raise `StatusError` 400 if a value of the metadata has another type than it must have."""
    if problems := top_level_problems(obj):
        raise statuses.not_decoded(resource, "; ".join(map(str, problems)))


def check_type(resource: ResourceType, obj: JSON) -> None:
    """Raise `StatusError` 400 if the object has another apiVersion or kind."""
    wanted = (resource.api_version, resource.kind)
    given = (obj.get("apiVersion") or wanted[0], obj.get("kind") or wanted[1])
    if given != wanted:
        raise statuses.bad_request(
            f"the API version and kind in the data ({given[0]}, {given[1]}) do not match the expected ones "
            f"({wanted[0]}, {wanted[1]})"
        )


def check_preconditions(resource: ResourceType, current: JSON, wanted: JSON) -> None:
    """Raise `StatusError` 409 if the stored object has not the `uid` and `resourceVersion` that are wanted, if any."""
    metadata = current["metadata"]
    name, uid, version = metadata["name"], wanted.get("uid"), wanted.get("resourceVersion")
    if uid and uid != metadata["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata['uid']}"
        raise statuses.conflict(resource, name, why)
    if version and version != metadata["resourceVersion"]:
        raise statuses.conflict(resource, name)


def for_update(resource: ResourceType, current: JSON, wanted: JSON, subresource: str) -> JSON:
    """Return `current` with the fields from `wanted` that this endpoint may change.

    The status endpoint changes only the status, the main endpoint everything else; for a kind without a status
    subresource the main endpoint changes everything.
    """
    if subresource == "status":
        kept = {key: value for key, value in current.items() if key != "status"}
        return {**kept, "status": wanted["status"]} if wanted.get("status") is not None else kept
    updated = {**wanted, "apiVersion": resource.api_version, "kind": resource.kind}
    updated["metadata"] = _updated_metadata(current["metadata"], wanted.get("metadata") or {})
    if resource.status:
        updated.pop("status", None)
        if "status" in current:
            updated["status"] = current["status"]
    if resource.generation and updated.get("spec") != current.get("spec"):
        updated["metadata"]["generation"] = current["metadata"].get("generation", 0) + 1
    return updated


def _updated_metadata(current: JSON, wanted: JSON) -> JSON:
    kept = (*_SERVER_OWNED, "name", "namespace", "generateName", "managedFields", "resourceVersion")
    changed = {key: value for key, value in wanted.items() if value is not None and key not in kept}
    return changed | {key: current[key] for key in kept if key in current}


def applicable(resource: ResourceType, config: JSON, subresource: str) -> JSON:
    """Return the part of an applied configuration that this endpoint may change."""
    if subresource == "status":
        return {key: config[key] for key in ("apiVersion", "kind", "status") if key in config}
    if resource.status:
        return {key: value for key, value in config.items() if key != "status"}
    return dict(config)


def is_unchanged(current: JSON, wanted: JSON) -> bool:
    """Return whether two versions of an object differ in nothing but the resourceVersion."""
    before = {key: value for key, value in current["metadata"].items() if key != "resourceVersion"}
    after = {key: value for key, value in wanted["metadata"].items() if key != "resourceVersion"}
    return before == after and {**current, "metadata": None} == {**wanted, "metadata": None}
