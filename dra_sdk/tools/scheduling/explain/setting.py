"""The situation a claim is explained in: nodes, devices, classes, who holds what, and which claims belong together.

Everything that may be relaxed is a field, so that a trial is the same setting with one field changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Self

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator import (
    Allocated,
    AllocationError,
    Allocator,
    DeviceId,
    Features,
    InvalidPoolsError,
    Inventory,
    SearchLimitError,
    SelectorError,
)
from dra_sdk.tools.scheduling.allocator.requests import ClaimPlan
from dra_sdk.tools.scheduling.allocator.selectors import Selectors

STEPS: Final = 100_000
"""How long a search may take: shorter than the scheduler's, because explanations search often."""
TRIAL_STEPS: Final = 30_000
"""The same for trials, of which there are many."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What the allocator says of one node: allocations in the order of the claims, or an error, or neither.

    `final` is set for an error after which no further node is tried, `given_up` if the search took too many steps.
    """

    allocations: tuple[JSON, ...] | None = None
    error: str = ""
    final: bool = False
    given_up: bool = False

    @property
    def fits(self) -> bool:
        """Whether the claims can be had there."""
        return self.allocations is not None


@dataclass(frozen=True)
class Setting:
    """`claims` are allocated together, the last is the one that is explained; `holders` have their devices already."""

    nodes: tuple[JSON, ...]
    slices: tuple[JSON, ...]
    rules: tuple[JSON, ...]
    classes: Mapping[str, JSON]
    features: Features
    claims: tuple[JSON, ...]
    holders: tuple[JSON, ...]
    steps: int = STEPS

    def changed(self, **changes: object) -> Self:
        """Another setting; what does not depend on the changes is not worked out again."""
        made: Self = replace(self, **changes)  # type: ignore[arg-type]  # (the names are those of the fields)
        if "features" not in changes:
            made.__dict__["selectors"] = self.selectors
        if not {"slices", "rules", "features"} & set(changes):
            made.__dict__["inventory"] = self.inventory
            if not {"classes", "steps"} & set(changes):
                made.__dict__["allocator"] = self.allocator
        if "holders" not in changes:
            made.__dict__["allocated"] = self.allocated
        return made

    @cached_property
    def inventory(self) -> Inventory:
        """The devices."""
        return Inventory(self.slices, self.features, self.rules)

    @cached_property
    def selectors(self) -> Selectors:
        """What selectors said so far."""
        return Selectors(self.features.cel)

    @cached_property
    def allocator(self) -> Allocator:
        """The allocator."""
        made = Allocator(self.inventory, self.classes, self.features, max_steps=self.steps)
        made.selectors = self.selectors
        return made

    @cached_property
    def allocated(self) -> Allocated:
        """What the holders hold."""
        return Allocated.of(self.holders)

    @property
    def claim(self) -> JSON:
        """The one that is explained."""
        return self.claims[-1]

    @cached_property
    def plan(self) -> ClaimPlan:
        """It, read; AllocationError if it cannot be worked with at all."""
        return self.allocator.plan(self.claim)

    def attempt(self, node: JSON, claims: Iterable[JSON] | None = None) -> Attempt:
        """What the allocator says of a node."""
        try:
            found = self.allocator.allocate(node, list(self.claims if claims is None else claims), self.allocated)
        except InvalidPoolsError as error:
            return Attempt(error=str(error))
        except SearchLimitError as error:
            return Attempt(error=in_short(error), final=True, given_up=True)
        except AllocationError as error:
            return Attempt(error=in_short(error), final=True)
        return Attempt(None if found is None else tuple(found))

    @cached_property
    def users(self) -> Mapping[DeviceId, tuple[JSON, ...]]:
        """The claims that hold a device, admin access apart."""
        found: dict[DeviceId, tuple[JSON, ...]] = {}
        for claim in self.holders:
            for result in results_of(claim):
                if not result.get("adminAccess"):
                    device = DeviceId(result["driver"], result["pool"], result["device"])
                    found[device] = (*found.get(device, ()), claim)
        return found


def in_short(error: AllocationError) -> str:
    """An error of the allocator without the claim's name, which goes without saying, and without the expression."""
    text = str(error)
    if isinstance(error, SelectorError):
        text = f"{error.where} has no answer for {error.device}: {error.problem.problem}"
    return re.sub(r"^claim [^ ,:]+[,:] ", "", text).replace("selector #", "selector ")


def results_of(claim: JSON) -> list[JSON]:
    """The devices of a claim, as in `status.allocation.devices.results`."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return list((allocation.get("devices") or {}).get("results") or ())


def with_allocation(claim: JSON, allocation: JSON) -> JSON:
    """The claim as it would be once it has these devices."""
    return claim | {"status": {**(claim.get("status") or {}), "allocation": allocation}}
