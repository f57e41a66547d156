"""Pod templates in objects, and how many pods are made from each with which names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.snapshot import value_at
from dra_sdk.wire.validation.problems import join_path

KindKey = tuple[str, str]
"""API group (empty for core/v1) and kind."""
Path = tuple[str | int, ...]
MAX_PODS: Final = 100_000
"""The most pods of one object."""


class WorkloadError(Exception):
    """A field of a workload has no usable value."""

    def __init__(self, path: Path, detail: str) -> None:
        self.path, self.detail = path, detail
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class TemplateUse:
    """One pod template of an object, and the pods that are made from it.

    path: the path of the template in the object.
    template: the template: `metadata` and `spec` of the pods.
    names: the name of each pod; one that ends in `-` gets five random characters, as `generateName` does.
    owner: apiVersion, kind and name of the pods' controller.
    note: what is not simulated of it, as the end of a sentence; empty if nothing.
    added: labels and annotations that the controller adds to each pod, in the order of `names`; empty if it adds none.
    of_spec: whether `path` is that of the pods' spec.
    """

    path: Path
    template: JSON
    names: Sequence[str]
    owner: tuple[str, str, str]
    note: str = ""
    added: Sequence[Mapping[str, Mapping[str, str]]] = ()
    of_spec: bool = False

    def place(self, name: str) -> str:
        """Return the path in the object of a field of the template."""
        inner = name.removeprefix("spec").removeprefix(".") if self.of_spec else name
        return ".".join(filter(None, (join_path(self.path), inner)))


Uses = Callable[[JSON], Iterator[TemplateUse]]


@dataclass(frozen=True, slots=True)
class PodTemplateRow:
    """A row of the table: a kind whose controller makes a fixed number of pods from each template.

    template: the path of the template, such as `spec.template`, or of a PodSpec; below an item if there are items.
    replicas: paths of numbers that are multiplied; a number that is not set counts as `default`.
    items: path of a list or a map of which each item has a template; empty if the object has one template.
    item: the field with the name of an item; the key of a map needs none.
    name: the names of the pods: `{name}` is the object, `{item}` the item, `{index}` counts from 0; a name that ends in
        `-` gets a random suffix.
    default: the number of pods if no field says it.
    """

    template: str = "spec.template"
    replicas: tuple[str, ...] = ("spec.replicas",)
    items: str = ""
    item: str = "name"
    name: str = "{name}-"
    default: int = 1

    def uses(self, obj: JSON) -> Iterator[TemplateUse]:
        """Yield the templates of an object; items that have none are left out."""
        for place, label, holder in self._holders(obj):
            path = (*place, *self.template.split("."))
            template = value_at(holder, self.template.split("."))
            if template is None:
                continue
            counts = [count_at(holder, place, replicas_path, self.default) for replicas_path in self.replicas]
            size = limited(prod(counts), path)
            names = [self.name.format(name=object_name(obj), item=label, index=index) for index in range(size)]
            of_spec = is_pod_spec(template)
            yield TemplateUse(path, pod_template(template, path), names, owner_of(obj), of_spec=of_spec)

    def _holders(self, obj: JSON) -> Iterator[tuple[Path, str, Any]]:
        if not self.items:
            yield (), "", obj
            return
        where = tuple(self.items.split("."))
        items = value_at(obj, where)
        if isinstance(items, dict):
            for key, item in items.items():
                yield (*where, key), str(key).lower(), item
        for index, item in enumerate(items if isinstance(items, list) else ()):
            label = item.get(self.item) if isinstance(item, dict) else None
            yield (*where, index), str(label or index), item


def kind_key(obj: JSON) -> KindKey:
    """Return the API group and kind of an object."""
    group, slash, _ = str(obj.get("apiVersion") or "").partition("/")
    return (group if slash else ""), str(obj.get("kind") or "")


def object_name(obj: JSON) -> str:
    """Return the name of an object."""
    return str(value_at(obj, ("metadata", "name")) or "")


def owner_of(obj: JSON) -> tuple[str, str, str]:
    """Return the object itself as the controller of its pods."""
    return str(obj.get("apiVersion") or ""), str(obj.get("kind") or ""), object_name(obj)


def is_pod_spec(value: Any) -> bool:
    """Return whether this is a PodSpec where a pod template is expected, as in some kinds."""
    return isinstance(value, dict) and "spec" not in value and isinstance(value.get("containers"), list)


def pod_template(value: Any, path: Path) -> JSON:
    """Return a pod template, also of a PodSpec; WorkloadError if it is neither."""
    if not isinstance(value, dict):
        raise WorkloadError(path, "must be a pod template")
    return {"spec": value} if is_pod_spec(value) else value


def limited(count: int, path: Path) -> int:
    """Return a number of pods; WorkloadError if it is too large."""
    if count > MAX_PODS:
        raise WorkloadError(path, f"{count} pods; at most {MAX_PODS} of one object are simulated")
    return count


def count_at(holder: Any, place: Path, path: str, default: int) -> int:
    """Return the number at a path below an object at `place`, or the default; WorkloadError for anything else."""
    count = value_at(holder, path.split("."))
    if count is None:
        return default
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise WorkloadError((*place, *path.split(".")), "must be a whole number, 0 or more")
    return count


def object_at(obj: Any, *path: str | int) -> JSON:
    """Return the object at a path, an empty one if there is none; WorkloadError for anything else."""
    value = value_at(obj, path)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise WorkloadError(path, "must be an object")
    return value


def objects_at(obj: Any, *path: str | int) -> list[JSON]:
    """Return the objects of the list at a path, none if there is no list; WorkloadError for anything else."""
    value = value_at(obj, path)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise WorkloadError(path, "must be a list of objects")
    return value


def suspended(use: TemplateUse, obj: JSON) -> TemplateUse | None:
    """Return the use without pods if the object is suspended."""
    is_suspended = value_at(obj, ("spec", "suspend")) is True
    return replace(use, names=(), note="is suspended, so it has no pods", added=()) if is_suspended else None
