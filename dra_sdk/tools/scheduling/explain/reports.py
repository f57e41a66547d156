"""What holds on each node, and nodes that are alike told of together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator import AllocationError
from dra_sdk.tools.scheduling.cluster.names import key_of, shown
from dra_sdk.tools.scheduling.explain.conflicts import conflicts
from dra_sdk.tools.scheduling.explain.model import Drop, NodeReport, RequestReport
from dra_sdk.tools.scheduling.explain.requests import Looked, Looker, short
from dra_sdk.tools.scheduling.explain.setting import Setting, in_short, with_allocation

_GROUPS: Final = 5
_GIVEN_UP: Final = 3
_NAMING: Final = frozenset({"use", "capacity", "room", "counters"})
"""Tests whose details name devices or claims, which are different everywhere."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A node's report, and what was looked at for it."""

    node: JSON
    report: NodeReport
    setting: Setting
    looked: tuple[Looked, ...] = ()
    given_up: bool = False

    @property
    def distance(self) -> tuple[bool, int, int]:
        """How far from a solution it is: devices that are missing, then tests that nearly nobody passed."""
        failing = [each for each in self.report.requests if not each.enough]
        missing = sum(max(1, (each.needed or 1) - each.left) for each in failing)
        passed = sum(1 for each in failing for stage in each.stages if stage.kept)
        return bool(self.report.obstacle), missing, -passed


def see(setting: Setting, obstacles: Mapping[str, str]) -> list[Seen]:
    """Each node of a setting; `obstacles` say why the pod cannot run on some.

    After three nodes on which the search is given up no further ones are looked at: kube-scheduler stops at the first.
    """
    looker, found, given_up = Looker(setting), [], 0
    for each in setting.nodes:
        found.append(_see(looker, each, obstacles.get(each["metadata"]["name"], "")))
        given_up += found[-1].given_up
        if given_up == _GIVEN_UP:
            break
    return found


def _see(looker: Looker, node: JSON, obstacle: str) -> Seen:
    setting = looker.setting
    name = (node["metadata"]["name"],)
    attempt = setting.attempt(node)
    alone = setting
    if len(setting.claims) > 1 and not attempt.fits:
        others = setting.attempt(node, setting.claims[:-1])
        if others.allocations is None:
            names = ", ".join(shown(key_of(each)) for each in setting.claims[:-1])
            return Seen(
                node, NodeReport(name, fits=False, obstacle=obstacle or f"no devices for claim {names}"), setting
            )
        held = map(with_allocation, setting.claims[:-1], others.allocations)
        alone = setting.changed(claims=setting.claims[-1:], holders=(*setting.holders, *held))
    try:
        plan = alone.plan
        looker = looker if alone is setting else Looker(alone)
        looked = tuple(looker.look(plan, each, node) for each in plan.requests)
    except AllocationError as error:
        return Seen(node, NodeReport(name, fits=False, obstacle=obstacle, error=in_short(error), final=True), alone)
    found: Sequence[Any] = ()
    if not attempt.fits and (attempt.given_up or not attempt.error) and not short(plan.groups, looked):
        found = conflicts(alone, node, [each for each in looked if each.report.enough])
    reports = tuple(each.report for each in looked)
    fits = attempt.fits and not obstacle
    report = NodeReport(name, fits, obstacle, attempt.error, attempt.final, reports, tuple(found))
    return Seen(node, report, alone, looked, attempt.given_up)


def grouped(seen: Iterable[Seen]) -> list[list[Seen]]:
    """Nodes for which the same holds; coarser where there would be too many groups.

    Errors that end the search come first, because nothing else counts then; after that what is nearest to a solution.
    """
    found = list(seen)
    groups: list[list[Seen]] = []
    for key in (_closely, _loosely, _roughly):
        groups = _by(found, key)
        if len(groups) <= _GROUPS:
            break
    for each in groups:
        each.sort(key=lambda one: one.distance)
    return sorted(groups, key=lambda each: (not each[0].report.final, not each[0].report.fits, each[0].distance))


def merged(group: Sequence[Seen]) -> NodeReport:
    """One report for a group."""
    return replace(group[0].report, nodes=tuple(each.report.example for each in group))


def _by(seen: Iterable[Seen], key: Callable[[NodeReport], Any]) -> list[list[Seen]]:
    groups: dict[Any, list[Seen]] = {}
    for each in seen:
        groups.setdefault(key(each.report), []).append(each)
    return list(groups.values())


def _closely(report: NodeReport) -> Any:
    """Reasons with the values that were seen."""
    return _shape(report, lambda each: _causes(each, values=True))


def _loosely(report: NodeReport) -> Any:
    """Reasons only."""
    return _shape(report, lambda each: _causes(each, values=False))


def _causes(report: RequestReport, *, values: bool) -> tuple[Any, ...]:
    """Why devices fail; other kinds of devices beside those of the class are of no interest."""
    return tuple(
        (stage.kind, stage.label, each.reason, _values(each) if values and stage.kind not in _NAMING else ())
        for stage in report.stages
        if stage.kind != "class" or stage.kept < (report.needed or 1)
        for each in stage.drops
    )


def _values(drop: Drop) -> tuple[str, ...]:
    return tuple(each.partition(" (")[0] for each in drop.details)


def _roughly(report: NodeReport) -> Any:
    """Which test was the last straw."""
    return _shape(
        report, lambda each: "" if each.enough else next((s.kind for s in reversed(each.stages) if s.drops), "")
    )


def _shape(report: NodeReport, of_request: Callable[[RequestReport], Any]) -> Any:
    requests = tuple((each.enough, of_request(each)) for each in report.requests)
    # Errors name devices and nodes.
    return report.fits, report.obstacle, bool(report.error), requests, tuple(each.text for each in report.conflicts)
