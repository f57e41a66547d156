"""Explains a claim, or all claims of a pod, and suggests changes that were tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator import AllocationError, DeviceId
from dra_sdk.tools.scheduling.cluster.claim_controller import (
    claim_allocation,
    claim_results,
    deallocated,
    with_status,
)
from dra_sdk.tools.scheduling.cluster.pod_requirements import missing_class
from dra_sdk.tools.scheduling.cluster.scheduling_cycle import schedule
from dra_sdk.tools.scheduling.cluster.scheduling_outcome import SchedulingOutcome
from dra_sdk.tools.scheduling.cluster.snapshot import DEFAULT_NAMESPACE, ObjectKey, Snapshot, display_name, object_key
from dra_sdk.tools.scheduling.explain.allocation_problem import (
    TRIAL_STEPS,
    AllocationProblem,
    ExplainTarget,
    ScheduledCluster,
    select_nodes,
    short_error,
)
from dra_sdk.tools.scheduling.explain.claim_changes import (
    CLAIM_OBJECT,
    constraint_changes,
    request_changes,
    selector_changes,
)
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
from dra_sdk.tools.scheduling.explain.node_labels import label_notes
from dra_sdk.tools.scheduling.explain.pod_status import waiting_reason
from dra_sdk.tools.scheduling.explain.request_inspection import (
    RequestInspector,
    failing_requests,
    unpublished_driver,
)
from dra_sdk.tools.scheduling.explain.trials import ChangeTrials, ProposedChange

_MAX_GROUPS: Final = 6
"""The largest number of groups of nodes on which changes are tried."""


def explain(snapshot: Snapshot, claim: ObjectKey | str, node: str | None = None) -> Explanation:
    """Explain why a claim (`namespace/name`, or a key) has its devices, or why it cannot be allocated.

    First everything in the snapshot is scheduled. With `node`, only that node is considered. ExplainError if there is
    no such claim or node.
    """
    return Explainer(schedule(snapshot), node).claim(claim)


@dataclass(frozen=True, slots=True)
class _Findings:
    """What is true of a claim on the nodes, whatever its name and that of its pod.

    reports: what was found, nearest to a solution first.
    fitting: a node on which it fits; empty without one.
    allocation: its allocation there.
    changes, tried: see Explanation.
    unpublished: which driver has published nothing that the claim needs; empty without one.
    """

    reports: tuple[NodeReport, ...]
    fitting: str = ""
    allocation: JSON | None = None
    changes: tuple[SuggestedChange, ...] = ()
    tried: int = 0
    unpublished: str = ""


class Explainer:
    """Explains claims and pods of a snapshot that is already scheduled; equal ones are examined once.

    With `node`, only that node is considered.
    """

    def __init__(self, outcome: SchedulingOutcome, node: str | None = None) -> None:
        self._cluster = ScheduledCluster(outcome)
        self._node = node
        self._known: dict[tuple[bool, str, int], _Findings] = {}

    def claim(self, claim: ObjectKey | str) -> Explanation:
        """Explain a claim; ExplainError if there is no such claim or node."""
        key = parse_key(claim)
        return self._explain(self._cluster.target_of_claim(key), key)

    def pod(self, pod: ObjectKey | str) -> PodExplanation:
        """Explain a pod and all its claims; ExplainError if there is no such pod or node."""
        target = self._cluster.target_of_pod(parse_key(pod))
        assert target.placement is not None
        return PodExplanation(
            display_name(target.placement.pod),
            satisfiable=bool(target.placement.node) and not _waiting(target),
            summary=_pod_summary(target),
            node=target.placement.node or "",
            claims=tuple(self._explain(target, object_key(claim)) for claim in target.claims),
            notes=tuple(label_notes(target.pod, target.snapshot.nodes)) if target.pod and target.waits else (),
        )

    def _explain(self, target: ExplainTarget, key: ObjectKey) -> Explanation:
        nodes = select_nodes(target.snapshot, self._node)
        claim = next(claim for claim in target.claims if object_key(claim) == key)
        if claim_allocation(claim) is not None and self._node in {None, _node_of(target, key)}:
            return _explain_allocated(target, claim)
        alone = target.problem([claim], nodes)
        try:
            alone.parsed_claim  # noqa: B018 (raises if the claim cannot be processed)
        except AllocationError as error:
            text = f"{_title(target, key)} cannot be allocated: {short_error(error)}"
            classes = f"DeviceClasses are: {', '.join(alone.classes) or 'none'}"
            notes = (classes,) if missing_class(claim, alone.classes) else ()
            return Explanation(display_name(key), satisfiable=False, summary=text, pod=_pod_name(target), notes=notes)
        findings = self._findings(target, claim, alone)
        if findings.allocation is not None:
            allocated = with_status(deallocated(claim), allocation=findings.allocation)
            return _success(target, allocated, findings.fitting, findings.reports, allocated=False)
        return _explain_failure(target, findings, key)

    def _findings(self, target: ExplainTarget, claim: JSON, alone: AllocationProblem) -> _Findings:
        """Examine a claim on all nodes, unless that was done for an equal one of an equal pod."""
        if claim_allocation(claim) is not None:
            return _examine(target, claim, alone)  # what it holds is free for it alone
        key = target.pod is None, target.equality, target.claims.index(claim)
        if key not in self._known:
            self._known[key] = _examine(target, claim, alone)
        return self._known[key]


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


def _examine(target: ExplainTarget, claim: JSON, alone: AllocationProblem) -> _Findings:
    problem = _problem_of(target, claim, alone)
    inspections = inspect_nodes(problem, target.rejections(problem.nodes))
    groups = group_nodes(inspections)
    reports = tuple(merged_report(group) for group in groups)
    fitting = next((inspection for inspection in inspections if inspection.report.fits), None)
    if target.unschedulable_reason:
        return _Findings(reports)
    # An error on any node is an error for the pod, even if the claim fits on another node.
    if fitting is not None and not any(other.report.final for other in inspections):
        allocations = fitting.problem.allocate_on(fitting.node).allocations
        assert allocations is not None
        return _Findings(reports, fitting.report.example, allocations[-1])
    changes, tried = suggest_changes(target.snapshot, problem, groups)
    return _Findings(reports, changes=changes, tried=tried, unpublished=unpublished_driver(problem) if reports else "")


def _problem_of(target: ExplainTarget, claim: JSON, alone: AllocationProblem) -> AllocationProblem:
    """Return the problem with the other claims of the pod, if the claim could be allocated without them."""
    waiting = [pod_claim for pod_claim in target.claims if claim_allocation(pod_claim) is None]
    others = [other for other in waiting if object_key(other) != object_key(claim)]
    if not others or claim_allocation(claim) is not None or not _fits_somewhere(alone):
        return alone
    return target.problem([*others, claim], alone.nodes)


def _fits_somewhere(problem: AllocationProblem) -> bool:
    """Return whether the claims fit on a node; stop at a node on which the search takes too many steps."""
    attempts = (problem.allocate_on(node) for node in problem.nodes)
    return next((attempt.fits for attempt in attempts if attempt.fits or attempt.given_up), False)


def _node_of(target: ExplainTarget, key: ObjectKey) -> str:
    outcome = target.cluster.outcome.claims_by_key.get(key)
    return (outcome.node if outcome else None) or ""


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


def _explain_failure(target: ExplainTarget, findings: _Findings, key: ObjectKey) -> Explanation:
    reports, title = findings.reports, _title(target, key)
    final = bool(reports) and reports[0].final
    notes = ("The scheduler reports this as an error for the pod and tries no other node.",) if final else ()
    if target.unschedulable_reason:
        summary = f"{title} cannot be allocated: {target.unschedulable_reason}"
    elif findings.unpublished:
        summary = f"{title} cannot be allocated: {findings.unpublished}"
    else:
        summary = failure_summary(title, reports)
    changes = tuple(_change_of(change, key) for change in findings.changes)
    return Explanation(
        display_name(key),
        False,
        summary,
        _pod_name(target),
        reports=reports,
        changes=changes,
        tried=findings.tried,
        notes=notes,
    )


def _change_of(change: SuggestedChange, key: ObjectKey) -> SuggestedChange:
    """Return a change that was found for an equal claim as one of this claim."""
    is_of_claim = change.object.startswith(CLAIM_OBJECT)
    return replace(change, object=f"{CLAIM_OBJECT}{display_name(key)}") if is_of_claim else change


def suggest_changes(
    snapshot: Snapshot, problem: AllocationProblem, groups: Sequence[Sequence[NodeInspection]]
) -> tuple[tuple[SuggestedChange, ...], int]:
    """Return the changes that help, the smallest first, and how many were tried."""
    inspections = [group[0] for group in groups][:_MAX_GROUPS]
    error_nodes = [node.node for group in groups for node in group if node.report.final and not node.report.rejection]
    trials = ChangeTrials(problem.with_changes(max_steps=TRIAL_STEPS), error_nodes)
    helpful = trials.helpful(_proposed_changes(snapshot, problem, inspections))
    return tuple(helpful), trials.tried


def _proposed_changes(
    snapshot: Snapshot, problem: AllocationProblem, inspections: Sequence[NodeInspection]
) -> Iterator[ProposedChange]:
    rejecting = [inspection for inspection in inspections if inspection.report.rejection]
    eligible = [inspection for inspection in inspections if not inspection.report.rejection]
    for inspection in rejecting:
        yield from node_opened(inspection)
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
