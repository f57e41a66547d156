"""One pod and one node at a time: does it fit, what would it get, and if not, why.

Source: scheduler plugin DynamicResources, Filter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator import SKIPS_OPERATIONS, Allocated, Allocator, InvalidPoolsError
from dra_sdk.tools.scheduling.allocator.nodes import declares, matches
from dra_sdk.tools.scheduling.cluster.amounts import Room
from dra_sdk.tools.scheduling.cluster.core import Node
from dra_sdk.tools.scheduling.cluster.extended import extended_claim
from dra_sdk.tools.scheduling.cluster.places import obstacle
from dra_sdk.tools.scheduling.cluster.wishes import Wish, allocation_of, skips_operations

EXTENDED = "extended resources"


@dataclass(frozen=True, slots=True)
class Fit:
    """What a pod gets on a node: an allocation for each claim that had none, by the pod's name for it.

    The claim for extended resources goes by the name `extended resources`, and comes with which request serves which.
    """

    node: str
    claims: Mapping[str, JSON] = field(default_factory=dict)
    allocations: Mapping[str, JSON] = field(default_factory=dict)
    mappings: Sequence[JSON] = ()


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a pod does not fit on a node; nothing is said where devices are missing, which `Attempts.lacking` looks into.

    `elsewhere` are its claims whose devices this node cannot reach.
    """

    reason: str = ""
    elsewhere: Sequence[str] = ()


class Attempts:
    """Tries pods on nodes as they are now."""

    def __init__(self, allocator: Allocator, allocated: Allocated, room: Room) -> None:
        self._allocator, self._allocated, self._room = allocator, allocated, room

    def fit(self, wish: Wish, node: Node, obj: JSON) -> Fit | Misfit:
        """What the pod gets on the node (`obj` is it as JSON), or why it does not fit there.

        AllocationError if something is so wrong that no further node would be tried.
        """
        if barred := self._barred(wish, node, obj):
            return barred
        claims, mappings = self._claims(wish, obj)
        if not claims:
            return Fit(node.metadata.name)
        try:
            allocations = self._allocator.allocate(obj, list(claims.values()), self._allocated)
        except InvalidPoolsError as error:
            return Misfit(str(error))
        if allocations is None:
            return Misfit()
        return Fit(node.metadata.name, claims, dict(zip(claims, allocations, strict=True)), mappings)

    def _barred(self, wish: Wish, node: Node, obj: JSON) -> Misfit | None:
        """Why the pod may not run there, whatever devices are free."""
        if found := obstacle(wish.pod, node, obj):
            return Misfit(found)
        if lacking := self._room.lacking(node.metadata.name, wish.requests, self._as_devices(wish, obj)):
            return Misfit(f"not enough {', '.join(lacking)}")
        newer = self._allocator.features.behaviour.knows_newer_fields
        if elsewhere := list(_elsewhere(wish, obj, skips=not newer or declares(obj, SKIPS_OPERATIONS))):
            return Misfit(f"{_claims(elsewhere)} allocated elsewhere", elsewhere)
        return None

    def lacking(self, wish: Wish, node: JSON) -> str:
        """Which claims and resources cannot be had on a node that lacks devices: each for itself, or only together."""
        claims, _ = self._claims(wish, node)
        single = [name for name, claim in claims.items() if len(claims) > 1 and not self._fits(claim, node)]
        names = single or list(claims)
        together = " together" if len(claims) > 1 and not single else ""
        claimed = [each for each in names if each != EXTENDED]
        what = [_claims(claimed)] if claimed else []
        what += sorted(self._as_devices(wish, node)) if EXTENDED in names else []
        return f"no devices for {' and '.join(what)}{together}"

    def _fits(self, claim: JSON, node: JSON) -> bool:
        return self._allocator.allocate(node, [claim], self._allocated) is not None

    def _as_devices(self, wish: Wish, node: JSON) -> dict[str, str]:
        """The extended resources that the pod gets as devices on this node, which has no device plugin for them."""
        name = node["metadata"]["name"]
        return {each: cls for each, cls in wish.resources.items() if not self._room.provides(name, each)}

    def _claims(self, wish: Wish, node: JSON) -> tuple[dict[str, JSON], Sequence[JSON]]:
        """The claims to allocate on this node, by the pod's name for them, and what the extended one is for."""
        resources = self._as_devices(wish, node)
        if not resources:
            return wish.to_allocate, ()
        extended, mappings = extended_claim(wish.pod, resources)
        return {**wish.to_allocate, EXTENDED: extended}, mappings


def _elsewhere(wish: Wish, node: JSON, *, skips: bool) -> Iterator[str]:
    """The claims whose devices this node cannot reach, or cannot use because they skip operations."""
    for name, claim in wish.allocated.items():
        selector = (allocation_of(claim) or {}).get("nodeSelector")
        if (selector is not None and not matches(selector, node)) or (skips_operations(claim) and not skips):
            yield name


def _claims(names: Sequence[str]) -> str:
    """`claims a, b`."""
    return f"claim{'s' if len(names) > 1 else ''} {', '.join(names)}"
