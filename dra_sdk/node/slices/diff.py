"""From the slices a pool has to those it shall have, in as few writes as possible.

Pure. The rules are those of k8s.io/dynamic-resource-allocation/resourceslice, so that a driver may change its language
without its slices changing: a slice is recognised by the index in its name, a pool with one changed slice keeps its
generation, any other change raises it and rewrites all slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from dra_sdk.model import JSON
from dra_sdk.node.slices.compare import same, with_times
from dra_sdk.node.slices.names import decode_index, generate_name, index_length

_API: Final = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}


@dataclass(frozen=True, slots=True)
class Owner:
    """The object whose deletion takes the slices along (meta/v1 OwnerReference): the Node, for a node's driver."""

    name: str
    uid: str
    api_version: str = "v1"
    kind: str = "Node"

    def reference(self) -> JSON:
        """The entry of `metadata.ownerReferences`."""
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
        }


@dataclass(frozen=True, slots=True)
class Operation:
    """One write. `body` is the whole object: as it shall be, or for a delete as it is. `index` is its place."""

    verb: Literal["delete", "update", "create"]
    body: JSON
    index: int = -1

    @property
    def name(self) -> str:
        """The object's name; for a create only the beginning of it."""
        metadata = self.body["metadata"]
        return str(metadata.get("name") or metadata["generateName"])


@dataclass(frozen=True, slots=True)
class Identity:
    """What all slices of a pool have in common."""

    driver: str
    pool: str
    owner: Owner | None = None


def diff(existing: Sequence[JSON], wanted: Sequence[JSON], identity: Identity, generation: int = 0) -> list[Operation]:
    """The writes, in order: deletes, updates, creates; none where the server has what is wanted.

    `existing` are the pool's stored ResourceSlices, `wanted` specs without `driver` and `pool` (see `plan`); an empty
    list deletes the pool. `generation` is the lowest generation allowed.
    """
    now = max((_generation(each) for each in existing), default=0)
    matched, obsolete = _match(existing, wanted, now)
    specs = with_times(wanted, [each["spec"] for each in existing])
    changed = [
        index
        for index, stored in sorted(matched.items())
        if not (_owned(stored, identity.owner) and same(stored["spec"], _spec(specs, index, identity, now)))
    ]
    missing = [index for index in range(len(specs)) if index not in matched]
    after = max(now if not missing and len(changed) <= 1 else now + 1, generation)
    if after != now:
        changed = sorted(matched)
    return [
        *(Operation("delete", each) for each in obsolete),
        *(Operation("update", _updated(matched[i], _spec(specs, i, identity, after), identity), i) for i in changed),
        *(Operation("create", _created(_spec(specs, i, identity, after), i, len(specs), identity), i) for i in missing),
    ]


def _match(existing: Sequence[JSON], wanted: Sequence[JSON], generation: int) -> tuple[dict[int, JSON], list[JSON]]:
    """Slices by their place in the pool, and those that have none."""
    matched: dict[int, JSON] = {}
    obsolete: list[JSON] = []
    for each in sorted(existing, key=lambda each: str(each["metadata"]["name"])):
        index = _place(each, wanted, generation)
        if index is None or index in matched:
            obsolete.append(each)
        else:
            matched[index] = each
    return matched, obsolete


def _place(stored: JSON, wanted: Sequence[JSON], generation: int) -> int | None:
    try:
        index = decode_index(stored["metadata"]["name"], index_length(len(wanted)))
    except ValueError:
        return None
    if _generation(stored) < generation or index >= len(wanted):
        return None
    if (stored["spec"].get("nodeName") or None) != wanted[index].get("nodeName"):
        return None  # the field is immutable
    return index


def _generation(stored: JSON) -> int:
    return int(stored["spec"]["pool"].get("generation") or 0)


def _owned(stored: JSON, owner: Owner | None) -> bool:
    references = stored["metadata"].get("ownerReferences") or []
    return owner is None or any(each.get("uid") == owner.uid for each in references)


def _spec(specs: Sequence[JSON], index: int, identity: Identity, generation: int) -> JSON:
    pool = {"name": identity.pool, "generation": generation, "resourceSliceCount": len(specs)}
    return {"driver": identity.driver, "pool": pool, **specs[index]}


def _updated(stored: JSON, spec: JSON, identity: Identity) -> JSON:
    metadata = dict(stored["metadata"])
    if identity.owner:
        metadata["ownerReferences"] = [identity.owner.reference()]
    return {**_API, "metadata": metadata, "spec": spec}


def _created(spec: JSON, index: int, count: int, identity: Identity) -> JSON:
    owner = identity.owner
    metadata: JSON = {"generateName": generate_name(index, count, identity.driver, owner.name if owner else None)}
    if owner:
        metadata["ownerReferences"] = [owner.reference()]
    return {**_API, "metadata": metadata, "spec": spec}
