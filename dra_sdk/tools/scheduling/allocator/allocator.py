"""Allocates devices for the claims of a pod on a node."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator.allocated_state import AllocatedState
from dra_sdk.tools.scheduling.allocator.allocation_errors import InvalidPoolsError
from dra_sdk.tools.scheduling.allocator.allocation_result import allocation_result
from dra_sdk.tools.scheduling.allocator.backtracking import Search
from dra_sdk.tools.scheduling.allocator.claim_requests import ParsedClaim, ParsedRequest, parse_claim
from dra_sdk.tools.scheduling.allocator.device_choices import DeviceChoices
from dra_sdk.tools.scheduling.allocator.eligible_devices import ClaimNeeds, RequestNeed, has_too_few_devices
from dra_sdk.tools.scheduling.allocator.inventory import Inventory, NodeInventory
from dra_sdk.tools.scheduling.allocator.node_selection import declares_feature, node_name
from dra_sdk.tools.scheduling.allocator.selectors import SelectorCache

MAX_STEPS: Final = 1_000_000
"""The largest number of steps of a search, about 4 s; kube-scheduler has a time limit of 10 s for a node instead."""
OPTIONAL_NODE_OPERATIONS: Final = "DRAOptionalNodeOperations"
"""The declared feature of a node that can skip the operations of `spec.skipNodeOperations`."""
_CACHED_CLAIMS: Final = 64


def new_share_id() -> str:
    """Return a new ID for a share of a device."""
    return str(uuid.uuid4())


class Allocator:
    """Allocates the devices that kube-scheduler would allocate, in the release of the features.

    `classes` are the DeviceClasses by name; they and the inventory's slices must not change afterwards. The features
    are those of the inventory. Results of selectors are cached, so use one allocator for many claims and nodes. Not
    thread-safe.
    """

    def __init__(
        self,
        inventory: Inventory,
        classes: Mapping[str, JSON],
        *,
        share_id: Callable[[], str] = new_share_id,
        max_steps: int = MAX_STEPS,
    ) -> None:
        self.inventory, self.classes = inventory, classes
        self.features = inventory.features
        self.selectors = SelectorCache(self.features.cel)
        #: The steps of the last search, and its whole cost in steps, see `Search.work`.
        self.steps = self.work = 0
        #: The largest cost of the next search, in steps.
        self.max_steps = max_steps
        self._share_id = share_id
        self._cache: dict[int, tuple[JSON, JSON, ClaimNeeds]] = {}

    def parse(self, claim: JSON) -> ParsedClaim:
        """Parse a claim; AllocationError if it, or a class that it names, cannot be processed."""
        return self._claim_needs(claim).parsed_claim

    def _claim_needs(self, claim: JSON) -> ClaimNeeds:
        """Return the needs of a claim, which is parsed again only if it changed."""
        cached = self._cache.get(id(claim))
        if cached is not None and cached[0] is claim and cached[1] == _relevant_parts(claim):
            return cached[2]
        needs = ClaimNeeds(parse_claim(claim, self.classes, self.features), self.selectors, self.features)
        if len(self._cache) >= _CACHED_CLAIMS:
            self._cache.pop(next(iter(self._cache)))
        self._cache[id(claim)] = (claim, deepcopy(_relevant_parts(claim)), needs)
        return needs

    def allocate(self, node: JSON, claims: Sequence[JSON], allocated: AllocatedState) -> list[JSON] | None:
        """Return one `status.allocation` for each claim, in order; None if they do not fit on this node.

        `allocated` is what is in use and is not changed. Raises AllocationError where kube-scheduler reports an error:
        a claim, class or slice that cannot be processed, a selector that fails (SelectorError), mode All with an
        incomplete pool, a search that takes too long (SearchLimitError). InvalidPoolsError means that other nodes may
        still fit.
        """
        claims_needs = [self._claim_needs(claim) for claim in claims]
        devices = self.inventory.node_devices(node)
        search = self._search(
            claims_needs, devices, allocated, node_skips_operations=declares_feature(node, OPTIONAL_NODE_OPERATIONS)
        )
        if search is None:
            if devices.invalid:
                reasons = ", ".join(f"{pool} ({reason})" for pool, reason in devices.invalid.items())
                raise InvalidPoolsError(f"invalid resource pools were encountered: {reasons}")
            return None
        name = node_name(node)
        write_result = partial(allocation_result, node=name, features=self.features, share_id=self._share_id)
        return [
            write_result(parsed, chosen, _chosen_requests(parsed, index, search))
            for index, (parsed, chosen) in enumerate(zip(search.parsed_claims, search.choices.by_claim, strict=True))
        ]

    def _search(
        self,
        claims_needs: Sequence[ClaimNeeds],
        devices: NodeInventory,
        allocated: AllocatedState,
        *,
        node_skips_operations: bool,
    ) -> Search | None:
        """Return the successful search, None if there is no solution."""
        self.steps = self.work = 0
        simple = claims_needs and not any(
            need.all_mode_requests or need.parsed_claim.has_derived_attributes for need in claims_needs
        )
        first = claims_needs[0].first_need() if simple else None
        unavailable = allocated.unavailable_devices(sharing=self.features.consumable_capacity)
        if first is not None and has_too_few_devices(first, devices.candidates, unavailable):
            return None
        parsed_claims = [need.parsed_claim for need in claims_needs]
        constrained = any(parsed.constraints for parsed in parsed_claims)
        all_scalar = constrained and devices.all_scalar
        choices = DeviceChoices(
            parsed_claims, allocated, self.features, all_scalar=all_scalar, node_skips_operations=node_skips_operations
        )
        needs: dict[ParsedRequest, RequestNeed] = {}
        for need in claims_needs:
            needs.update(need.on_node(devices, choices))
        search = Search(parsed_claims, needs, devices.candidates, choices, limit=self.max_steps)
        try:
            return search if search.run() else None
        finally:
            self.steps, self.work = search.steps, search.work


def _relevant_parts(claim: JSON) -> JSON:
    """Return the parts of a claim that are parsed."""
    return {"metadata": claim.get("metadata"), "spec": claim.get("spec")}


def _chosen_requests(parsed: ParsedClaim, claim: int, search: Search) -> list[ParsedRequest]:
    return [
        group.alternatives[search.chosen_alternatives.get((claim, index), 0)]
        for index, group in enumerate(parsed.groups)
    ]
