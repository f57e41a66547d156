"""What each request of a claim needs on a node: a number of devices, or all that match; and which devices it can use.

Source: resource.k8s.io/v1 DeviceAllocationMode; k8s.io/dynamic-resource-allocation, structured (1.36, 1.37).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dra_sdk.tools.scheduling.allocator.allocation_errors import AllocationError, SelectorError
from dra_sdk.tools.scheduling.allocator.claim_requests import MAX_RESULTS, ParsedClaim, ParsedRequest
from dra_sdk.tools.scheduling.allocator.device_choices import DeviceChoices
from dra_sdk.tools.scheduling.allocator.devices import DeviceId
from dra_sdk.tools.scheduling.allocator.features import SchedulerFeatures
from dra_sdk.tools.scheduling.allocator.inventory import NodeInventory
from dra_sdk.tools.scheduling.allocator.pools import Candidate
from dra_sdk.tools.scheduling.allocator.selectors import RequestSelectors, SelectorCache


@dataclass(slots=True, eq=False)
class RequestNeed:
    """What a request needs on a node.

    request: the request.
    selection: its selectors.
    features: what the scheduler can do.
    count: how many devices it needs.
    all_devices: the devices that it needs in mode All; None in mode ExactCount.
    """

    request: ParsedRequest
    selection: RequestSelectors
    features: SchedulerFeatures
    count: int = 0
    all_devices: Sequence[Candidate] | None = None

    def is_selected(self, candidate: Candidate) -> bool:
        """Return whether the request selects a device, in use or not; SelectorError if a selector fails."""
        if candidate.device.binding_conditions and not self.features.binding_conditions:
            return False
        return self.selection.selects(candidate.content, self.request, candidate.id) and candidate.on_node

    def has_capacity_error(self, candidate: Candidate) -> bool:
        """Return whether asking a device for capacity raises an error."""
        may_fail = self.features.consumable_capacity and self.features.behaviour.exact_capacity
        return may_fail and self.request.capacity_request.raises_error_for(candidate.content)


class ClaimNeeds:
    """What the requests of a claim need; in mode ExactCount that is the same on every node."""

    def __init__(self, parsed: ParsedClaim, selectors: SelectorCache, features: SchedulerFeatures) -> None:
        self.parsed_claim = parsed
        self._features, self._selectors = features, selectors
        self._exact_counts = {
            request: self._make_need(request) for request in parsed.requests if request.count is not None
        }
        #: Requests in mode All; how many devices they need depends on the node.
        self.all_mode_requests = [request for request in parsed.requests if request.count is None]
        if not self.all_mode_requests:
            self._check_total(self._exact_counts)

    def _make_need(self, request: ParsedRequest) -> RequestNeed:
        return RequestNeed(request, self._selectors.for_request(request), self._features, request.count or 0)

    def first_need(self) -> RequestNeed | None:
        """Return what the first request needs, or None if that depends on an alternative or on the node."""
        groups = self.parsed_claim.groups
        return self._exact_counts.get(groups[0].alternatives[0]) if groups and not groups[0].prioritized else None

    def on_node(self, devices: NodeInventory, choices: DeviceChoices) -> Mapping[ParsedRequest, RequestNeed]:
        """Return what each request needs on a node.

        AllocationError if a request has mode All and a pool of the node is incomplete or invalid, and if the claim
        needs more devices than a claim may have, whichever alternatives are chosen.
        """
        if not self.all_mode_requests:
            return self._exact_counts
        needs = dict(self._exact_counts)
        for request in self.all_mode_requests:
            need = needs[request] = self._make_need(request)
            need.all_devices = list(_matching_devices(need, devices, choices))
            need.count = len(need.all_devices)
        self._check_total(needs)
        return needs

    def _check_total(self, needs: Mapping[ParsedRequest, RequestNeed]) -> None:
        total = sum(min(needs[request].count for request in group.alternatives) for group in self.parsed_claim.groups)
        if total > MAX_RESULTS:
            problem = f"number of requested devices {total} exceeds the claim limit of {MAX_RESULTS}"
            raise AllocationError(f"claim {self.parsed_claim.label}: {problem}")


def _matching_devices(need: RequestNeed, devices: NodeInventory, choices: DeviceChoices) -> Iterator[Candidate]:
    request = need.request
    for pool in devices.pools:
        if pool.incomplete or pool.invalid:
            state = "being updated" if pool.incomplete else "invalid"
            problem = f"asks for all devices, but resource pool {pool.name} is currently {state}"
            raise AllocationError(f"claim {request.claim}, request {request.name}: {problem}")
        for candidate in pool.candidates:
            if need.is_selected(candidate) and choices.counts_for_all_mode(request, candidate.device):
                yield candidate


class EligibleDevices:
    """The devices that a request can use, in order: unused, selected, untainted and with enough capacity.

    They are searched for only as far as needed, and once for all devices of a request: which of them are chosen does
    not change whether the others can be used.
    """

    __slots__ = ("_found", "_more")

    def __init__(self, claim: int, need: RequestNeed, candidates: Sequence[Candidate], choices: DeviceChoices) -> None:
        self._found: list[Candidate] = []
        self._more = _find_eligible(claim, need, candidates, choices)

    def __getitem__(self, index: int) -> Candidate:
        return self._found[index]

    def has_at_least(self, count: int) -> bool:
        """Return whether there are at least `count` devices; searches no further than that."""
        while len(self._found) < count:
            candidate = next(self._more, None)
            if candidate is None:
                return False
            self._found.append(candidate)
        return True


def _find_eligible(
    claim: int, need: RequestNeed, candidates: Sequence[Candidate], choices: DeviceChoices
) -> Iterator[Candidate]:
    request = need.request
    for candidate in candidates:
        choices.examined += 1
        if (
            not choices.in_use(candidate.id, request, claim)
            and need.is_selected(candidate)
            and choices.has_capacity(request, candidate.device)
            and choices.may_use(request, candidate.device)
        ):
            yield candidate


def has_too_few_devices(need: RequestNeed, candidates: Sequence[Candidate], unavailable: Collection[DeviceId]) -> bool:
    """Return whether there are too few devices for a request; cheap, and often true on full nodes.

    Returns False for admin access, and if examining more devices would raise an error. `unavailable` are the devices in
    use.
    """
    missing = need.count
    if need.request.admin_access or missing < 1:
        return False
    known = need.selection.known_results
    for candidate in candidates:
        if candidate.id in unavailable or known.get(candidate.content) is False:
            continue
        if need.is_selected(candidate):
            missing -= 1
            if not missing or need.has_capacity_error(candidate):
                return False
    return True


def count_selected(need: RequestNeed, candidates: Sequence[Candidate], unavailable: Collection[DeviceId]) -> int | None:
    """Return how many available devices a request selects; None if a selector or the capacity may raise an error."""
    try:
        selected = [device for device in candidates if device.id not in unavailable and need.is_selected(device)]
    except SelectorError:
        return None
    return None if any(map(need.has_capacity_error, selected)) else len(selected)
