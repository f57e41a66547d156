"""All objects of a cluster that decide where pods go and which devices they get, at one moment.

A snapshot never changes: whoever schedules, drains or adds nodes gets another one. The JSON objects in it are shared
between snapshots, so nobody may change them in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Self

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.names import Key, generated_uid, key_of
from dra_sdk.wire.profile import ServerProfile

HOSTNAME: Final = "kubernetes.io/hostname"
#: Kind of object → field of Snapshot.
KINDS: Final[Mapping[str, str]] = {
    "Node": "nodes",
    "Namespace": "namespaces",
    "Pod": "pods",
    "ResourceSlice": "slices",
    "DeviceClass": "classes",
    "ResourceClaim": "claims",
    "ResourceClaimTemplate": "templates",
    "DeviceTaintRule": "rules",
}


@dataclass(frozen=True)
class Snapshot:
    """The objects, as the API server stores them: with defaults, and without fields whose gates are off.

    `profile` is the server; the scheduler has the same version and gates. `imagined` holds the claims that no pod
    uses and that were allocated as if one did, and the node of that pod. `read_snapshot` makes one from documents.
    """

    nodes: tuple[JSON, ...] = ()
    slices: tuple[JSON, ...] = ()
    classes: tuple[JSON, ...] = ()
    claims: tuple[JSON, ...] = ()
    templates: tuple[JSON, ...] = ()
    pods: tuple[JSON, ...] = ()
    rules: tuple[JSON, ...] = ()
    namespaces: tuple[JSON, ...] = ()
    profile: ServerProfile = field(default_factory=ServerProfile.of)
    imagined: Mapping[Key, str] = field(default_factory=dict)

    def having(self, objects: Iterable[JSON]) -> Self:
        """With `objects` added, each in place of the one of its kind, namespace and name."""
        added: dict[str, dict[Key, JSON]] = {}
        for each in objects:
            added.setdefault(KINDS[each["kind"]], {})[key_of(each)] = each
        changes: dict[str, Any] = {}
        for name, new in added.items():
            old = {key_of(each): each for each in getattr(self, name)}
            changes[name] = tuple({**old, **new}.values())
        return replace(self, **changes)

    def without(self, kind: str, *keys: Key) -> Self:
        """Without some objects of a kind."""
        name = KINDS[kind]
        left = tuple(each for each in getattr(self, name) if key_of(each) not in keys)
        changes: dict[str, Any] = {name: left}
        return replace(self, **changes)

    def with_nodes_of_slices(self) -> tuple[Self, list[str]]:
        """With a node for each name that slices or pods mention but that has no Node object; and these names."""
        known = {each["metadata"]["name"] for each in self.nodes}
        missing = sorted(_mentioned(self) - known)
        return replace(self, nodes=(*self.nodes, *map(plain_node, missing))), missing

    @cached_property
    def classes_by_name(self) -> Mapping[str, JSON]:
        """The device classes."""
        return {each["metadata"]["name"]: each for each in self.classes}

    @cached_property
    def nodes_by_name(self) -> Mapping[str, JSON]:
        """The nodes."""
        return {each["metadata"]["name"]: each for each in self.nodes}

    @cached_property
    def claims_by_key(self) -> Mapping[Key, JSON]:
        """The claims by namespace and name."""
        return {key_of(each): each for each in self.claims}

    @cached_property
    def templates_by_key(self) -> Mapping[Key, JSON]:
        """The templates by namespace and name."""
        return {key_of(each): each for each in self.templates}

    @cached_property
    def pods_by_key(self) -> Mapping[Key, JSON]:
        """The pods by namespace and name."""
        return {key_of(each): each for each in self.pods}


def plain_node(name: str) -> JSON:
    """A node of which nothing but the name is known: every pod fits."""
    metadata = {"name": name, "uid": generated_uid("Node", ("", name)), "labels": {HOSTNAME: name}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def _mentioned(snapshot: Snapshot) -> set[str]:
    names = {each["spec"].get("nodeName") for each in (*snapshot.slices, *snapshot.pods) if each.get("spec")}
    for each in snapshot.slices:
        if each["spec"].get("perDeviceNodeSelection"):
            names |= {device.get("nodeName") for device in each["spec"].get("devices") or ()}
    return {name for name in names if name}
