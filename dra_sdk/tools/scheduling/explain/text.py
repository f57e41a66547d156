"""An explanation as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dra_sdk.tools.scheduling.explain.model import (
    Change,
    Drop,
    Explanation,
    NodeReport,
    PodExplanation,
    RequestReport,
    Stage,
)
from dra_sdk.tools.scheduling.explain.summary import last_straw, passing

_REASONS: Final = 3
_CHANGES: Final = 6
_ALIKE: Final = 3
_GROUPS: Final = 4
_OTHERS: Final = 3


def text(explanation: Explanation | PodExplanation) -> str:
    """Lines, with a line break after each."""
    lines = _pod(explanation) if isinstance(explanation, PodExplanation) else _claim(explanation)
    return "\n".join(lines) + "\n"


def _pod(explanation: PodExplanation) -> Iterator[str]:
    yield explanation.summary
    for each in explanation.claims:
        yield ""
        yield from _claim(each)


def _claim(explanation: Explanation) -> Iterator[str]:
    yield explanation.summary
    shown = [each for each in explanation.reports if each.requests or each.obstacle or each.error or each.conflicts]
    if explanation.satisfiable:
        shown = shown[:1]
    for index, report in enumerate(shown[:_GROUPS]):
        yield ""
        yield from _node(report, told=index == 0)
    if hidden := shown[_GROUPS:]:
        yield ""
        yield f"and {sum(len(each.nodes) for each in hidden)} further nodes; -o yaml tells of all"
    for note in explanation.notes:
        yield ""
        yield note
    if explanation.tried:
        yield ""
        yield from _changes(explanation)


def _node(report: NodeReport, *, told: bool) -> Iterator[str]:
    """A group of nodes; `told` if the first sentence told of what is decisive."""
    yield f"on {_names(report.nodes)}:"
    if report.obstacle:
        yield f"  {report.obstacle}"
        return
    if report.error and not told:
        yield f"  {report.error}"
    for each in report.requests:
        yield from _request(each)
    for conflict in report.conflicts:
        yield f"  {conflict.text}"
        for detail in conflict.details:
            yield f"    {detail}"


def _names(nodes: Sequence[str]) -> str:
    if len(nodes) == 1:
        return nodes[0]
    others = ", ".join(nodes[1 : 1 + _ALIKE])
    more = len(nodes) - 1 - _ALIKE
    return f"{nodes[0]}, and alike on {others}{f' and {more} more' if more > 0 else ''}"


def _request(report: RequestReport) -> Iterator[str]:
    wanted = "all devices" if report.needed is None else f"{report.needed} device{'s' if report.needed > 1 else ''}"
    yield f"  request {report.request}: {wanted} of class {report.device_class}"
    cluster = f", of {report.total} in the cluster" if report.total > report.devices else ""
    yield f"{report.devices:>7} within reach of the node{cluster}"
    for index, stage in enumerate(report.stages):
        later = report.stages[index + 1 :]
        if stage.kind == "class" and any(each.kind == "class" for each in later) and not last_straw(report, stage):
            continue  # one line for a class
        if stage.drops or stage.kind == "class":
            yield from _stage(stage, report)
        if not stage.kept:
            break
    yield _left(report)


def _left(report: RequestReport) -> str:
    if not report.enough:
        return f"      → {report.left} left, {report.needed or 'all that match'} needed"
    more = report.left - len(report.candidates)
    return f"      → {report.left} left: {', '.join(report.candidates)}{f' and {more} more' if more > 0 else ''}"


def _stage(stage: Stage, report: RequestReport) -> Iterator[str]:
    yield f"{stage.kept:>7} {passing(stage, report)}"
    if stage.kind == "class" and not last_straw(report, stage):
        return  # other devices of the node are nobody's concern
    for drop in stage.drops[:_REASONS]:
        yield from _drop(drop)
    if more := stage.drops[_REASONS:]:
        yield f"          and {len(more)} more reason{'s' if len(more) > 1 else ''}"


def _drop(drop: Drop) -> Iterator[str]:
    yield f"          - {drop.count} {drop.reason}{_position(drop)}"
    for detail in drop.details:
        yield f"              {detail}"


def _position(drop: Drop) -> str:
    line, column = drop.position or (1, 1)
    if line > 1:
        return f" (line {line}, column {column})"
    return f" (column {column})" if column > 1 else ""


def _changes(explanation: Explanation) -> Iterator[str]:
    if not explanation.changes:
        count = f"{explanation.tried} changes were" if explanation.tried > 1 else "1 change was"
        yield f"No small change was found that helps; {count} tried."
        return
    yield "What would help, the smallest change first:"
    for index, each in enumerate(explanation.changes[:_CHANGES], 1):
        yield f"  {index}. {each.text}{_others(each)}"
    if more := explanation.changes[_CHANGES:]:
        yield f"  and {len(more)} more"


def _others(change: Change) -> str:
    names = [each for each in change.others if each]
    if not names:
        return ""
    more = len(names) - _OTHERS
    return f" (or {', '.join(names[:_OTHERS])}{f' and {more} more' if more > 0 else ''})"
