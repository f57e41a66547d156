"""The devices chosen so far for the claims of one allocation, each with what is needed to undo the choice.

Source: KEP-4381, KEP-4815, KEP-5075; k8s.io/dynamic-resource-allocation, structured (1.36, 1.37).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dra_sdk.tools.scheduling.allocator.allocated_state import AllocatedState, NanoCapacity
from dra_sdk.tools.scheduling.allocator.allocation_errors import AllocationError
from dra_sdk.tools.scheduling.allocator.claim_requests import ParsedClaim, ParsedRequest
from dra_sdk.tools.scheduling.allocator.constraints import Constraint, make_constraint
from dra_sdk.tools.scheduling.allocator.consumable_capacity import ConsumedCapacity
from dra_sdk.tools.scheduling.allocator.devices import DeviceId, PoolDevice
from dra_sdk.tools.scheduling.allocator.features import SchedulerFeatures
from dra_sdk.tools.scheduling.allocator.pools import Candidate
from dra_sdk.tools.scheduling.allocator.shared_counters import CompatibilityGroups, GroupsByCounterSet, SharedCounters
from dra_sdk.tools.scheduling.device_taints import untolerated_taints


@dataclass(slots=True, eq=False)
class DeviceChoice:
    """A device chosen for a request, with what is needed to undo the choice.

    claim: the index of the claim.
    request: the request.
    candidate: the device.
    shared: whether other claims may use the device too.
    counters_reserved: whether its counters are reserved.
    previous_groups: the groups on its counter sets before; None if it was not added to them.
    consumed: the capacity that the request consumes.
    previous_capacity: what this allocation consumed of the device before; None if it consumed nothing.
    """

    claim: int
    request: ParsedRequest
    candidate: Candidate
    shared: bool
    counters_reserved: bool = False
    previous_groups: GroupsByCounterSet | None = None
    consumed: Sequence[ConsumedCapacity] = ()
    previous_capacity: NanoCapacity | None = None


class DeviceChoices:
    """All choices of one allocation; `by_claim` has them for each claim, in the order of the results.

    `all_scalar` tells that all attributes of all candidates are single values, `node_skips_operations` that the node
    can skip the operations of `spec.skipNodeOperations`.
    """

    def __init__(
        self,
        parsed_claims: Sequence[ParsedClaim],
        allocated: AllocatedState,
        features: SchedulerFeatures,
        *,
        all_scalar: bool = False,
        node_skips_operations: bool = False,
    ) -> None:
        self._allocated, self._features, self._all_scalar = allocated, features, all_scalar
        self._node_skips_operations = node_skips_operations and features.optional_node_operations
        self._has_derived_attributes = [parsed.has_derived_attributes for parsed in parsed_claims]
        #: The devices that no claim can have, except for admin access.
        self.unavailable = allocated.unavailable_devices(sharing=features.consumable_capacity)
        self.by_claim: list[list[DeviceChoice]] = [[] for _ in parsed_claims]
        self.counters = SharedCounters(allocated)
        self.groups = CompatibilityGroups(allocated) if features.compatibility_groups else None
        self.constraints: list[list[Constraint]] = [
            [make_constraint(constraint, features) for constraint in parsed.constraints] for parsed in parsed_claims
        ]
        #: How many devices were examined and tried so far: the cost of a search in addition to its steps.
        self.examined = self.tried = 0
        self._claims: dict[DeviceId, list[int]] = {}
        self._consumed: dict[DeviceId, NanoCapacity] = {}

    def depends_on_undone(self, claim: int) -> bool:
        """Return whether a choice can still matter after it was undone or refused, so that none may be skipped.

        That is the case if a constraint depends on removed devices, or if deriving an attribute may raise an error.
        """
        if self._has_derived_attributes[claim]:
            return True
        listed = self.constraints[claim]
        if any(constraint.forgets_on_removal for constraint in listed[:-1]):
            return True
        return any(constraint.depends_on_removed for constraint in listed) and not self._all_scalar

    def excluded(self, claim: int, request: ParsedRequest, device: PoolDevice) -> bool:
        """Return whether a constraint rejects a device now and after any other choices for the claim."""
        return any(constraint.excludes(request, device) for constraint in self.constraints[claim])

    def in_use(self, device: DeviceId, request: ParsedRequest, claim: int) -> bool:
        """Return whether a device is taken: by any claim, or for admin access by the same claim."""
        if request.admin_access:
            return claim in self._claims.get(device, ())
        return device in self.unavailable or device in self._claims

    def has_capacity(self, request: ParsedRequest, device: PoolDevice) -> bool:
        """Return whether what is left of the device's capacity is enough for a request."""
        if not self._features.consumable_capacity:
            return True
        needed = request.capacity_request.consumed_from(device.content)
        if not needed:
            return needed is not None
        used = self._allocated.aggregated_capacity.get(device.id, {})
        own = self._consumed.get(device.id, {})
        return all(used.get(name, 0) + own.get(name, 0) + value.nano <= available for name, value, available in needed)

    def counts_for_all_mode(self, request: ParsedRequest, device: PoolDevice) -> bool:
        """Return whether a request in mode All includes this device, as far as capacity is concerned."""
        if not (self._features.behaviour.all_mode_counts_full_devices and self._features.consumable_capacity):
            return self.has_capacity(request, device)
        return request.capacity_request.fits_unused(device.content)

    def choose(
        self, claim: int, request: ParsedRequest, candidate: Candidate, *, required: bool
    ) -> DeviceChoice | None:
        """Choose a device that the selectors select; None, and nothing changes, if it cannot be chosen now.

        `required` is for a device without alternative: AllocationError if a constraint rejects it.
        """
        self.tried += 1
        device = candidate.device
        if self.in_use(candidate.id, request, claim) or not self.may_use(request, device):
            return None
        shared = device.allow_multiple and self._features.consumable_capacity
        choice = DeviceChoice(claim, request, candidate, shared)
        if not self._reserve(choice):
            return None
        if not self._add_to_constraints(choice):
            self._release(choice)
            if required:
                problem = f"cannot add device {device.id} because a claim constraint would not be satisfied"
                raise AllocationError(f"claim {request.claim}, request {request.name}: {problem}")
            return None
        # The cheaper check comes last, because a constraint that rejects a required device is an error.
        if required and not self.has_capacity(request, device):
            self._remove_from_constraints(choice, len(self.constraints[claim]))
            self._release(choice)
            return None
        self._record(choice)
        return choice

    def may_use(self, request: ParsedRequest, device: PoolDevice) -> bool:
        """Return whether a request can have a device while nothing is in use."""
        features = self._features
        if device.skipped_operations and features.variant == "experimental" and not self._node_skips_operations:
            return False
        if device.counters and not features.partitionable_devices:
            return False
        tainted = device.taints and features.device_taints and untolerated_taints(device.taints, request.tolerations)
        return not tainted

    def _reserve(self, choice: DeviceChoice) -> bool:
        """Reserve the counters of a device, once for all its shares; False if that is not possible."""
        device, pool = choice.candidate.device, choice.candidate.pool
        if not device.counters or (choice.shared and self._is_shared(device.id)):
            return True
        if self.groups and not self.groups.admits(pool, device):
            return False
        choice.counters_reserved = self.counters.reserve(pool, device)
        if choice.counters_reserved and self.groups:
            choice.previous_groups = self.groups.place(pool, device)
        return choice.counters_reserved

    def _release(self, choice: DeviceChoice) -> None:
        if choice.counters_reserved:
            self.counters.release(choice.candidate.pool, choice.candidate.device)
        if self.groups and choice.previous_groups is not None:
            self.groups.restore(choice.candidate.pool, choice.previous_groups)

    def _is_shared(self, device: DeviceId) -> bool:
        if device in self._allocated.aggregated_capacity or device in self._consumed:
            return True
        return self._features.behaviour.every_share_keeps_counters and device in self._allocated.share_ids

    def _add_to_constraints(self, choice: DeviceChoice) -> bool:
        for count, constraint in enumerate(self.constraints[choice.claim]):
            if not constraint.add(choice.request, choice.candidate.device):
                self._remove_from_constraints(choice, count)
                return False
        return True

    def _remove_from_constraints(self, choice: DeviceChoice, count: int) -> None:
        for constraint in reversed(self.constraints[choice.claim][:count]):
            constraint.remove(choice.request)

    def _record(self, choice: DeviceChoice) -> None:
        device_id = choice.candidate.id
        if choice.shared:
            needed = choice.request.capacity_request.consumed_from(choice.candidate.content) or ()
            choice.consumed = needed
            choice.previous_capacity = self._consumed.get(device_id)
            after = dict(choice.previous_capacity or {})
            for name, value, _ in needed:
                after[name] = after.get(name, 0) + value.nano
            self._consumed[device_id] = after
        else:
            self._claims.setdefault(device_id, []).append(choice.claim)
        self.by_claim[choice.claim].append(choice)

    def undo(self, choice: DeviceChoice) -> None:
        """Undo the latest choice."""
        device_id = choice.candidate.id
        self.by_claim[choice.claim].pop()
        if not choice.shared:
            claims = self._claims[device_id]
            claims.remove(choice.claim)
            if not claims:
                del self._claims[device_id]
        elif choice.previous_capacity is None:
            del self._consumed[device_id]
        else:
            self._consumed[device_id] = choice.previous_capacity
        self._remove_from_constraints(choice, len(self.constraints[choice.claim]))
        self._release(choice)
