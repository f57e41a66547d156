"""The parts of an object that are not of resource.k8s.io: metadata, conditions, node selectors.

Source: apimachinery validation of ObjectMeta and of meta/v1 Condition, core/v1 NodeSelector validation. Entries of
managedFields belong to the server and are not checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.resource.metadata import Condition, NodeSelector, NodeSelectorRequirement, ObjectMeta, OwnerReference
from dra_sdk.wire.validation.names import (
    dns_label,
    dns_subdomain,
    is_label_key,
    label_key,
    label_value,
    path_segment_prefix,
)
from dra_sdk.wire.validation.problems import (
    Problem,
    Problems,
    ProblemType,
    byte_length,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    show,
    too_long,
    too_many,
)
from dra_sdk.wire.validation.rules import immutable

FIELD: Final = "metadata"
Format = Callable[[str, str], Problems]
"""A check of a name: the problems of a value at a field."""
MAX_ANNOTATIONS: Final = 256 * 1024
#: The server cuts a generateName to this length and appends five characters.
MAX_GENERATE_NAME: Final = 58
_FIRST_WITH_OWNER_INDEX: Final = 37
_API_VERSION = re.compile(r"(?:[^/]*/)?[^/]+")
_TEMPLATE_FIELDS: Final = {"labels", "annotations"}
_BOTH_DELETIONS: Final = {"orphan", "foregroundDeletion"}
_FINALIZERS: Final = {"kubernetes", *_BOTH_DELETIONS}
_IMMUTABLE: Final = {
    "name": "name",
    "namespace": "namespace",
    "uid": "uid",
    "creationTimestamp": "creation_timestamp",
    "deletionTimestamp": "deletion_timestamp",
    "deletionGracePeriodSeconds": "deletion_grace_period_seconds",
}

MAX_REASON: Final = 1024
MAX_MESSAGE: Final = 32 * 1024
STATUSES: Final = ("False", "True", "Unknown")
_FIRST_WITH_REQUIRED: Final = 37
_REASON = re.compile(r"[A-Za-z](?:[A-Za-z0-9_,:]*[A-Za-z0-9_])?")

NODE_NAME_FIELD: Final = "metadata.name"
_SETS: Final = {"In", "NotIn"}
_EXISTENCE: Final = {"Exists", "DoesNotExist"}
_NUMBERS: Final = {"Gt", "Lt"}


def new_metadata(
    metadata: ObjectMeta, profile: ServerProfile, *, namespaced: bool, checks_generate_name: bool = True
) -> Problems:
    """Check the metadata of an object that is created.

    `checks_generate_name`: a generateName is checked as a prefix too.
    """
    yield from new_name(metadata.name, metadata.generate_name, checks_generate_name=checks_generate_name)
    yield from _namespace(metadata.namespace, namespaced, f"{FIELD}.namespace")
    if metadata.generation < 0:
        yield invalid(f"{FIELD}.generation", f"must not be negative, is {metadata.generation}")
    yield from _common(metadata, profile)
    yield from _finalizers(metadata.finalizers or [], f"{FIELD}.finalizers")


def new_name(
    name: str, generate_name: str, valid: Format = dns_subdomain, *, checks_generate_name: bool = True
) -> Problems:
    """Check the name of an object that is created, or its generateName as the name that the server may make of it.

    valid: the format of names of its kind.
    """
    if generate_name and checks_generate_name:
        yield from valid(_without_last_dash(generate_name), f"{FIELD}.generateName")
    name = name or (generate_name and f"{generate_name[:MAX_GENERATE_NAME]}xxxxx")
    if not name:
        yield required(f"{FIELD}.name", "name or generateName must be set")
    else:
        yield from valid(name, f"{FIELD}.name")


def cluster_metadata(new: ObjectMeta, old: ObjectMeta | None, profile: ServerProfile) -> Problems:
    """Check the metadata of a cluster-scoped object that is created, or updated from `old`."""
    if old is None:
        return new_metadata(new, profile, namespaced=False)
    return updated_metadata(new, old, profile)


def updated_metadata(new: ObjectMeta, old: ObjectMeta, profile: ServerProfile) -> Problems:
    """Check the metadata of an object that is updated."""
    yield from path_segment_prefix(new.generate_name, f"{FIELD}.generateName")
    added = set(new.finalizers or ()) - set(old.finalizers or ())
    if old.deletion_timestamp and added:
        yield forbidden(
            f"{FIELD}.finalizers", f"must not be added while the object is being deleted: {show(sorted(added))}"
        )
    if not new.resource_version:
        yield invalid(f"{FIELD}.resourceVersion", "must be set in an update")
    if new.generation < old.generation:
        yield invalid(f"{FIELD}.generation", f"must not go down, from {old.generation} to {new.generation}")
    for name, attribute in _IMMUTABLE.items():
        yield from immutable(getattr(new, attribute), getattr(old, attribute), f"{FIELD}.{name}")
    yield from _common(new, profile)
    yield from _plain_finalizers(new.finalizers or [], f"{FIELD}.finalizers")


def template_metadata(metadata: ObjectMeta, field: str) -> Problems:
    """Check the metadata of the claims of a template: only labels and annotations may be set."""
    yield from _annotations(metadata.annotations or {}, f"{field}.annotations")
    yield from _labels(metadata.labels or {}, f"{field}.labels")
    for name, info in ObjectMeta.model_fields.items():
        value = getattr(metadata, name)
        if name not in _TEMPLATE_FIELDS and value not in (None, "", 0):
            yield forbidden(f"{field}.{info.alias}", "must not be set in a template, only labels and annotations may")


def _namespace(namespace: str, namespaced: bool, field: str) -> Problems:
    if not namespaced and namespace:
        yield forbidden(field, "must not be set, as objects of this kind have no namespace")
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
            yield invalid(where, "an Event must not own anything")
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


def conditions(items: list[Condition] | None, field: str, profile: ServerProfile) -> Problems:
    """Check a list of conditions. Their types must be unique."""
    limit, newer = profile.limits.conditions, profile.minor >= _FIRST_WITH_REQUIRED
    if len(items or ()) > limit:
        yield too_many(field, len(items or ()), limit)
    seen: set[str] = set()
    for index, item in enumerate(items or ()):
        if item.type in seen:
            yield duplicate(f"{field}[{index}]" if newer else f"{field}[{index}].type", item.type)
        seen.add(item.type)
        yield from _condition(item, f"{field}[{index}]", newer)


def _condition(item: Condition, field: str, newer: bool) -> Problems:
    yield from label_key(item.type, f"{field}.type") if item.type or not newer else (required(f"{field}.type"),)
    if newer and not item.status:
        yield required(f"{field}.status", f"must be one of {', '.join(STATUSES)}")
    elif item.status not in STATUSES:
        yield not_supported(f"{field}.status", item.status, STATUSES)
    if item.observed_generation < 0:
        yield invalid(f"{field}.observedGeneration", f"must not be negative, is {item.observed_generation}")
    if item.last_transition_time is None:
        yield required(f"{field}.lastTransitionTime")
    if not item.reason:
        yield required(f"{field}.reason")
    elif not _REASON.fullmatch(item.reason):
        rule = "a letter, then letters, digits, '_', ',' and ':', and must not end with ',' or ':'"
        yield invalid(f"{field}.reason", f"must be {rule}, is {show(item.reason)}")
    yield from too_long(f"{field}.reason", item.reason, MAX_REASON)
    yield from too_long(f"{field}.message", item.message, MAX_MESSAGE)


def node_selector(selector: NodeSelector, field: str) -> Problems:
    """Check a node selector. It needs at least one term."""
    terms = selector.node_selector_terms or []
    if not terms:
        yield required(f"{field}.nodeSelectorTerms", "must have at least one term")
    for index, term in enumerate(terms):
        where = f"{field}.nodeSelectorTerms[{index}]"
        for place, requirement in enumerate(term.match_expressions or ()):
            yield from _expression(requirement, f"{where}.matchExpressions[{place}]")
        for place, requirement in enumerate(term.match_fields or ()):
            yield from _field(requirement, f"{where}.matchFields[{place}]")


def _expression(requirement: NodeSelectorRequirement, field: str) -> Problems:
    operator, values = requirement.operator, requirement.values or []
    if operator in _SETS and not values:
        yield required(f"{field}.values", f"must have a value for operator {operator}")
    elif operator in _EXISTENCE and values:
        yield forbidden(f"{field}.values", f"must have no values for operator {operator}")
    elif operator in _NUMBERS and len(values) != 1:
        yield required(f"{field}.values", f"must have one value for operator {operator}, has {len(values)}")
    elif operator not in _SETS | _EXISTENCE | _NUMBERS:
        choice = ", ".join(sorted(_SETS | _EXISTENCE | _NUMBERS))
        yield invalid(f"{field}.operator", f"must be one of {choice}, is {show(operator)}")
    yield from label_key(requirement.key, f"{field}.key")
    for index, value in enumerate(values):
        yield from label_value(value, f"{field}.values[{index}]")


def _field(requirement: NodeSelectorRequirement, field: str) -> Problems:
    operator, values = requirement.operator, requirement.values or []
    if operator not in _SETS:
        yield invalid(f"{field}.operator", f"must be In or NotIn for a field, is {show(operator)}")
    elif len(values) != 1:
        yield required(f"{field}.values", f"must have one value for a field, has {len(values)}")
    if requirement.key != NODE_NAME_FIELD:
        yield invalid(f"{field}.key", f"must be {NODE_NAME_FIELD}, is {show(requirement.key)}")
        return
    for index, value in enumerate(values):
        yield from dns_subdomain(value, f"{field}.values[{index}]")
