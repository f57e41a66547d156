"""Explaining a claim, or all claims of a pod."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator import AllocationError
from dra_sdk.tools.scheduling.cluster.names import Key, key_of, shown
from dra_sdk.tools.scheduling.cluster.outcome import Outcome
from dra_sdk.tools.scheduling.cluster.schedule import schedule
from dra_sdk.tools.scheduling.cluster.snapshot import Snapshot
from dra_sdk.tools.scheduling.cluster.wishes import allocation_of, missing_class
from dra_sdk.tools.scheduling.explain.advice import advice
from dra_sdk.tools.scheduling.explain.model import Explanation, Got, NodeReport, PodExplanation
from dra_sdk.tools.scheduling.explain.reports import Seen, grouped, merged, see
from dra_sdk.tools.scheduling.explain.setting import Attempt, Setting, in_short, results_of
from dra_sdk.tools.scheduling.explain.subject import Subject, nodes_of, subject_of_claim, subject_of_pod
from dra_sdk.tools.scheduling.explain.summary import failure, success

_NAMESPACE: Final = "default"


def explain(snapshot: Snapshot, claim: Key | str, node: str | None = None) -> Explanation:
    """Why a claim (`namespace/name`, or a key) has its devices, or why it cannot have any, on one node or on all.

    First everything in the snapshot is scheduled. ExplainError if there is no such claim or node.
    """
    return explain_outcome(schedule(snapshot), claim, node)


def explain_outcome(outcome: Outcome, claim: Key | str, node: str | None = None) -> Explanation:
    """The same for a snapshot that is scheduled already."""
    key = key_from(claim)
    return _explain(subject_of_claim(outcome, key), key, node)


def explain_pod(snapshot: Snapshot, pod: Key | str, node: str | None = None) -> PodExplanation:
    """The same for a pod and all its claims. ExplainError if there is no such pod or node."""
    return explain_pod_outcome(schedule(snapshot), pod, node)


def explain_pod_outcome(outcome: Outcome, pod: Key | str, node: str | None = None) -> PodExplanation:
    """The same for a snapshot that is scheduled already."""
    subject = subject_of_pod(outcome, key_from(pod))
    assert subject.placement is not None
    found = tuple(_explain(subject, key_of(each), node) for each in subject.claims)
    name, place = shown(subject.placement.pod), subject.placement.node or ""
    reason = subject.refused or subject.placement.reason
    return PodExplanation(
        name, bool(place), f"pod {name} runs on {place}" if place else f"pod {name} cannot run: {reason}", place, found
    )


def key_from(text: Key | str) -> Key:
    """`namespace/name`, or a name in the default namespace."""
    if isinstance(text, tuple):
        return text
    namespace, slash, name = text.partition("/")
    return (namespace, name) if slash else (_NAMESPACE, namespace)


def _explain(subject: Subject, key: Key, node: str | None) -> Explanation:
    nodes = nodes_of(subject.snapshot, node)
    claim = next(each for each in subject.claims if key_of(each) == key)
    has = allocation_of(claim) is not None
    if has and node in {None, _place(subject, key)}:
        return _allocated(subject, claim)
    setting = _setting(subject, claim, nodes)
    try:
        setting.plan  # noqa: B018 (raises where the claim cannot be worked with at all)
    except AllocationError as error:
        text = f"{_title(subject, key)} cannot be had: {in_short(error)}"
        classes = f"DeviceClasses are: {', '.join(setting.classes) or 'none'}"
        notes = (classes,) if missing_class(claim, setting.classes) else ()
        return Explanation(shown(key), satisfiable=False, summary=text, pod=_pod(subject), notes=notes)
    seen = see(setting, subject.obstacles(nodes))
    fitting = next((each for each in seen if each.report.fits), None)
    # An error on any node is one for the pod; only a single node may be asked about regardless.
    if fitting is not None and not subject.refused and not any(each.report.final for each in seen):
        return _would_fit(subject, setting, fitting, key, seen)
    return _misfit(subject, setting, seen, key)


def _setting(subject: Subject, claim: JSON, nodes: Sequence[JSON]) -> Setting:
    """With the claims of the pod that come before it, but only if it could be had without them."""
    alone = subject.setting([claim], nodes)
    waiting = [each for each in subject.claims if allocation_of(each) is None]
    others = [each for each in waiting if key_of(each) != key_of(claim)]
    if not others or allocation_of(claim) is not None or not _fits_somewhere(alone):
        return alone
    return subject.setting([*others, claim], nodes)


def _fits_somewhere(setting: Setting) -> bool:
    """Whether any node will do; none that comes after one on which the search is given up is tried."""
    attempts = (setting.attempt(each) for each in setting.nodes)
    return next((each.fits for each in attempts if each.fits or each.given_up), False)


def _place(subject: Subject, key: Key) -> str:
    return subject.outcome.claims_by_key[key].node or "" if key in subject.outcome.claims_by_key else ""


def _title(subject: Subject, key: Key) -> str:
    pod = _pod(subject)
    return f"claim {shown(key)} of pod {pod}" if pod else f"claim {shown(key)}"


def _pod(subject: Subject) -> str:
    return shown(subject.placement.pod) if subject.placement else ""


def _allocated(subject: Subject, claim: JSON) -> Explanation:
    """What it has, and on its node, what there was to choose from."""
    key = key_of(claim)
    place = _place(subject, key)
    known = subject.snapshot.nodes_by_name
    reports: tuple[NodeReport, ...] = ()
    if place in known:
        reports = tuple(each.report for each in see(subject.setting([claim], [known[place]]), {}))
    got = _got(results_of(claim))
    return Explanation(
        shown(key), True, success(_title(subject, key), got, place), _pod(subject), place, True, got, reports
    )


def _got(results: Sequence[JSON]) -> tuple[Got, ...]:
    return tuple(
        Got(
            each["request"],
            f"{each['driver']}/{each['pool']}/{each['device']}",
            bool(each.get("adminAccess")),
            each.get("consumedCapacity"),
        )
        for each in results
    )


def _would_fit(subject: Subject, setting: Setting, fitting: Seen, key: Key, seen: Sequence[Seen]) -> Explanation:
    attempt: Attempt = setting.attempt(fitting.node)
    assert attempt.allocations is not None
    place = fitting.report.example
    got = _got(results_of({"status": {"allocation": attempt.allocations[-1]}}))
    reports = tuple(merged(each) for each in grouped(seen))
    return Explanation(
        shown(key), True, success(_title(subject, key), got, place), _pod(subject), place, False, got, reports
    )


def _misfit(subject: Subject, setting: Setting, seen: Sequence[Seen], key: Key) -> Explanation:
    groups = grouped(seen)
    reports = tuple(merged(each) for each in groups)
    final = any(each.report.final for each in groups[0]) if groups else False
    notes = ("The scheduler reports this as an error of the pod, and tries no further node.",) if final else ()
    changes, tried = ((), 0) if subject.refused else advice(subject.snapshot, setting, groups, _pod(subject))
    refused = f"{_title(subject, key)} cannot be had: {subject.refused}" if subject.refused else ""
    text = refused or failure(_title(subject, key), reports)
    return Explanation(
        shown(key), False, text, _pod(subject), reports=reports, changes=changes, tried=tried, notes=notes
    )
