"""The devices chosen so far for the claims of one allocation, each choice with what it takes to undo it.

Source: KEP-4381, KEP-5075, KEP-4815; k8s.io/dynamic-resource-allocation, structured (1.36, 1.37).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from dra_sdk.tools.scheduling.allocator import constraints
from dra_sdk.tools.scheduling.allocator.allocated import Allocated, Capacity, DeviceId
from dra_sdk.tools.scheduling.allocator.capacity import Consumption
from dra_sdk.tools.scheduling.allocator.constraints import Constraint
from dra_sdk.tools.scheduling.allocator.counters import Counters
from dra_sdk.tools.scheduling.allocator.devices import PoolDevice
from dra_sdk.tools.scheduling.allocator.errors import AllocationError
from dra_sdk.tools.scheduling.allocator.features import Features
from dra_sdk.tools.scheduling.allocator.groups import Groups, Placed
from dra_sdk.tools.scheduling.allocator.pools import Candidate
from dra_sdk.tools.scheduling.allocator.requests import ClaimPlan, Request
from dra_sdk.tools.scheduling.tolerations import untolerated


class Refusal(Enum):
    """Why a device cannot be chosen now."""

    IN_USE = "it is in use"
    COUNTERS_OFF = "it consumes counters, and the DRAPartitionableDevices feature is disabled"
    CAPACITY = "its capacity does not suffice"
    TAINTED = "it has a taint that is not tolerated"
    NODE = "the node cannot do without the operations that its slice skips"
    GROUPS = "its compatibility groups do not go with those of other devices on its counter sets"
    COUNTERS = "the counters of its pool do not suffice"
    CONSTRAINT = "it breaks a constraint of the claim"


class Choice:
    """A device chosen for a request. `shared` if other claims may use it too; `consumed` is what it takes of it."""

    __slots__ = ("before", "candidate", "claim", "consumed", "counters", "groups", "request", "shared")

    def __init__(self, claim: int, request: Request, candidate: Candidate, *, shared: bool) -> None:
        self.claim, self.request, self.candidate, self.shared = claim, request, candidate, shared
        self.counters = False
        #: What was on its counter sets before, None if it was not put there.
        self.groups: Placed | None = None
        self.consumed: Sequence[Consumption] = ()
        #: What was consumed of the device before, None if it was not shared before.
        self.before: Capacity | None = None


class Choices:
    """All choices of one allocation. `chosen` holds them by claim, in the order of the results.

    `plain` says that no device to choose from has a list for an attribute, `skips` that the node can leave out the
    operations that slices skip (`spec.skipNodeOperations`).
    """

    def __init__(
        self,
        plans: Sequence[ClaimPlan],
        allocated: Allocated,
        features: Features,
        *,
        plain: bool = False,
        skips: bool = False,
    ) -> None:
        self._allocated, self._features, self._plain = allocated, features, plain
        self._skips = skips and features.optional_node_operations
        self._derives = [plan.derives for plan in plans]
        #: The devices that no claim can have but for admin access.
        self.exclusive = allocated.exclusive(sharing=features.consumable_capacity)
        self.chosen: list[list[Choice]] = [[] for _ in plans]
        self.counters = Counters(allocated)
        self.groups = Groups(allocated) if features.compatibility_groups else None
        self.constraints: list[list[Constraint]] = [
            [constraints.of(each, features) for each in plan.constraints] for plan in plans
        ]
        #: How many devices were looked at and tried so far: what a search costs beside its steps.
        self.looks = self.tries = 0
        self._claims: dict[DeviceId, list[int]] = {}
        self._consumed: dict[DeviceId, Capacity] = {}

    def keeps_traces(self, claim: int) -> bool:
        """Whether a choice can matter after it was undone or refused: then none may be left out.

        So it is where constraints keep something of it, or an expression that derives an attribute may be an error.
        """
        if self._derives[claim]:
            return True
        listed = self.constraints[claim]
        if any(each.forgets for each in listed[:-1]):
            return True
        return any(each.keeps_traces for each in listed) and not self._plain

    def excluded(self, claim: int, request: Request, device: PoolDevice) -> bool:
        """Whether a constraint refuses a device now, and will whatever else is chosen for the claim."""
        return any(each.excludes(request, device) for each in self.constraints[claim])

    def in_use(self, device: DeviceId, request: Request, claim: int) -> bool:
        """Whether a device is taken: by any claim, or for admin access by the same claim."""
        if request.admin:
            return claim in self._claims.get(device, ())
        return device in self.exclusive or device in self._claims

    def has_capacity(self, request: Request, device: PoolDevice) -> bool:
        """Whether what is left of the device's capacity suffices for a request."""
        if not self._features.consumable_capacity:
            return True
        needed = request.demand.of(device.content)
        if not needed:
            return needed is not None
        used = self._allocated.capacity.get(device.id, {})
        own = self._consumed.get(device.id, {})
        return all(used.get(name, 0) + own.get(name, 0) + value.nano <= available for name, value, available in needed)

    def counts(self, request: Request, device: PoolDevice) -> bool:
        """Whether a request for all devices is for this one too, as far as capacity goes."""
        if not (self._features.behaviour.all_counts_the_full and self._features.consumable_capacity):
            return self.has_capacity(request, device)
        return request.demand.fits(device.content)

    def choose(self, claim: int, request: Request, candidate: Candidate, *, must: bool) -> Choice | Refusal:
        """Takes a device that the selectors select, or says why not; then nothing has changed.

        `must` is for a device without alternative: AllocationError if it is a constraint that refuses it.
        """
        self.tries += 1
        refusal = self._unusable(claim, request, candidate)
        if refusal is not None:
            return refusal
        device = candidate.device
        choice = Choice(claim, request, candidate, shared=device.multiple and self._features.consumable_capacity)
        if refusal := self._reserve(choice):
            return refusal
        if not self._constrain(choice):
            self._release(choice)
            if must:
                problem = f"cannot add device {device.id} because a claim constraint would not be satisfied"
                raise AllocationError(f"claim {request.claim}, request {request.name}: {problem}")
            return Refusal.CONSTRAINT
        # Only now, although it is the cheaper check: a constraint that refuses a device must be heard first.
        if must and not self.has_capacity(request, device):
            self._unconstrain(choice, len(self.constraints[claim]))
            self._release(choice)
            return Refusal.CAPACITY
        self._take(choice)
        return choice

    def _unusable(self, claim: int, request: Request, candidate: Candidate) -> Refusal | None:
        if self.in_use(candidate.id, request, claim):
            return Refusal.IN_USE
        return self.barred(request, candidate.device)

    def barred(self, request: Request, device: PoolDevice) -> Refusal | None:
        """Why a device cannot be had for a request, whatever is in use."""
        features = self._features
        if device.skips_operations and features.variant == "experimental" and not self._skips:
            return Refusal.NODE
        if device.counters and not features.partitionable_devices:
            return Refusal.COUNTERS_OFF
        if device.taints and features.device_taints and untolerated(device.taints, request.tolerations):
            return Refusal.TAINTED
        return None

    def _reserve(self, choice: Choice) -> Refusal | None:
        """Counters are consumed once for all shares of a device."""
        device, pool = choice.candidate.device, choice.candidate.pool
        if not device.counters or (choice.shared and self._is_shared(device.id)):
            return None
        if self.groups and not self.groups.admits(pool, device):
            return Refusal.GROUPS
        choice.counters = self.counters.reserve(pool, device)
        if not choice.counters:
            return Refusal.COUNTERS
        choice.groups = self.groups.place(pool, device) if self.groups else None
        return None

    def _release(self, choice: Choice) -> None:
        if choice.counters:
            self.counters.release(choice.candidate.pool, choice.candidate.device)
        if self.groups and choice.groups is not None:
            self.groups.restore(choice.candidate.pool, choice.groups)

    def _is_shared(self, device: DeviceId) -> bool:
        if device in self._allocated.capacity or device in self._consumed:
            return True
        return self._features.behaviour.every_share_keeps_counters and device in self._allocated.shares

    def _constrain(self, choice: Choice) -> bool:
        for count, constraint in enumerate(self.constraints[choice.claim]):
            if not constraint.add(choice.request, choice.candidate.device):
                self._unconstrain(choice, count)
                return False
        return True

    def _unconstrain(self, choice: Choice, count: int) -> None:
        for constraint in reversed(self.constraints[choice.claim][:count]):
            constraint.remove(choice.request)

    def _take(self, choice: Choice) -> None:
        identity = choice.candidate.id
        if choice.shared:
            needed = choice.request.demand.of(choice.candidate.content) or ()
            choice.consumed = needed
            choice.before = self._consumed.get(identity)
            after = dict(choice.before or {})
            for name, value, _ in needed:
                after[name] = after.get(name, 0) + value.nano
            self._consumed[identity] = after
        else:
            self._claims.setdefault(identity, []).append(choice.claim)
        self.chosen[choice.claim].append(choice)

    def undo(self, choice: Choice) -> None:
        """Takes back the latest choice."""
        identity = choice.candidate.id
        self.chosen[choice.claim].pop()
        if not choice.shared:
            claims = self._claims[identity]
            claims.remove(choice.claim)
            if not claims:
                del self._claims[identity]
        elif choice.before is None:
            del self._consumed[identity]
        else:
            self._consumed[identity] = choice.before
        self._unconstrain(choice, len(self.constraints[choice.claim]))
        self._release(choice)
