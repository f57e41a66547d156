"""What prevents the allocation on each node; nodes with the same findings are grouped.

If there are enough devices for each request alone, conflicts are found by leaving out one thing at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Final

from dra_sdk.cel.fields import format_value
from dra_sdk.model import JSON
from dra_sdk.texts import shortened
from dra_sdk.tools.scheduling.allocator import AllocationError
from dra_sdk.tools.scheduling.allocator.constraints import attribute_values, request_attribute
from dra_sdk.tools.scheduling.allocator.shared_counters import SharedCounters
from dra_sdk.tools.scheduling.cluster.claim_controller import POD_CLAIM_ANNOTATION, with_status
from dra_sdk.tools.scheduling.cluster.snapshot import display_name, grouped, object_key, value_at
from dra_sdk.tools.scheduling.explain.allocation_problem import (
    TRIAL_STEPS,
    AllocationProblem,
    short_error,
)
from dra_sdk.tools.scheduling.explain.device_checks import holder_names, quantity_text
from dra_sdk.tools.scheduling.explain.explanation import Conflict, NodeReport, RequestReport
from dra_sdk.tools.scheduling.explain.request_inspection import (
    RequestInspection,
    RequestInspector,
    constraints_on,
    failing_requests,
)
from dra_sdk.tools.scheduling.explain.trials import REMOVED, ObjectPath, constraint_path, with_value

_MAX_VALUES: Final = 6
_MAX_GROUPS: Final = 5
_MAX_GIVEN_UP: Final = 3
"""How many searches may take too many steps; kube-scheduler stops at the first."""
_KINDS_WITH_NAMES: Final = frozenset({"use", "capacity", "available", "counters"})
"""Checks whose details name devices or claims, which differ on each node."""


def find_conflicts(
    problem: AllocationProblem, node: JSON, inspections: Sequence[RequestInspection]
) -> tuple[Conflict, ...]:
    """Return why a claim does not fit on a node although enough devices are left for each of its requests."""
    problem = problem.with_changes(max_steps=TRIAL_STEPS)
    conflicts = tuple(_constraint_conflicts(problem, node, inspections))
    if conflicts:
        return conflicts
    without = problem.with_changes(slices=tuple(map(_without_counters, problem.slices)))
    if without.slices != problem.slices and without.allocate_on(node).fits:
        return (_counter_conflict(problem, inspections),)
    return (_device_conflict(inspections),)


def _constraint_conflicts(
    problem: AllocationProblem, node: JSON, inspections: Sequence[RequestInspection]
) -> Iterator[Conflict]:
    """Yield the constraints that each prevent the allocation, or all if only removing all of them helps."""
    count = len(problem.parsed_claim.constraints)
    sufficient = [number for number in range(count) if _fits_with(problem, node, constraint_path(number), REMOVED)]
    if not sufficient and count > 1 and _fits_with(problem, node, constraint_path(0)[:-1], REMOVED):
        sufficient = list(range(count))
    for index in sufficient:
        yield _constraint_conflict(problem, node, index, inspections)


def _fits_with(problem: AllocationProblem, node: JSON, path: ObjectPath, value: Any) -> bool:
    """Return whether the claim fits with another value at a path."""
    claim = with_value(problem.claim, path, value)
    return problem.allocate_on(node, [*problem.claims[:-1], claim]).fits


def _constraint_conflict(
    problem: AllocationProblem, node: JSON, index: int, inspections: Sequence[RequestInspection]
) -> Conflict:
    constraint = problem.parsed_claim.constraints[index]
    match = constraint.get("matchAttribute")
    name = str(match or constraint["distinctAttribute"])
    details = [
        f"{inspection.report.request}: {_values_of_attribute(problem, inspection, name)}{_count_needed(inspection)}"
        for inspection in inspections
        if any(number == index for number, _ in constraints_on(problem.parsed_claim, inspection.request))
    ]
    rule = "no value is shared by enough devices" if match else "there are not enough different values"
    alone = [value_at(problem.claim, constraint_path(index))]
    is_one_of_several = len(problem.parsed_claim.constraints) > 1
    if is_one_of_several and _fits_with(problem, node, constraint_path(index)[:-1], alone):
        rule = "cannot be met together with the other constraints"
    kind = "matchAttribute" if match else "distinctAttribute"
    return Conflict("constraint", f"constraint {index} ({kind} {name}): {rule}", tuple(details))


def _count_needed(inspection: RequestInspection) -> str:
    return f"; {inspection.request.count} needed" if (inspection.request.count or 0) > 1 else ""


def _values_of_attribute(problem: AllocationProblem, inspection: RequestInspection, name: str) -> str:
    """Return `pci0000:00 (2 devices), pci0000:01`."""
    lists = problem.features.list_attributes
    counts: Counter[str] = Counter()
    for candidate in inspection.left:
        attribute = request_attribute(inspection.request, candidate.device, name)
        values = attribute_values(attribute, lists=lists) if attribute is not None else None
        counts.update(_value_text(value) for value in sorted(values[1], key=str)) if values else counts.update(["none"])
    texts = [f"{value} ({count} devices)" if count > 1 else value for value, count in counts.most_common()]
    return shortened(texts, _MAX_VALUES)


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else format_value(value)


def _without_counters(raw_slice: JSON) -> JSON:
    spec = raw_slice["spec"]
    if not any("consumesCounters" in device for device in spec.get("devices") or ()):
        return raw_slice
    devices = [{key: value for key, value in device.items() if key != "consumesCounters"} for device in spec["devices"]]
    return raw_slice | {"spec": spec | {"devices": devices}}


def _counter_conflict(problem: AllocationProblem, inspections: Sequence[RequestInspection]) -> Conflict:
    if conflict := _counted_again(problem, inspections):
        return conflict
    shared = SharedCounters(problem.allocated)
    candidates = chain.from_iterable(inspection.left for inspection in inspections)
    pools = dict.fromkeys(candidate.pool for candidate in candidates if candidate.device.counters)
    consumptions = ((inspection.report.request, _consumption(inspection)) for inspection in inspections)
    details = [f"{request}: {consumption}" for request, consumption in consumptions if consumption]
    for pool in pools:
        counters = shared.available(pool).counters
        for name in dict.fromkeys(counter_set for counter_set, _ in counters):
            amounts = _amounts((entry[1], value) for entry, value in counters.items() if entry[0] == name)
            details.append(f"{name} has {amounts} left")
    return Conflict("counters", "there are not enough counters for all devices together", tuple(details))


def _counted_again(problem: AllocationProblem, inspections: Sequence[RequestInspection]) -> Conflict | None:
    """Return the bug of 1.35 and 1.36 that one more share of a device takes its counters again, if it is the reason."""
    if problem.features.behaviour.every_share_keeps_counters:
        return None
    candidates = list(chain.from_iterable(inspection.left for inspection in inspections))
    shared = [
        candidate
        for candidate in candidates
        if candidate.device.counters
        and candidate.id in problem.claims_by_device
        and not problem.allocated.aggregated_capacity.get(candidate.id)
    ]
    if not shared or len(shared) < len(candidates):
        return None
    text = "one more share takes the counters of the device again, as the shares that are held consume no capacity"
    held = {candidate.id.device: holder_names(problem, candidate) for candidate in shared}
    details = [f"{device} is held by {names}" for device, names in held.items()]
    bug = "this is a bug of Kubernetes up to 1.36, mended in 1.37; shares that consume capacity do not have it"
    return Conflict("counters", text, (*details, bug))


def _consumption(inspection: RequestInspection) -> str:
    """Return what a device of a request consumes."""
    first = next((candidate.device for candidate in inspection.left if candidate.device.counters), None)
    if first is None:
        return ""
    count = inspection.request.count or 1
    subject = f"{count} devices, each such as" if count > 1 else "a device such as"
    return f"{subject} {first.id.device} takes {_amounts((name, value) for (_, name), value in first.counters)}"


def _amounts(counters: Iterable[tuple[str, int]]) -> str:
    """Return `memory 40192Mi, multiprocessors 98`; numbered slots are left out if there are other counters."""
    pairs = list(counters)
    kept = [pair for pair in pairs if not pair[0][-1:].isdigit()] or pairs
    return ", ".join(f"{name} {quantity_text(value, _suffix_like(value))}" for name, value in kept[:_MAX_VALUES])


def _suffix_like(nano: int) -> str:
    """Return the suffix with which to show an amount: `Mi` for a multiple of 1024."""
    whole = nano // 10**9
    return "Mi" if whole and whole % 1024 == 0 else ""


def _device_conflict(inspections: Sequence[RequestInspection]) -> Conflict:
    """Explain that requests compete for the same devices, or for the capacity of a shared device."""
    devices = {candidate.id for inspection in inspections for candidate in inspection.left}
    needed = sum(inspection.request.count or len(inspection.left) for inspection in inspections)
    names = ", ".join(inspection.report.request for inspection in inspections)
    if any(candidate.device.allow_multiple for inspection in inspections for candidate in inspection.left):
        text = f"requests {names} each find enough capacity, but not all of them together"
        return Conflict("capacity", text)
    if len(devices) < needed:
        return Conflict("devices", f"requests {names} need {needed} devices together, {len(devices)} are left for them")
    return Conflict("devices", f"the devices left for requests {names} cannot be divided among them")


@dataclass(frozen=True, slots=True)
class NodeInspection:
    """A node and what was found on it.

    node: the node.
    report: the report.
    problem: the problem on this node, with the other claims of the pod allocated.
    requests: the inspected requests.
    given_up: whether the search took too many steps.
    """

    node: JSON
    report: NodeReport
    problem: AllocationProblem
    requests: tuple[RequestInspection, ...] = ()
    given_up: bool = False

    @property
    def distance(self) -> tuple[bool, int, int]:
        """How far it is from a solution: missing devices first, then how many checks left no device."""
        failing = [request for request in self.report.requests if not request.enough]
        missing = sum(max(1, (request.needed or 1) - request.left) for request in failing)
        passed = sum(1 for request in failing for stage in request.stages if stage.kept)
        return bool(self.report.rejection), missing, -passed


def inspect_nodes(problem: AllocationProblem, rejections: Mapping[str, str]) -> list[NodeInspection]:
    """Inspect each node of a problem; `rejections` say why the pod cannot run on some of them.

    After three nodes on which the search took too many steps, no more are inspected.
    """
    inspector, inspections, given_up = RequestInspector(problem), [], 0
    for node in problem.nodes:
        inspections.append(_inspect_node(inspector, node, rejections.get(node["metadata"]["name"], "")))
        given_up += inspections[-1].given_up
        if given_up == _MAX_GIVEN_UP:
            break
    return inspections


def _inspect_node(inspector: RequestInspector, node: JSON, rejection: str) -> NodeInspection:
    problem = inspector.problem
    name = (node["metadata"]["name"],)
    attempt = problem.allocate_on(node)
    single = problem
    if len(problem.claims) > 1 and not attempt.fits:
        other_claims = problem.allocate_on(node, problem.claims[:-1])
        if other_claims.allocations is None:
            names = ", ".join(map(_name_in_pod, problem.claims[:-1]))
            report = NodeReport(name, fits=False, rejection=rejection or f"no devices for claim {names}")
            return NodeInspection(node, report, problem)
        pairs = zip(problem.claims[:-1], other_claims.allocations, strict=True)
        allocated_now = (with_status(claim, allocation=allocation) for claim, allocation in pairs)
        single = problem.with_changes(
            claims=problem.claims[-1:], allocated_claims=(*problem.allocated_claims, *allocated_now)
        )
    try:
        parsed = single.parsed_claim
        inspector = inspector if single is problem else RequestInspector(single)
        requests = tuple(inspector.inspect(parsed, request, node) for request in parsed.requests)
    except AllocationError as error:
        report = NodeReport(name, fits=False, rejection=rejection, error=short_error(error), final=True)
        return NodeInspection(node, report, single)
    conflicts: Sequence[Any] = ()
    if not attempt.fits and (attempt.given_up or not attempt.error) and not failing_requests(parsed.groups, requests):
        conflicts = find_conflicts(single, node, [request for request in requests if request.report.enough])
    reports = tuple(request.report for request in requests)
    fits = attempt.fits and not rejection
    report = NodeReport(name, fits, rejection, attempt.error, attempt.final, reports, tuple(conflicts))
    return NodeInspection(node, report, single, requests, attempt.given_up)


def _name_in_pod(claim: JSON) -> str:
    """Return the name that its pod has for a claim made from a template, so that equal pods have equal reports."""
    annotations = claim["metadata"].get("annotations") or {}
    return str(annotations.get(POD_CLAIM_ANNOTATION) or display_name(object_key(claim)))


def group_nodes(inspections: Iterable[NodeInspection]) -> list[list[NodeInspection]]:
    """Group nodes with the same findings, more coarsely if there would be too many groups.

    Errors that end the scheduling come first, because nothing else matters then; then what is nearest to a solution.
    """
    listed = list(inspections)
    groups: list[list[NodeInspection]] = []
    for of_request in (partial(_failure_reasons, values=True), partial(_failure_reasons, values=False), _last_stage):
        groups = list(grouped(listed, partial(_grouping_key, of_request)).values())
        if len(groups) <= _MAX_GROUPS:
            break
    for group in groups:
        group.sort(key=lambda inspection: inspection.distance)
    return sorted(groups, key=lambda group: (not group[0].report.final, not group[0].report.fits, group[0].distance))


def merged_report(group: Sequence[NodeInspection]) -> NodeReport:
    """Return one report for a group."""
    return replace(group[0].report, nodes=tuple(inspection.report.example for inspection in group))


def _failure_reasons(report: RequestReport, *, values: bool) -> tuple[Any, ...]:
    """Return why devices fail, except devices of other classes; with `values`, also the values that they have."""
    reasons = []
    for stage in report.stages:
        if stage.kind != "class" or stage.kept < (report.needed or 1):
            compare_details = values and stage.kind not in _KINDS_WITH_NAMES
            for drop in stage.drops:
                distinct = tuple(detail.partition(" (")[0] for detail in drop.details)
                details = distinct if compare_details else ()
                reasons.append((stage.kind, stage.label, drop.reason, details))
    return tuple(reasons)


def _last_stage(report: RequestReport) -> str:
    """Return the last check that a device failed."""
    return "" if report.enough else next((stage.kind for stage in reversed(report.stages) if stage.drops), "")


def _grouping_key(of_request: Callable[[RequestReport], Any], inspection: NodeInspection) -> Any:
    report = inspection.report
    requests = tuple((request.enough, of_request(request)) for request in report.requests)
    # Only whether there is an error counts, because errors name devices and nodes.
    conflicts = tuple(conflict.text for conflict in report.conflicts)
    return report.fits, report.rejection, bool(report.error), requests, conflicts
