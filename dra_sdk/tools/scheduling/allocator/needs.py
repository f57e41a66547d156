"""What each request of a claim needs on a node: a number of devices, or every device that it selects.

Source: resource.k8s.io/v1 DeviceAllocationMode; k8s.io/dynamic-resource-allocation, structured (1.36, 1.37).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dra_sdk.tools.scheduling.allocator.choices import Choices
from dra_sdk.tools.scheduling.allocator.errors import AllocationError
from dra_sdk.tools.scheduling.allocator.features import Features
from dra_sdk.tools.scheduling.allocator.inventory import NodeView
from dra_sdk.tools.scheduling.allocator.pools import Candidate
from dra_sdk.tools.scheduling.allocator.requests import MAX_RESULTS, ClaimPlan, Request
from dra_sdk.tools.scheduling.allocator.selectors import Selection, Selectors


@dataclass(slots=True, eq=False)
class Need:
    """What a request needs on a node: `every` one of these devices where it asks for all, else `count` of them.

    Without the feature `binding_conditions`, devices that have some are never selectable; `judged` says that asking a
    device for capacity can be an error.
    """

    request: Request
    selection: Selection
    binding_conditions: bool
    judged: bool
    count: int = 0
    every: Sequence[Candidate] | None = None

    def selectable(self, candidate: Candidate) -> bool:
        """Whether a device is one that the request asks for, free or not; SelectorError if that cannot be said."""
        if candidate.device.binding_conditions and not self.binding_conditions:
            return False
        return self.selection.selects(candidate.content, self.request, candidate.id) and candidate.here

    def fails(self, candidate: Candidate) -> bool:
        """Whether asking a device for capacity is an error."""
        return self.judged and self.request.demand.fails(candidate.content)


class Needs:
    """The needs of a claim. Those of a number of devices are the same on every node."""

    def __init__(self, plan: ClaimPlan, selectors: Selectors, features: Features) -> None:
        self.plan = plan
        self._features, self._selectors = features, selectors
        self._fixed = {request: self._need(request) for request in plan.requests if request.count is not None}
        #: Requests for all devices, which depend on the node.
        self.open = [request for request in plan.requests if request.count is None]
        if not self.open:
            self._check(self._fixed)

    def _need(self, request: Request) -> Need:
        features = self._features
        selection = self._selectors.of(request)
        judged = features.consumable_capacity and features.behaviour.exact_amounts
        return Need(request, selection, features.binding_conditions, judged, request.count or 0)

    def first(self) -> Need | None:
        """What the claim needs first, where nothing has to be chosen before that can be said."""
        groups = self.plan.groups
        return self._fixed.get(groups[0].alternatives[0]) if groups and not groups[0].optional else None

    def on(self, view: NodeView, choices: Choices) -> Mapping[Request, Need]:
        """The needs on a node.

        AllocationError where a request is for all devices and a pool of the node is incomplete or invalid, and where
        the claim wants more devices than it may have, whatever is chosen.
        """
        if not self.open:
            return self._fixed
        found = dict(self._fixed)
        for request in self.open:
            need = found[request] = self._need(request)
            need.every = list(_every(need, view, choices))
            need.count = len(need.every)
        self._check(found)
        return found

    def _check(self, found: Mapping[Request, Need]) -> None:
        total = sum(min(found[request].count for request in group.alternatives) for group in self.plan.groups)
        if total > MAX_RESULTS:
            problem = f"number of requested devices {total} exceeds the claim limit of {MAX_RESULTS}"
            raise AllocationError(f"claim {self.plan.label}: {problem}")


def _every(need: Need, view: NodeView, choices: Choices) -> Iterator[Candidate]:
    request = need.request
    for pool in view.pools:
        if pool.incomplete or pool.invalid:
            state = "being updated" if pool.incomplete else "invalid"
            problem = f"asks for all devices, but resource pool {pool.name} is currently {state}"
            raise AllocationError(f"claim {request.claim}, request {request.name}: {problem}")
        for candidate in pool.candidates:
            if need.selectable(candidate) and choices.counts(request, candidate.device):
                yield candidate
