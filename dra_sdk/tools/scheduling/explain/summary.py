"""The one sentence at the top of an explanation, and what the tests of a funnel are called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dra_sdk.tools.scheduling.explain.model import Got, NodeReport, RequestReport, Stage

#: What a request for all passes over without harm.
_HARMLESS: Final = frozenset({"pool", "class", "selector", "binding", "capacity"})
_PLURAL: Final = {
    "pool": "in pools that can be used",
    "class": "of class {cls}",
    "selector": "pass {label}",
    "binding": "without binding conditions",
    "use": "free",
    "capacity": "have enough capacity left",
    "room": "have enough capacity left",
    "taint": "without untolerated taints",
    "operations": "of slices whose operations the node can skip",
    "groups": "with compatibility groups that fit",
    "counters": "have enough counters left",
    "attribute": "have the attribute of {label}",
}
_SINGULAR: Final = {
    "pool": "is in a pool that can be used",
    "class": "is of class {cls}",
    "selector": "passes {label}",
    "binding": "is without binding conditions",
    "use": "is free",
    "capacity": "has enough capacity left",
    "room": "has enough capacity left",
    "taint": "is without untolerated taints",
    "operations": "is of a slice whose operations the node can skip",
    "groups": "has compatibility groups that fit",
    "counters": "has enough counters left",
    "attribute": "has the attribute of {label}",
}


def passing(stage: Stage, report: RequestReport) -> str:
    """What the devices that pass a test have in common: `3 …`."""
    return _PLURAL[stage.kind].format(cls=report.device_class, label=stage.label)


def success(claim: str, got: Sequence[Got], place: str) -> str:
    """What the claim gets, on one node or, without a `place`, wherever it is used."""
    return f"{claim} can be had{f' on {place}' if place else ''}: {devices(got, place) or 'it asks for no device'}"


def failure(claim: str, reports: Sequence[NodeReport]) -> str:
    """Why the claim gets nothing on the node that is nearest to a solution."""
    if not reports:
        return f"{claim} cannot be had: there are no nodes"
    nodes = sum(len(each.nodes) for each in reports)
    where = f"on {reports[0].example}" if nodes == 1 else f"on any of {nodes} nodes"
    return f"{claim} cannot be had {where}: {reason(reports[0])}"


def devices(got: Sequence[Got], place: str) -> str:
    """`gpu gets gpu-0 and gpu-1; nic gets nic-3`."""
    by_request: dict[str, list[str]] = {}
    for each in got:
        _, pool, device = each.device.split("/", 1)[0], *each.device.split("/", 1)[1].rsplit("/", 1)
        name = device if pool == place else each.device
        by_request.setdefault(each.request, []).append(f"{name} (admin access)" if each.admin else name)
    return "; ".join(f"{request} gets {_and(names)}" for request, names in by_request.items())


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def reason(report: NodeReport) -> str:
    """What is decisive on a node."""
    if report.obstacle:
        return report.obstacle
    if report.error and not report.conflicts:
        return report.error
    if report.conflicts:
        return report.conflicts[0].text
    failing = next((each for each in report.requests if not each.enough), None)
    return of_request(failing) if failing else "the devices that are left do not go together"


def of_request(report: RequestReport) -> str:
    """The test that left too few devices."""
    start = f"request {report.request}:"
    before = report.devices
    for stage in report.stages:
        if last_straw(report, stage):
            return f"{start} {_of_stage(report, stage, before)}"
        before = stage.kept
    return f"{start} {_count(report.devices)} within reach of the node, {report.needed or 'all'} needed"


def last_straw(report: RequestReport, stage: Stage) -> bool:
    """Whether a test left too few devices for a request; where all are wanted, none that matches may fail another."""
    if report.needed is None:
        return not stage.kept or bool(stage.drops and stage.kind not in _HARMLESS)
    return stage.kept < report.needed


def _of_stage(report: RequestReport, stage: Stage, before: int) -> str:
    others = stage.kind == "class" and stage.kept > 0  # devices of other kinds say nothing about those of the class
    why = f" ({_why(stage)})" if stage.drops and not others else ""
    if report.needed is None and stage.kept:
        failing = before - stage.kept
        verb = "is" if failing == 1 else "are"
        return f"all {before} devices that match are needed, {failing} {verb} not to be had{why}"
    if not before:
        return "there is no device"
    if not stage.kept:
        phrase = _SINGULAR[stage.kind].format(cls=report.device_class, label=stage.label)
        return f"of {_count(before)} none {phrase}{why}"
    return f"{stage.kept} of {before} {passing(stage, report)}{why}, {report.needed} needed"


def _why(stage: Stage) -> str:
    first = stage.drops[0]
    if stage.kind in {"class", "selector"} and first.details:
        return ", ".join(first.details[:2])
    return f"{first.count} {first.reason}"


def _count(number: int) -> str:
    return f"{number} device{'' if number == 1 else 's'}"
