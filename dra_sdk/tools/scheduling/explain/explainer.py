"""Explains a claim, or all claims of a pod, and suggests changes that were tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator import AllocationError, DeviceId
from dra_sdk.tools.scheduling.cluster.claim_controller import claim_allocation, claim_results, with_status
from dra_sdk.tools.scheduling.cluster.pod_requirements import missing_class
from dra_sdk.tools.scheduling.cluster.scheduling_cycle import schedule
from dra_sdk.tools.scheduling.cluster.scheduling_outcome import SchedulingOutcome
from dra_sdk.tools.scheduling.cluster.snapshot import DEFAULT_NAMESPACE, ObjectKey, Snapshot, display_name, object_key
from dra_sdk.tools.scheduling.explain.allocation_problem import (
    TRIAL_STEPS,
    AllocationProblem,
    ExplainTarget,
    select_nodes,
    short_error,
    target_of_claim,
    target_of_pod,
)
from dra_sdk.tools.scheduling.explain.claim_changes import constraint_changes, request_changes, selector_changes
from dra_sdk.tools.scheduling.explain.cluster_changes import (
    claims_deallocated,
    node_added,
    node_opened,
    pools_completed,
    taints_removed,
)
from dra_sdk.tools.scheduling.explain.explanation import (
    ExplainedDevice,
    Explanation,
    NodeReport,
    PodExplanation,
    SuggestedChange,
)
from dra_sdk.tools.scheduling.explain.explanation_text import failure_summary, success_summary
from dra_sdk.tools.scheduling.explain.node_inspection import NodeInspection, group_nodes, inspect_nodes, merged_report
from dra_sdk.tools.scheduling.explain.pod_status import waiting_reason
from dra_sdk.tools.scheduling.explain.request_inspection import RequestInspector, failing_requests
from dra_sdk.tools.scheduling.explain.trials import ChangeTrials, ProposedChange

_MAX_GROUPS: Final = 6
"""The largest number of groups of nodes on which changes are tried."""


def explain(snapshot: Snapshot, claim: ObjectKey | str, node: str | None = None) -> Explanation:
    """Explain why a claim (`namespace/name`, or a key) has its devices, or why it cannot be allocated.

    First everything in the snapshot is scheduled. With `node`, only that node is considered. ExplainError if there is
    no such claim or node.
    """
    return explain_outcome(schedule(snapshot), claim, node)


def explain_outcome(outcome: SchedulingOutcome, claim: ObjectKey | str, node: str | None = None) -> Explanation:
    """Explain a claim of a snapshot that is already scheduled."""
    key = parse_key(claim)
    return _explain(target_of_claim(outcome, key), key, node)


def explain_pod_outcome(outcome: SchedulingOutcome, pod: ObjectKey | str, node: str | None = None) -> PodExplanation:
    """Explain a pod of a snapshot that is already scheduled, and all its claims.

    ExplainError if there is no such pod or node.
    """
    target = target_of_pod(outcome, parse_key(pod))
    assert target.placement is not None
    explanations = tuple(_explain(target, object_key(claim), node) for claim in target.claims)
    return PodExplanation(
        display_name(target.placement.pod),
        satisfiable=bool(target.placement.node) and not _waiting(target),
        summary=_pod_summary(target),
        node=target.placement.node or "",
        claims=explanations,
    )


def _waiting(target: ExplainTarget) -> str:
    """Return why a pod does not run on the node that it already has; empty if it does."""
    assert target.placement is not None
    return (
        waiting_reason(target.snapshot.pods_by_key[target.placement.pod], target.claims)
        if target.placement.running
        else ""
    )


def _pod_summary(target: ExplainTarget) -> str:
    assert target.placement is not None
    name, node = display_name(target.placement.pod), target.placement.node
    if not node:
        return f"pod {name} cannot run: {target.unschedulable_reason or target.placement.reason}"
    if waiting := _waiting(target):
        return f"pod {name} is on {node} and does not run yet: {waiting}"
    return f"pod {name} {'can run' if target.placement.scheduled else 'runs'} on {node}"


def parse_key(text: ObjectKey | str) -> ObjectKey:
    """Parse `namespace/name`, or a name in the default namespace."""
    if isinstance(text, tuple):
        return text
    namespace, slash, name = text.partition("/")
    return (namespace, name) if slash else (DEFAULT_NAMESPACE, namespace)


def _explain(target: ExplainTarget, key: ObjectKey, node: str | None) -> Explanation:
    nodes = select_nodes(target.snapshot, node)
    claim = next(claim for claim in target.claims if object_key(claim) == key)
    if claim_allocation(claim) is not None and node in {None, _node_of(target, key)}:
        return _explain_allocated(target, claim)
    problem = _problem_of(target, claim, nodes)
    try:
        problem.parsed_claim  # noqa: B018 (raises if the claim cannot be processed)
    except AllocationError as error:
        text = f"{_title(target, key)} cannot be allocated: {short_error(error)}"
        classes = f"DeviceClasses are: {', '.join(problem.classes) or 'none'}"
        notes = (classes,) if missing_class(claim, problem.classes) else ()
        return Explanation(display_name(key), satisfiable=False, summary=text, pod=_pod_name(target), notes=notes)
    inspections = inspect_nodes(problem, target.rejections(nodes))
    fitting = next((inspection for inspection in inspections if inspection.report.fits), None)
    # An error on any node is an error for the pod, even if the claim fits on another node.
    if fitting is not None and not target.unschedulable_reason and not any(other.report.final for other in inspections):
        return _explain_fit(target, fitting, inspections)
    return _explain_failure(target, problem, inspections, key)


def _problem_of(target: ExplainTarget, claim: JSON, nodes: Sequence[JSON]) -> AllocationProblem:
    """Return the problem with the other claims of the pod, if the claim could be allocated without them."""
    alone = target.problem([claim], nodes)
    waiting = [pod_claim for pod_claim in target.claims if claim_allocation(pod_claim) is None]
    others = [other for other in waiting if object_key(other) != object_key(claim)]
    if not others or claim_allocation(claim) is not None or not _fits_somewhere(alone):
        return alone
    return target.problem([*others, claim], nodes)


def _fits_somewhere(problem: AllocationProblem) -> bool:
    """Return whether the claims fit on a node; stop at a node on which the search takes too many steps."""
    attempts = (problem.allocate_on(node) for node in problem.nodes)
    return next((attempt.fits for attempt in attempts if attempt.fits or attempt.given_up), False)


def _node_of(target: ExplainTarget, key: ObjectKey) -> str:
    return target.outcome.claims_by_key[key].node or "" if key in target.outcome.claims_by_key else ""


def _title(target: ExplainTarget, key: ObjectKey) -> str:
    pod = _pod_name(target)
    return f"claim {display_name(key)} of pod {pod}" if pod else f"claim {display_name(key)}"


def _pod_name(target: ExplainTarget) -> str:
    return display_name(target.placement.pod) if target.placement else ""


def _explain_allocated(target: ExplainTarget, claim: JSON) -> Explanation:
    """Explain what an allocated claim has and, on its node, what there was to choose from."""
    key = object_key(claim)
    node_name = _node_of(target, key)
    nodes = target.snapshot.nodes_by_name
    reports: tuple[NodeReport, ...] = ()
    if node_name in nodes:
        reports = tuple(node.report for node in inspect_nodes(target.problem([claim], [nodes[node_name]]), {}))
    return _success(target, claim, node_name, reports, allocated=True)


def _success(
    target: ExplainTarget, claim: JSON, node_name: str, reports: tuple[NodeReport, ...], *, allocated: bool
) -> Explanation:
    """Return the explanation of a claim with an allocation."""
    key = object_key(claim)
    got = tuple(
        ExplainedDevice(
            result["request"],
            str(DeviceId.of(result)),
            bool(result.get("adminAccess")),
            result.get("consumedCapacity"),
        )
        for result in claim_results(claim)
    )
    summary = success_summary(_title(target, key), got, node_name)
    return Explanation(display_name(key), True, summary, _pod_name(target), node_name, allocated, got, reports)


def _explain_fit(target: ExplainTarget, fitting: NodeInspection, inspections: Sequence[NodeInspection]) -> Explanation:
    allocations = fitting.problem.allocate_on(fitting.node).allocations
    assert allocations is not None
    reports = tuple(merged_report(group) for group in group_nodes(inspections))
    claim = with_status(fitting.problem.claim, allocation=allocations[-1])
    return _success(target, claim, fitting.report.example, reports, allocated=False)


def _explain_failure(
    target: ExplainTarget, problem: AllocationProblem, inspections: Sequence[NodeInspection], key: ObjectKey
) -> Explanation:
    groups = group_nodes(inspections)
    reports = tuple(merged_report(group) for group in groups)
    final = any(group.report.final for group in groups[0]) if groups else False
    notes = ("The scheduler reports this as an error for the pod and tries no other node.",) if final else ()
    changes: tuple[SuggestedChange, ...] = ()
    tried = 0
    if target.unschedulable_reason:
        summary = f"{_title(target, key)} cannot be allocated: {target.unschedulable_reason}"
    else:
        summary = failure_summary(_title(target, key), reports)
        changes, tried = suggest_changes(target.snapshot, problem, groups, _pod_name(target))
    return Explanation(
        display_name(key), False, summary, _pod_name(target), reports=reports, changes=changes, tried=tried, notes=notes
    )


def suggest_changes(
    snapshot: Snapshot, problem: AllocationProblem, groups: Sequence[Sequence[NodeInspection]], pod: str
) -> tuple[tuple[SuggestedChange, ...], int]:
    """Return the changes that help, the smallest first, and how many were tried."""
    inspections = [group[0] for group in groups][:_MAX_GROUPS]
    error_nodes = [node.node for group in groups for node in group if node.report.final and not node.report.rejection]
    trials = ChangeTrials(problem.with_changes(max_steps=TRIAL_STEPS), error_nodes)
    helpful = trials.helpful(_proposed_changes(snapshot, problem, inspections, pod))
    return tuple(helpful), trials.tried


def _proposed_changes(
    snapshot: Snapshot, problem: AllocationProblem, inspections: Sequence[NodeInspection], pod: str
) -> Iterator[ProposedChange]:
    rejecting = [inspection for inspection in inspections if inspection.report.rejection]
    eligible = [inspection for inspection in inspections if not inspection.report.rejection]
    for inspection in rejecting:
        yield from node_opened(inspection, pod)
    nodes = [inspection.node for inspection in eligible]
    for inspection in eligible:
        yield from _changes_for_node(problem, inspection, nodes)
    yield from constraint_changes(problem.claim, nodes)
    for inspection in eligible:
        yield from claims_deallocated(problem, inspection)
        yield from taints_removed(inspection)
        yield from pools_completed(problem, inspection)
        yield from node_added(snapshot, inspection)


def _changes_for_node(
    problem: AllocationProblem, inspection: NodeInspection, nodes: Sequence[JSON]
) -> Iterator[ProposedChange]:
    """Propose edits to the requests that do not have enough devices, or to all if only together they do not."""
    if not inspection.requests:
        return
    failing = failing_requests(inspection.problem.parsed_claim.groups, inspection.requests)
    inspector = RequestInspector(inspection.problem)
    candidates = problem.inventory.node_devices(inspection.node).candidates
    devices = [candidate for candidate in candidates if candidate.on_node]
    for inspected in failing or inspection.requests:
        yield from request_changes(problem.claim, inspected, nodes)
        yield from selector_changes(problem, inspected, list(inspector.selectors(inspected.request)), devices, nodes)
