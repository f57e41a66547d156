"""The checks of a device other than selectors, and the funnel that applies one check after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.model.quantity import Quantity
from dra_sdk.texts import limited, shortened
from dra_sdk.tools.scheduling.allocator import OPTIONAL_NODE_OPERATIONS, AllocationError, DeviceId
from dra_sdk.tools.scheduling.allocator.claim_requests import ParsedRequest
from dra_sdk.tools.scheduling.allocator.constraints import attribute_values, request_attribute
from dra_sdk.tools.scheduling.allocator.devices import CounterId
from dra_sdk.tools.scheduling.allocator.node_selection import declares_feature
from dra_sdk.tools.scheduling.allocator.pools import Candidate, Pool
from dra_sdk.tools.scheduling.allocator.quantities import NANOS_PER_UNIT
from dra_sdk.tools.scheduling.allocator.shared_counters import CompatibilityGroups, SharedCounters
from dra_sdk.tools.scheduling.cluster.snapshot import display_name, object_key
from dra_sdk.tools.scheduling.device_taints import taint_text, untolerated_taints
from dra_sdk.tools.scheduling.explain.allocation_problem import AllocationProblem, short_error
from dra_sdk.tools.scheduling.explain.explanation import FailedDevices, FunnelStage

_MAX_DETAILS: Final = 4
_MAX_HOLDERS: Final = 3


@dataclass(frozen=True, slots=True)
class CheckFailure:
    """Why a candidate fails a check.

    text: the reason, a phrase that follows the number of devices.
    detail: what is special about this candidate.
    position: line and column of the CEL conjunct, from 1.
    """

    text: str
    detail: str = ""
    position: tuple[int, int] | None = None


DeviceCheck = Callable[[Candidate], Sequence[CheckFailure]]
"""Returns why a candidate fails the check; nothing if it passes."""


@dataclass(slots=True)
class DeviceFunnel:
    """Candidates that pass one check after the other; `left` are those that passed all so far, `node` is their node."""

    node: str
    left: Sequence[Candidate]
    stages: list[FunnelStage] = field(default_factory=list)

    def apply(self, kind: str, check: DeviceCheck, label: str = "", *, always: bool = False) -> None:
        """Apply a check; without `always`, it becomes a stage only if a candidate fails."""
        results = [(candidate, check(candidate)) for candidate in self.left]
        self.left = [candidate for candidate, reasons in results if not reasons]
        failed = [(candidate, reason) for candidate, reasons in results for reason in reasons]
        if failed or always:
            self.stages.append(FunnelStage(kind, label, len(self.left), tuple(group_failures(failed, self.node))))


def group_failures(failed: Iterable[tuple[Candidate, CheckFailure]], node: str) -> list[FailedDevices]:
    """Group failures by reason, the most frequent first."""
    groups: dict[tuple[str, tuple[int, int] | None], list[tuple[Candidate, str]]] = {}
    for candidate, reason in failed:
        groups.setdefault((reason.text, reason.position), []).append((candidate, reason.detail))
    failures = [
        FailedDevices(
            text, len(group), short_device_name(group[0][0], node), _details([detail for _, detail in group]), position
        )
        for (text, position), group in groups.items()
    ]
    return sorted(failures, key=lambda failure: -failure.count)


def _details(texts: Sequence[str]) -> tuple[str, ...]:
    """Return each text once, with the number of devices if there are several texts."""
    counts = Counter(text for text in texts if text)
    if len(counts) <= 1:
        return tuple(counts)
    texts = [text if count == 1 else f"{text} ({count} devices)" for text, count in counts.most_common()]
    return tuple(limited(texts, _MAX_DETAILS))


def short_device_name(candidate: Candidate, node: str) -> str:
    """Return the name of a device, with its pool unless the pool is named after the node."""
    driver, pool, device = candidate.id
    return device if pool == node else f"{pool}/{device}" if pool else f"{driver}/{device}"


@dataclass(frozen=True)
class DeviceChecks:
    """The checks for the devices of one request on one node; each returns why a candidate fails it.

    problem: the problem.
    request: the request.
    node: the node.
    """

    problem: AllocationProblem
    request: ParsedRequest
    node: JSON

    @cached_property
    def _unavailable(self) -> Collection[DeviceId]:
        return self.problem.allocated.unavailable_devices(sharing=self.problem.features.consumable_capacity)

    @cached_property
    def _counters(self) -> SharedCounters:
        return SharedCounters(self.problem.allocated)

    @cached_property
    def _groups(self) -> CompatibilityGroups:
        return CompatibilityGroups(self.problem.allocated)

    def taints_tolerated(self, candidate: Candidate) -> Sequence[CheckFailure]:
        """Check that its taints are tolerated."""
        untolerated = untolerated_taints(candidate.device.taints, self.request.tolerations)
        return [CheckFailure(f"with taint {taint_text(taint)}, which is not tolerated") for taint in untolerated]

    def not_in_use(self, candidate: Candidate) -> Sequence[CheckFailure]:
        """Check that no claim holds it, or only shares of it."""
        if candidate.id not in self._unavailable:
            return ()
        name = short_device_name(candidate, self.node["metadata"]["name"])
        return (CheckFailure("in use", f"{name} by {holder_names(self.problem, candidate)}"),)

    def capacity_available(self, candidate: Candidate) -> Sequence[CheckFailure]:
        """Check that enough of each capacity is left."""
        return self._missing_capacity(candidate, self.problem.allocated.aggregated_capacity.get(candidate.id, {}))

    def capacity_when_unused(self, candidate: Candidate) -> Sequence[CheckFailure]:
        """Check that the device has enough of each capacity while it is unused."""
        return self._missing_capacity(candidate, {})

    def _missing_capacity(self, candidate: Candidate, used: Mapping[str, int]) -> Sequence[CheckFailure]:
        try:
            needed = self.request.capacity_request.consumed_from(candidate.content)
        except AllocationError as error:
            return (CheckFailure(f"whose capacity request is an error: {short_error(error)}"),)
        if needed is None:
            return (_unsatisfiable(self.request, candidate),)
        is_held = candidate.id in self.problem.claims_by_device
        held = f", the rest is held by {holder_names(self.problem, candidate)}" if is_held else ""
        failures = []
        for name, amount, available in needed:
            if used.get(name, 0) + amount.nano > available:
                left = _amount_left(available, used.get(name, 0), amount.text)
                failures.append(CheckFailure(f"short of capacity {name}: {amount.text} needed", f"{left}{held}"))
        return failures

    def counters_available(self, candidate: Candidate) -> Sequence[CheckFailure]:
        """Check that enough is left of the pool's counters for this device alone."""
        device, pool = candidate.device, candidate.pool
        if not device.counters or self._is_shared_already(candidate):
            return ()
        if not self.problem.features.partitionable_devices:
            return (CheckFailure("that consume counters, but the feature DRAPartitionableDevices is off"),)
        available = self._counters.available(pool)
        if available.overdrawn:
            return (CheckFailure(f"in pool {pool.name}, whose counters are overdrawn"),)
        short = [(name, value) for name, value in device.counters if available.counters.get(name, value) < value]
        return [_counter_shortage(self.problem, pool, short, available.counters)] if short else ()

    def _is_shared_already(self, candidate: Candidate) -> bool:
        """Return whether a share of the device is allocated, so that one more consumes no counters."""
        return candidate.device.allow_multiple and candidate.id in self.problem.claims_by_device

    def groups_compatible(self, candidate: Candidate) -> Sequence[CheckFailure]:
        """Check that it is compatible with the allocated devices on its counter sets."""
        device = candidate.device
        if not device.counters or self._is_shared_already(candidate) or self._groups.admits(candidate.pool, device):
            return ()
        return (CheckFailure("that are not compatible with devices in use on the same counter set"),)

    def operations_supported(self, candidate: Candidate) -> Sequence[CheckFailure]:
        """Check that the node supports the operations that its slice skips."""
        skipped = candidate.device.skipped_operations
        enabled = self.problem.features.optional_node_operations
        if not skipped or (enabled and declares_feature(self.node, OPTIONAL_NODE_OPERATIONS)):
            return ()
        why = f"but the node does not declare {OPTIONAL_NODE_OPERATIONS} in status.declaredFeatures"
        if not enabled:
            why = f"but the feature {OPTIONAL_NODE_OPERATIONS} is off"
        return (CheckFailure(f"that skip {', '.join(skipped)}, {why}"),)

    def attribute_present(self, constraint: JSON, candidate: Candidate) -> Sequence[CheckFailure]:
        """Check that it has the attribute of a constraint, as its driver published it or the request derives it."""
        name = constraint.get("matchAttribute") or constraint["distinctAttribute"]
        try:
            attribute = request_attribute(self.request, candidate.device, name)
        except AllocationError as error:
            return (CheckFailure(f"for which attribute {name} cannot be derived", short_error(error)),)
        if attribute is None:
            return (CheckFailure(f"without attribute {name}"),)
        if not attribute_values(attribute, lists=self.problem.features.list_attributes):
            return (CheckFailure(f"whose attribute {name} has a type that cannot be compared"),)
        return ()


def holder_names(problem: AllocationProblem, candidate: Candidate) -> str:
    """Return the names of the claims that hold a device."""
    holders = problem.claims_by_device.get(candidate.id, ())
    return ", ".join(display_name(object_key(claim)) for claim in holders) or "an unknown claim"


def _unsatisfiable(request: ParsedRequest, candidate: Candidate) -> CheckFailure:
    """Explain a capacity that does not exist, or an amount that the request policy forbids."""
    capacities = candidate.content.device.get("capacity") or {}
    missing = [name for name in request.capacity_request.amounts if name not in capacities]
    if missing:
        return CheckFailure(f"without capacity {', '.join(missing)}", f"it has {', '.join(capacities) or 'none'}")
    requested = ", ".join(f"{name}: {amount.text}" for name, amount in request.capacity_request.amounts.items())
    return CheckFailure(f"whose request policy does not allow {requested}")


def _amount_left(available: int, used: int, like: str) -> str:
    total = quantity_text(available, like)
    return f"{quantity_text(available - used, like)} of {total} left" if used else f"the device has {total}"


def quantity_text(nano: int, like: str) -> str:
    """Return a number of billionths as a quantity, with a binary suffix if `like` has one."""
    return str(Quantity.of(Fraction(nano, NANOS_PER_UNIT), binary=like.endswith("i")))


def _counter_shortage(
    problem: AllocationProblem, pool: Pool, short: Sequence[tuple[CounterId, int]], left: Mapping[CounterId, int]
) -> CheckFailure:
    """Name one counter that is short, if possible not a numbered slot, and who holds it."""
    counter, needed = next((entry for entry in short if not entry[0][1][-1:].isdigit()), short[0])
    counter_set, name = counter
    total = pool.counters[counter]
    like = _example_quantity(pool, counter)
    amounts = [quantity_text(amount, like) for amount in (needed, left[counter], total)]
    detail = f"{counter_set}: {amounts[0]} needed, {amounts[1]} of {amounts[2]} left"
    holders = shortened(list(_counter_holders(problem, pool, counter)), _MAX_HOLDERS)
    return CheckFailure(f"short of counter {name}", f"{detail}; {holders}" if holders else detail)


def _example_quantity(pool: Pool, counter: CounterId) -> str:
    """Return a quantity of the counter as the slice has it, to show its suffix."""
    for device in pool.counter_consumers:
        for consumed in device.json.get("consumesCounters") or ():
            value = (consumed.get("counters") or {}).get(counter[1])
            if consumed["counterSet"] == counter[0] and value:
                return str(value["value"])
    return ""


def _counter_holders(problem: AllocationProblem, pool: Pool, counter: CounterId) -> Iterator[str]:
    """Yield who consumes a counter: `gpu-0-mig-1g is held by a`."""
    for device in pool.counter_consumers:
        if problem.allocated.is_in_use(device.id) and counter in dict(device.counters):
            names = ", ".join(display_name(object_key(claim)) for claim in problem.claims_by_device.get(device.id, ()))
            yield f"{device.id.device} is held by {names}" if names else f"{device.id.device} is in use"
