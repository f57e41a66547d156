"""Rules for `metadata`, which all kinds share.

Source: apimachinery ObjectMeta validation. Entries of managedFields are the server's own and not checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.resource.metadata import ObjectMeta, OwnerReference
from dra_sdk.wire.validation.equality import immutable
from dra_sdk.wire.validation.names import dns_label, dns_subdomain, is_label_key, label_key, label_value
from dra_sdk.wire.validation.problems import (
    Problem,
    Problems,
    ProblemType,
    byte_length,
    forbidden,
    invalid,
    required,
    show,
)

FIELD: Final = "metadata"
MAX_ANNOTATIONS: Final = 256 * 1024
#: The server cuts a generateName to this length and appends five characters.
MAX_GENERATE_NAME: Final = 58
_FIRST_WITH_OWNER_INDEX: Final = 37
_API_VERSION = re.compile(r"(?:[^/]*/)?[^/]+")
_TEMPLATE_FIELDS: Final = {"labels", "annotations"}
_BOTH_DELETIONS: Final = {"orphan", "foregroundDeletion"}
_FINALIZERS: Final = {"kubernetes", *_BOTH_DELETIONS}


def new_metadata(
    metadata: ObjectMeta, profile: ServerProfile, *, namespaced: bool, checks_generate_name: bool = True
) -> Problems:
    """Metadata of an object that is created. A name that is to be generated is checked as it may come out."""
    field = FIELD
    if metadata.generate_name and checks_generate_name:
        yield from dns_subdomain(_without_last_dash(metadata.generate_name), f"{field}.generateName")
    name = metadata.name or (metadata.generate_name and f"{metadata.generate_name[:MAX_GENERATE_NAME]}xxxxx")
    if not name:
        yield required(f"{field}.name", "name or generateName must be set")
    else:
        yield from dns_subdomain(name, f"{field}.name")
    yield from _namespace(metadata.namespace, namespaced, f"{field}.namespace")
    if metadata.generation < 0:
        yield invalid(f"{field}.generation", f"must not be negative, is {metadata.generation}")
    yield from _common(metadata, profile)
    yield from _finalizers(metadata.finalizers or [], f"{field}.finalizers")


def changed_metadata(new: ObjectMeta, old: ObjectMeta, profile: ServerProfile) -> Problems:
    """Metadata of an object that is updated."""
    field = FIELD
    added = set(new.finalizers or ()) - set(old.finalizers or ())
    if old.deletion_timestamp and added:
        yield forbidden(f"{field}.finalizers", f"may not be added to an object being deleted: {show(sorted(added))}")
    if not new.resource_version:
        yield invalid(f"{field}.resourceVersion", "must be set in an update")
    if new.generation < old.generation:
        yield invalid(f"{field}.generation", f"must not go down, from {old.generation} to {new.generation}")
    for name, attribute in _IMMUTABLE.items():
        yield from immutable(getattr(new, attribute), getattr(old, attribute), f"{field}.{name}")
    yield from _common(new, profile)
    yield from _plain_finalizers(new.finalizers or [], f"{field}.finalizers")


def template_metadata(metadata: ObjectMeta, field: str) -> Problems:
    """Metadata that a template hands on: labels and annotations only."""
    yield from _annotations(metadata.annotations or {}, f"{field}.annotations")
    yield from _labels(metadata.labels or {}, f"{field}.labels")
    for name, info in ObjectMeta.model_fields.items():
        value = getattr(metadata, name)
        if name not in _TEMPLATE_FIELDS and value not in (None, "", 0):
            yield forbidden(f"{field}.{info.alias}", "may not be set in a template; labels and annotations may")


def _namespace(namespace: str, namespaced: bool, field: str) -> Problems:
    if not namespaced and namespace:
        yield forbidden(field, "must not be set: objects of this kind are in no namespace")
    elif namespaced and not namespace:
        yield required(field)
    elif namespaced:
        yield from dns_label(namespace, field)


def _common(metadata: ObjectMeta, profile: ServerProfile) -> Problems:
    yield from _labels(metadata.labels or {}, f"{FIELD}.labels")
    yield from _annotations(metadata.annotations or {}, f"{FIELD}.annotations")
    yield from _owners(metadata.owner_references or [], f"{FIELD}.ownerReferences", profile)


def _labels(labels: Mapping[str, str], field: str) -> Problems:
    for key, value in labels.items():
        yield from label_key(key, field)
        yield from label_value(value, field)


def _annotations(annotations: Mapping[str, str], field: str) -> Problems:
    for key in annotations:
        if not is_label_key(key.lower()):
            yield from label_key(key.lower(), field)
    size = sum(byte_length(key) + byte_length(value) for key, value in annotations.items())
    if size > MAX_ANNOTATIONS:
        detail = f"must be at most {MAX_ANNOTATIONS} bytes in all, are {size}"
        yield Problem(field, ProblemType.TOO_LONG, detail)


def _owners(owners: list[OwnerReference], field: str, profile: ServerProfile) -> Problems:
    newer = profile.minor >= _FIRST_WITH_OWNER_INDEX
    missing = required if newer else invalid
    for index, owner in enumerate(owners):
        where = f"{field}[{index}]" if newer else field
        for name, value in (("kind", owner.kind), ("name", owner.name), ("uid", owner.uid)):
            if not value:
                yield missing(f"{where}.{name}", "must not be empty")
        if newer and not owner.api_version:
            yield required(f"{where}.apiVersion", "must not be empty")
        elif not _API_VERSION.fullmatch(owner.api_version):
            detail = f"must be group/version or version, is {show(owner.api_version)}"
            yield invalid(f"{where}.apiVersion", detail)
        if (owner.api_version, owner.kind) == ("v1", "Event"):
            yield invalid(where, "an Event may not own anything")
    controllers = [f"{owner.kind}/{owner.name}" for owner in owners if owner.controller]
    for other in controllers[1:]:
        yield invalid(field, f"only one owner can be the controller, but {controllers[0]} and {other} are")


def _finalizers(finalizers: list[str], field: str) -> Problems:
    for finalizer in finalizers:
        yield from label_key(finalizer, field)
    if set(finalizers) >= _BOTH_DELETIONS:
        yield invalid(field, "orphan and foregroundDeletion exclude each other")
    yield from _plain_finalizers(finalizers, field)


def _plain_finalizers(finalizers: list[str], field: str) -> Problems:
    for index, finalizer in enumerate(finalizers):
        if "/" not in finalizer and finalizer not in _FINALIZERS:
            yield invalid(f"{field}[{index}]", f"must be domain/name, is {show(finalizer)}")


def _without_last_dash(name: str) -> str:
    return f"{name[:-2]}a" if len(name) > 1 and name.endswith("-") else name


_IMMUTABLE: Final = {
    "name": "name",
    "namespace": "namespace",
    "uid": "uid",
    "creationTimestamp": "creation_timestamp",
    "deletionTimestamp": "deletion_timestamp",
    "deletionGracePeriodSeconds": "deletion_grace_period_seconds",
}
