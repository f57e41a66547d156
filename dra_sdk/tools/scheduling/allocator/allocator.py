"""Allocating devices for the claims of a pod on a node."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator import nodes, requests, result
from dra_sdk.tools.scheduling.allocator.allocated import Allocated
from dra_sdk.tools.scheduling.allocator.choices import Choices
from dra_sdk.tools.scheduling.allocator.eligible import hopeless
from dra_sdk.tools.scheduling.allocator.errors import InvalidPoolsError
from dra_sdk.tools.scheduling.allocator.features import Features
from dra_sdk.tools.scheduling.allocator.inventory import Inventory, NodeView
from dra_sdk.tools.scheduling.allocator.needs import Need, Needs
from dra_sdk.tools.scheduling.allocator.requests import ClaimPlan, Request
from dra_sdk.tools.scheduling.allocator.search import Search
from dra_sdk.tools.scheduling.allocator.selectors import Selectors

MAX_STEPS: Final = 1_000_000
"""After how many steps a search is given up, about 4 s; the scheduler goes by time and gives a node 10 s."""
SKIPS_OPERATIONS: Final = "DRAOptionalNodeOperations"
"""What a node declares that can leave out operations which a slice skips."""
_REMEMBERED: Final = 64


def new_share_id() -> str:
    """A new ID for a share of a device."""
    return str(uuid.uuid4())


class Allocator:
    """Finds devices as kube-scheduler does, of the release that the features are those of, and the same ones.

    `classes` are the DeviceClasses by name; they and the inventory's slices must not change afterwards. Without
    `features` those of the inventory apply. What selectors said about a device is remembered, so use one allocator for
    many claims and nodes. Not for several threads at once.
    """

    def __init__(
        self,
        inventory: Inventory,
        classes: Mapping[str, JSON],
        features: Features | None = None,
        *,
        share_id: Callable[[], str] = new_share_id,
        max_steps: int = MAX_STEPS,
    ) -> None:
        self.inventory, self.classes = inventory, classes
        self.features = inventory.features if features is None else features
        self.selectors = Selectors(self.features.cel)
        #: How many steps the last search took, and with the devices that it tried and looked at.
        self.steps = self.work = 0
        #: After how many steps the next search is given up.
        self.max_steps = max_steps
        self._share_id = share_id
        self._known: dict[int, tuple[JSON, JSON, Needs]] = {}

    def plan(self, claim: JSON) -> ClaimPlan:
        """A claim, read; AllocationError if it, or a class it names, cannot be worked with."""
        return self._needs(claim).plan

    def _needs(self, claim: JSON) -> Needs:
        """The needs of a claim, which is read again only if it changed."""
        known = self._known.get(id(claim))
        if known is not None and known[0] is claim and known[1] == _identity(claim):
            return known[2]
        made = Needs(requests.parse(claim, self.classes, self.features), self.selectors, self.features)
        if len(self._known) >= _REMEMBERED:
            self._known.pop(next(iter(self._known)))
        self._known[id(claim)] = (claim, deepcopy(_identity(claim)), made)
        return made

    def allocate(self, node: JSON, claims: Sequence[JSON], allocated: Allocated) -> list[JSON] | None:
        """One `status.allocation` for each claim, in order; None where they do not fit on this node.

        `allocated` is what is in use and stays as it is. Raises AllocationError where the scheduler reports an error:
        a claim, class or slice that cannot be worked with, a selector that has no answer (SelectorError), all devices
        asked of a pool that is incomplete, and InvalidPoolsError where other nodes may still do.
        """
        claims_needs = [self._needs(claim) for claim in claims]
        view = self.inventory.view(node)
        search = self._searched(claims_needs, view, allocated, skips=nodes.declares(node, SKIPS_OPERATIONS))
        if search is None:
            if view.invalid:
                reasons = ", ".join(f"{pool} ({reason})" for pool, reason in view.invalid.items())
                raise InvalidPoolsError(f"invalid resource pools were encountered: {reasons}")
            return None
        name = nodes.name_of(node)
        written = partial(result.allocation, node=name, features=self.features, share_id=self._share_id)
        return [
            written(plan, chosen, _chosen(plan, index, search))
            for index, (plan, chosen) in enumerate(zip(search.plans, search.choices.chosen, strict=True))
        ]

    def _searched(
        self, claims_needs: Sequence[Needs], view: NodeView, allocated: Allocated, *, skips: bool
    ) -> Search | None:
        """The search that found everything, None if none did."""
        self.steps = self.work = 0
        simple = claims_needs and not any(each.open or each.plan.derives for each in claims_needs)
        first = claims_needs[0].first() if simple else None
        taken = allocated.exclusive(sharing=self.features.consumable_capacity)
        if first is not None and hopeless(first, view.candidates, taken):
            return None
        plans = [each.plan for each in claims_needs]
        constrained = any(plan.constraints for plan in plans)
        plain = constrained and view.plain
        choices = Choices(plans, allocated, self.features, plain=plain, skips=skips)
        needs: dict[Request, Need] = {}
        for each in claims_needs:
            needs.update(each.on(view, choices))
        search = Search(plans, needs, view.candidates, choices, limit=self.max_steps)
        try:
            return search if search.run() else None
        finally:
            self.steps, self.work = search.steps, search.work


def _identity(claim: JSON) -> JSON:
    """The parts of a claim that are read."""
    return {"metadata": claim.get("metadata"), "spec": claim.get("spec")}


def _chosen(plan: ClaimPlan, claim: int, search: Search) -> list[Request]:
    return [group.alternatives[search.chosen.get((claim, index), 0)] for index, group in enumerate(plan.groups)]
