"""A case: objects to create, and then pods to schedule one after the other, on nodes of its own.

The names of a case contain CASE, and those of its nodes SLOT. When the case runs, both are replaced by others of the
same length, so that many cases share a cluster without seeing each other. A case can be kept as JSON and run again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

JSON = dict[str, Any]

CASE: Final = "case0"
SLOT: Final = "slot0"
PLAIN, ADMIN = "team", "admins"
"""The namespaces. In the second one, claims may ask for admin access."""
NODES: Final = tuple(f"{SLOT}-n{index}" for index in range(4))
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


class Company(Enum):
    """Which cases can run at the same time: those of the same kind, except NONE, because they do not see each other."""

    SOME = "no request for all devices"
    ALL = "no counter sets"
    NONE = "seen everywhere, or both"


@dataclass(frozen=True)
class PodPlan:
    """A pod to schedule.

    name: its name.
    namespace: its namespace.
    claims: the names of the claims that it uses.
    templates: the names of the claim templates that it uses.
    choice: which of the nodes that fit it takes: an index into their sorted names, modulo their number.
    init: its init containers.
    containers: its containers. Both may ask for extended resources, for which the scheduler makes a claim.
    priority: the name of its PriorityClass; empty for none.
    labels: its labels.
    """

    name: str
    namespace: str
    claims: tuple[str, ...]
    templates: tuple[str, ...] = ()
    choice: int = 0
    init: tuple[JSON, ...] = ()
    containers: tuple[JSON, ...] = ({"name": "main"},)
    priority: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    def claim_names(self) -> list[str]:
        """Returns the names of its claims. Those from a template start with the name of the pod."""
        return [*self.claims, *(f"{self.name}-{template}" for template in self.templates)]

    @property
    def extended(self) -> bool:
        """Whether it asks for extended resources."""
        wanted = [(each.get("resources") or {}).get("requests") or {} for each in (*self.init, *self.containers)]
        return any("/" in name for names in wanted for name in names)


@dataclass(frozen=True)
class Case:
    """A case.

    name: its name.
    objects: the objects in the order of their creation.
    pods: the pods in the order in which they are scheduled.
    nodes: the names of its nodes.
    tags: the features that it is about.
    """

    name: str
    objects: tuple[JSON, ...]
    pods: tuple[PodPlan, ...]
    nodes: tuple[str, ...] = NODES
    tags: tuple[str, ...] = field(default=())

    def of_kind(self, kind: str) -> Iterator[JSON]:
        """Returns its objects of one kind."""
        return (each for each in self.objects if each["kind"] == kind)

    def named(self, number: int, slot: int) -> Case:
        """Returns the case with names of its own, which follow from the numbers of the run and of the nodes."""
        text = json.dumps(to_json(self)).replace(CASE, f"c{_base36(number, 4)}").replace(SLOT, f"s{_base36(slot, 4)}")
        return from_json(json.loads(text))

    def company(self) -> Company:
        """Returns with which cases it can run, under its original names."""
        if any(_seen_everywhere(each) for each in self.objects):
            return Company.NONE
        text = json.dumps(self.objects)
        if "sharedCounters" not in text:
            return Company.ALL if '"All"' in text else Company.SOME
        return Company.NONE if '"All"' in text else Company.SOME

    def without(self, *, objects: frozenset[int] = frozenset(), pods: frozenset[int] = frozenset()) -> Case:
        """Returns the case without the objects and pods at these indexes."""
        kept = tuple(each for index, each in enumerate(self.objects) if index not in objects)
        return replace(self, objects=kept, pods=tuple(p for i, p in enumerate(self.pods) if i not in pods))


def node_objects(slot: str) -> list[JSON]:
    """Returns the nodes of one slot: two zones of two nodes each. All but the last can skip node operations."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"{slot}-n{index}",
                "labels": {"slot": slot, "zone": "ab"[index % 2], "rank": str(index)},
            },
            "status": {
                "allocatable": {"pods": "100000", "cpu": "1000", "memory": "1000Gi"},
                "declaredFeatures": ["DRAOptionalNodeOperations"] if index < len(NODES) - 1 else [],
            },
        }
        for index in range(len(NODES))
    ]


def to_json(case: Case) -> JSON:
    """Returns the case as JSON, for a file."""
    pods = [
        {
            "name": pod.name,
            "namespace": pod.namespace,
            "claims": list(pod.claims),
            "templates": list(pod.templates),
            "choice": pod.choice,
            "init": list(pod.init),
            "containers": list(pod.containers),
        }
        for pod in case.pods
    ]
    head = {"name": case.name, "tags": list(case.tags), "nodes": list(case.nodes)}
    return {**head, "objects": list(case.objects), "pods": pods}


def from_json(content: Mapping[str, Any]) -> Case:
    """Returns the case that `to_json` wrote."""
    pods = tuple(_plan(pod) for pod in content["pods"])
    tags = tuple(content.get("tags", ()))
    return Case(content["name"], tuple(content["objects"]), pods, tuple(content["nodes"]), tags)


def _plan(pod: Mapping[str, Any]) -> PodPlan:
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in pod.items()}
    return PodPlan(**fields)


def load(path: Path) -> Case:
    """Reads a case from a file."""
    return from_json(json.loads(path.read_text()))


def save(case: Case, folder: Path) -> Path:
    """Writes a case into a folder under its name; returns the path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{case.name}.json"
    path.write_text(json.dumps(to_json(case), indent=1) + "\n")
    return path


def _seen_everywhere(obj: JSON) -> bool:
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return False
    if obj["kind"] == "DeviceTaintRule":
        selector = spec.get("deviceSelector")
        return isinstance(selector, dict) and not any(CASE in str(value) for value in selector.values())
    if obj["kind"] != "ResourceSlice":
        return False
    devices = spec.get("devices")
    selections = [spec, *(each for each in (devices if isinstance(devices, list) else []) if isinstance(each, dict))]
    return any(each.get("allNodes") or not _within_slot(each.get("nodeSelector")) for each in selections)


def _within_slot(selector: Any) -> bool:
    return selector is None or SLOT in json.dumps(selector)


def _base36(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, digit = divmod(number, 36)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
