"""All objects of a cluster that decide where pods run and which devices they get, at one moment.

Also the keys of objects, and the names and UIDs that an API server generates at random. Here they only depend on the
objects, so that a run can be repeated. Source: apiserver, package storage/names (five characters after the base, 63 in
all); controller/resourceclaim (how the base is shortened for a pod's claim).
"""

from __future__ import annotations

import hashlib
import itertools
import uuid
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Self, TypeVar

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator.devices import DeviceId, PoolId
from dra_sdk.wire.profile import ServerProfile

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
ObjectKey = tuple[str, str]
"""Namespace and name of an object."""
DEFAULT_NAMESPACE: Final = "default"
_SUFFIX_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH: Final = 5
_MAX_NAME_LENGTH: Final = 63
_MAX_CLAIM_BASE_LENGTH: Final = 57
_UID_NAMESPACE: Final = uuid.UUID("8f2f7d34-6b0e-4f0e-9b60-0d6a4c1f7a55")
_GENERATED_VERSION: Final = 5
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
FIELD_OF_KIND: Final[Mapping[str, str]] = {
    "Node": "nodes",
    "Namespace": "namespaces",
    "Pod": "pods",
    "ResourceSlice": "slices",
    "DeviceClass": "classes",
    "ResourceClaim": "claims",
    "ResourceClaimTemplate": "templates",
    "DeviceTaintRule": "rules",
    "DaemonSet": "daemon_sets",
    "PriorityClass": "priority_classes",
    "PodDisruptionBudget": "disruption_budgets",
    "ResourceQuota": "quotas",
    "PodGroup": "pod_groups",
}
"""The field of Snapshot for each kind of object."""


Count = Callable[[int, int], None]
"""Called, while something takes long, with how many items are done, and of how many; 0 if that is not known."""


def no_count(done: int, total: int) -> None:
    """Report no progress."""


def value_at(value: Any, path: Sequence[str | int]) -> Any:
    """Return the value at a path of names and indices in an object; None if there is none."""
    for part in path:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return None
    return value


def object_key(obj: JSON) -> ObjectKey:
    """Return namespace and name of an object; the namespace is empty for cluster-scoped objects."""
    metadata = obj.get("metadata") or {}
    return metadata.get("namespace") or "", metadata.get("name") or ""


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items with each key, in their order."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def slices_by_pool(slices: Iterable[JSON]) -> dict[PoolId, list[JSON]]:
    """Return the slices of each pool, in their order."""
    return grouped(slices, lambda raw_slice: (raw_slice["spec"]["driver"], raw_slice["spec"]["pool"]["name"]))


def newest_generation(pool: Iterable[JSON]) -> list[JSON]:
    """Return those slices of a pool that count: the ones of its newest generation."""
    generations = [(raw_slice["spec"]["pool"].get("generation", 0), raw_slice) for raw_slice in pool]
    newest = max((generation for generation, _ in generations), default=0)
    return [raw_slice for generation, raw_slice in generations if generation == newest]


def device_entries(raw_slice: JSON) -> list[tuple[DeviceId, JSON]]:
    """Return the devices of a slice with their entries in `spec.devices`; an invalid slice may have one twice."""
    spec = raw_slice["spec"]
    driver, pool = spec["driver"], spec["pool"]["name"]
    return [(DeviceId(driver, pool, device["name"]), device) for device in spec.get("devices") or ()]


def display_name(key: ObjectKey) -> str:
    """Return a key as text, `namespace/name`, without the namespace if it is the default one."""
    namespace, name = key
    return name if namespace in {"", DEFAULT_NAMESPACE} else f"{namespace}/{name}"


def generated_name(base: str, *reasons: str) -> str:
    """Return `base` with five characters appended that only depend on the arguments; at most 63 characters."""
    number = int.from_bytes(hashlib.sha256("\0".join((base, *reasons)).encode(errors="surrogatepass")).digest())
    suffix = ""
    for _ in range(_SUFFIX_LENGTH):
        number, index = divmod(number, len(_SUFFIX_ALPHABET))
        suffix += _SUFFIX_ALPHABET[index]
    return base[: _MAX_NAME_LENGTH - _SUFFIX_LENGTH] + suffix


def unused_name(base: str, is_used: Callable[[str], bool], *reasons: str) -> str:
    """Return the first of the names for these reasons that is not in use; an API server draws again, too."""
    further = (reasons if not attempt else (*reasons, str(attempt)) for attempt in itertools.count())
    return next(name for some in further if not is_used(name := generated_name(base, *some)))


def claim_name_base(pod: str, claim: str) -> str:
    """Return the start of the name of a claim made for a pod; both names are shortened if it would be too long."""
    base = f"{pod}-{claim}-"
    if len(base) <= _MAX_CLAIM_BASE_LENGTH:
        return base
    kept = [name[: len(name) * _MAX_CLAIM_BASE_LENGTH // len(base)] for name in (pod, claim)]
    return "-".join(kept)


def generated_uid(kind: str, key: ObjectKey, *reasons: str) -> str:
    """Return a UID for an object that has none."""
    return str(uuid.uuid5(_UID_NAMESPACE, "/".join((kind, *key, *reasons))))


def is_generated_uid(uid: str) -> bool:
    """Return whether `generated_uid` made a UID; those of an API server are random."""
    try:
        return uuid.UUID(uid).version == _GENERATED_VERSION
    except ValueError:
        return False


@dataclass(frozen=True)
class Snapshot:
    """The objects as the API server stores them: with defaults, and without fields whose feature gates are off.

    A snapshot never changes; methods return other snapshots. Its JSON objects are shared between snapshots, so they
    must not be changed either. `read_snapshot` makes a snapshot from documents.

    nodes, slices, classes, claims, templates, pods, rules, namespaces, daemon_sets, priority_classes,
        disruption_budgets, quotas, pod_groups: the objects of each kind; rules are DeviceTaintRules. The pods of
        DaemonSets are made when the nodes are known; those of other workloads are among the pods.
    profile: the release and feature gates of the API server and the scheduler.
    hypothetical: claims without a pod that were allocated as if a pod used them, and the node of that pod.
    """

    nodes: tuple[JSON, ...] = ()
    slices: tuple[JSON, ...] = ()
    classes: tuple[JSON, ...] = ()
    claims: tuple[JSON, ...] = ()
    templates: tuple[JSON, ...] = ()
    pods: tuple[JSON, ...] = ()
    rules: tuple[JSON, ...] = ()
    namespaces: tuple[JSON, ...] = ()
    daemon_sets: tuple[JSON, ...] = ()
    priority_classes: tuple[JSON, ...] = ()
    disruption_budgets: tuple[JSON, ...] = ()
    quotas: tuple[JSON, ...] = ()
    pod_groups: tuple[JSON, ...] = ()
    profile: ServerProfile = field(default_factory=ServerProfile.of)
    hypothetical: Mapping[ObjectKey, str] = field(default_factory=dict)

    def with_objects(self, objects: Iterable[JSON]) -> Self:
        """Return the snapshot with `objects`, each in place of the one with its kind, namespace and name."""
        added: dict[str, dict[ObjectKey, JSON]] = {}
        for obj in objects:
            added.setdefault(FIELD_OF_KIND[obj["kind"]], {})[object_key(obj)] = obj
        changes: dict[str, Any] = {}
        for name, new in added.items():
            old = {object_key(obj): obj for obj in getattr(self, name)}
            changes[name] = tuple({**old, **new}.values())
        return replace(self, **changes)

    def without(self, kind: str, *keys: ObjectKey) -> Self:
        """Return the snapshot without some objects of a kind."""
        name = FIELD_OF_KIND[kind]
        left = tuple(obj for obj in getattr(self, name) if object_key(obj) not in keys)
        changes: dict[str, Any] = {name: left}
        return replace(self, **changes)

    def with_missing_nodes(self) -> tuple[Self, list[str]]:
        """Return the snapshot with a node for each missing node that slices or pods refer to, and the added names."""
        known = {node["metadata"]["name"] for node in self.nodes}
        missing = sorted(_referenced_nodes(self) - known)
        return replace(self, nodes=(*self.nodes, *map(bare_node, missing))), missing

    @cached_property
    def classes_by_name(self) -> Mapping[str, JSON]:
        """The device classes."""
        return {device_class["metadata"]["name"]: device_class for device_class in self.classes}

    @cached_property
    def nodes_by_name(self) -> Mapping[str, JSON]:
        """The nodes."""
        return {node["metadata"]["name"]: node for node in self.nodes}

    @cached_property
    def claims_by_key(self) -> Mapping[ObjectKey, JSON]:
        """The claims by namespace and name."""
        return {object_key(claim): claim for claim in self.claims}

    @cached_property
    def templates_by_key(self) -> Mapping[ObjectKey, JSON]:
        """The templates by namespace and name."""
        return {object_key(template): template for template in self.templates}

    @cached_property
    def pods_by_key(self) -> Mapping[ObjectKey, JSON]:
        """The pods by namespace and name."""
        return {object_key(pod): pod for pod in self.pods}


def bare_node(name: str) -> JSON:
    """Return a node of which only the name is known: every pod fits on it."""
    metadata = {"name": name, "uid": generated_uid("Node", ("", name)), "labels": {HOSTNAME_LABEL: name}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def _referenced_nodes(snapshot: Snapshot) -> set[str]:
    names = {obj["spec"].get("nodeName") for obj in (*snapshot.slices, *snapshot.pods) if obj.get("spec")}
    for raw_slice in snapshot.slices:
        if raw_slice["spec"].get("perDeviceNodeSelection"):
            names |= {device.get("nodeName") for device in raw_slice["spec"].get("devices") or ()}
    return {name for name in names if name}
