"""Explanations as text: the summary in one sentence, and the whole explanation for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dra_sdk.texts import counted, limited, printable, shortened
from dra_sdk.tools.scheduling.cluster.snapshot import grouped
from dra_sdk.tools.scheduling.explain.explanation import (
    ExplainedDevice,
    Explanation,
    FailedDevices,
    FunnelStage,
    NodeReport,
    PodExplanation,
    RequestReport,
    SuggestedChange,
)

_FILTERING_KINDS: Final = frozenset({"pool", "class", "selector", "binding", "capacity"})
"""Checks that select the devices that mode All needs; failing one of them is no problem."""
_PHRASES: Final = {
    "pool": ("is in a valid and complete pool", "in valid and complete pools"),
    "class": ("is of class {cls}", "of class {cls}"),
    "selector": ("passes {label}", "pass {label}"),
    "binding": ("is without binding conditions", "without binding conditions"),
    "use": ("is free", "free"),
    "capacity": ("has enough capacity left", "have enough capacity left"),
    "available": ("has enough capacity left", "have enough capacity left"),
    "taint": ("is without untolerated taints", "without untolerated taints"),
    "operations": (
        "is of a slice that skips only operations the node can skip",
        "of slices that skip only operations the node can skip",
    ),
    "groups": ("is compatible with devices in use", "compatible with devices in use"),
    "counters": ("has enough counters left", "have enough counters left"),
    "attribute": ("has the attribute of {label}", "have the attribute of {label}"),
}
"""What is said of the devices that pass a check: after `none of 3 devices`, and after a number of devices."""
_MAX_REASONS: Final = 3
_MAX_CHANGES: Final = 6
_MAX_NODES: Final = 3
_MAX_GROUPS: Final = 4
_MAX_ALTERNATIVES: Final = 3
_MAX_ALIKE: Final = 3


def describe_stage(stage: FunnelStage, report: RequestReport) -> str:
    """Return what the devices that pass a check have in common: `3 …`."""
    return _PHRASES[stage.kind][1].format(cls=report.device_class, label=stage.label)


def success_summary(claim: str, got: Sequence[ExplainedDevice], node: str) -> str:
    """Return what the claim gets, on one node or, without a `node`, wherever it is used."""
    where = f" on {node}" if node else ""
    return f"{claim} can be allocated{where}: {list_devices(got, node) or 'it requests no devices'}"


def failure_summary(claim: str, reports: Sequence[NodeReport]) -> str:
    """Return why the claim cannot be allocated, on the node that is nearest to a solution."""
    if not reports:
        return f"{claim} cannot be allocated: there are no nodes"
    nodes = sum(len(report.nodes) for report in reports)
    where = f"on {reports[0].example}" if nodes == 1 else f"on any of {nodes} nodes"
    return f"{claim} cannot be allocated {where}: {node_reason(reports[0])}"


def list_devices(got: Sequence[ExplainedDevice], node: str) -> str:
    """Return `gpu gets gpu-0 and gpu-1; nic gets nic-3`."""
    by_request: dict[str, list[str]] = {}
    for allocated in got:
        pool, device = allocated.device.partition("/")[2].rsplit("/", 1)
        name = device if pool == node else allocated.device
        by_request.setdefault(allocated.request, []).append(f"{name} (admin access)" if allocated.admin else name)
    return "; ".join(f"{request} gets {_join_names(names)}" for request, names in by_request.items())


def _join_names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def node_reason(report: NodeReport) -> str:
    """Return what is decisive on a node."""
    if report.rejection:
        return report.rejection
    if report.error and not report.conflicts:
        return report.error
    if report.conflicts:
        return report.conflicts[0].text
    failing = next((request for request in report.requests if not request.enough), None)
    return request_reason(failing) if failing else "the devices that are left cannot be allocated together"


def request_reason(report: RequestReport) -> str:
    """Return the check that left too few devices."""
    start = f"request {report.request}:"
    before = report.devices
    for stage in report.stages:
        if is_decisive(report, stage):
            return f"{start} {_stage_reason(report, stage, before)}"
        before = stage.kept
    return f"{start} {counted(report.devices, 'device')} accessible from the node, {report.needed or 'all'} needed"


def is_decisive(report: RequestReport, stage: FunnelStage) -> bool:
    """Return whether a check left too few devices; in mode All, no matching device may fail another check."""
    if report.needed is None:
        return not stage.kept or bool(stage.drops and stage.kind not in _FILTERING_KINDS)
    return stage.kept < report.needed


def _stage_reason(report: RequestReport, stage: FunnelStage, before: int) -> str:
    of_other_classes = stage.kind == "class" and stage.kept > 0  # these do not matter
    why = f" ({_main_failure(stage)})" if stage.drops and not of_other_classes else ""
    if report.needed is None and stage.kept:
        failing = before - stage.kept
        verb = "is" if failing == 1 else "are"
        return f"all {before} matching devices are needed, {failing} {verb} not available{why}"
    if not before:
        return "there is no device"
    if not stage.kept:
        phrase = _PHRASES[stage.kind][0].format(cls=report.device_class, label=stage.label)
        return f"none of {counted(before, 'device')} {phrase}{why}"
    return f"{stage.kept} of {before} {describe_stage(stage, report)}{why}, {report.needed} needed"


def _main_failure(stage: FunnelStage) -> str:
    first = stage.drops[0]
    if stage.kind in {"class", "selector"} and first.details:
        return ", ".join(first.details[:2])
    return f"{first.count} {first.reason}"


def format_explanation(explanation: Explanation | PodExplanation) -> str:
    """Return an explanation as lines of text for a terminal, with a line break after each and nowhere else."""
    lines = _pod_lines(explanation) if isinstance(explanation, PodExplanation) else _claim_lines(explanation)
    return "\n".join(map(printable, lines)) + "\n"


def format_explanations(explanations: Sequence[Explanation | PodExplanation]) -> str:
    """Return explanations as text; pods and claims that differ only in their names, such as replicas, share one."""
    alike = grouped(explanations, _without_names).values()
    return "\n".join(f"{format_explanation(first)}{_others_alike(others)}" for first, *others in alike)


def _without_names(explanation: Explanation | PodExplanation) -> str:
    """Return the text with numbers in place of the names of the pod and of its claims."""
    claims = explanation.claims if isinstance(explanation, PodExplanation) else (explanation,)
    names = dict.fromkeys([explanation.pod, *(claim.claim for claim in claims)])
    text = format_explanation(explanation)
    for number, name in sorted(enumerate(names), key=lambda numbered: -len(numbered[1])):  # one may begin with another
        text = text.replace(printable(name), f"\0{number}") if name else text
    return text


def _others_alike(others: Sequence[Explanation | PodExplanation]) -> str:
    if not others:
        return ""
    names = [printable(other.pod if isinstance(other, PodExplanation) else other.claim) for other in others]
    kind = "pod" if isinstance(others[0], PodExplanation) else "claim"
    return f"\nThe same is true of {counted(len(names), f'more {kind}')}: {shortened(names, _MAX_ALIKE)}\n"


def _pod_lines(explanation: PodExplanation) -> Iterator[str]:
    yield explanation.summary
    yield from (f"  {note}" for note in explanation.notes)
    for claim in explanation.claims:
        yield ""
        yield from _claim_lines(claim)


def _claim_lines(explanation: Explanation) -> Iterator[str]:
    yield explanation.summary
    shown = [
        report
        for report in explanation.reports
        if report.requests or report.rejection or report.error or report.conflicts
    ]
    if explanation.satisfiable:
        shown = shown[:1]
    for index, report in enumerate(shown[:_MAX_GROUPS]):
        yield ""
        yield from _node_lines(report, error_in_summary=index == 0)
    if hidden := shown[_MAX_GROUPS:]:
        yield ""
        yield f"and {counted(sum(len(report.nodes) for report in hidden), 'more node')}; -o yaml shows all"
    for note in explanation.notes:
        yield ""
        yield note
    if explanation.tried:
        yield ""
        yield from _change_lines(explanation)


def _node_lines(report: NodeReport, *, error_in_summary: bool) -> Iterator[str]:
    """Yield the lines for a group of nodes; `error_in_summary` tells that the summary has their error."""
    yield f"on {_node_names(report.nodes)}:"
    if report.rejection:
        yield f"  {report.rejection}"
        return
    if report.error and not error_in_summary:
        yield f"  {report.error}"
    for request in report.requests:
        yield from _request_lines(request)
    for conflict in report.conflicts:
        yield f"  {conflict.text}"
        for detail in conflict.details:
            yield f"    {detail}"


def _node_names(nodes: Sequence[str]) -> str:
    if len(nodes) == 1:
        return nodes[0]
    return f"{nodes[0]}, and the same on {shortened(nodes[1:], _MAX_NODES)}"


def _request_lines(report: RequestReport) -> Iterator[str]:
    wanted = "all devices" if report.needed is None else counted(report.needed, "device")
    yield f"  request {report.request}: {wanted} of class {report.device_class}"
    cluster = f", of {report.total} in the cluster" if report.total > report.devices else ""
    yield f"{report.devices:>7} accessible from the node{cluster}"
    for index, stage in enumerate(report.stages):
        later = report.stages[index + 1 :]
        if stage.kind == "class" and any(other.kind == "class" for other in later) and not is_decisive(report, stage):
            continue  # a class has one line, however many selectors it has
        if stage.drops or stage.kind == "class":
            yield from _stage_lines(stage, report)
        if not stage.kept:
            break
    yield _left_line(report)


def _left_line(report: RequestReport) -> str:
    if not report.enough:
        return f"      → {report.left} left, {report.needed or 'all that match'} needed"
    more = report.left - len(report.candidates)
    return f"      → {report.left} left: {', '.join(report.candidates)}{f' and {more} more' if more > 0 else ''}"


def _stage_lines(stage: FunnelStage, report: RequestReport) -> Iterator[str]:
    yield f"{stage.kept:>7} {describe_stage(stage, report)}"
    if stage.kind == "class" and not is_decisive(report, stage):
        return  # devices of other classes do not matter
    for drop in stage.drops[:_MAX_REASONS]:
        yield from _failure_lines(drop)
    if more := stage.drops[_MAX_REASONS:]:
        yield f"          and {counted(len(more), 'more reason')}"


def _failure_lines(drop: FailedDevices) -> Iterator[str]:
    yield f"          - {drop.count} {drop.reason}{_position(drop)}"
    for detail in drop.details:
        yield f"              {detail}"


def _position(drop: FailedDevices) -> str:
    line, column = drop.position or (1, 1)
    if line > 1:
        return f" (line {line}, column {column})"
    return f" (column {column})" if column > 1 else ""


def _change_lines(explanation: Explanation) -> Iterator[str]:
    if not explanation.changes:
        count = f"{explanation.tried} changes were" if explanation.tried > 1 else "1 change was"
        yield f"No small change helps; {count} tried."
        return
    yield "What would help, the smallest change first:"
    changes = enumerate(explanation.changes, 1)
    texts = [f"{index}. {change.text}{_other_names(change)}{_for_whom(change)}" for index, change in changes]
    yield from (f"  {text}" for text in limited(texts, _MAX_CHANGES))


def _other_names(change: SuggestedChange) -> str:
    names = [name for name in change.others if name]
    if not names:
        return ""
    if change.kind == "constant":
        quoted = [f'"{name}"' for name in names]
        return f" or {shortened(quoted, _MAX_ALTERNATIVES)}"
    return f" (or {shortened(names, _MAX_ALTERNATIVES)})"


def _for_whom(change: SuggestedChange) -> str:
    """Return a remark for a change of a class: it belongs to the cluster, so more than the claim is concerned."""
    return " (for every claim of the class)" if change.object.startswith("DeviceClass ") else ""
