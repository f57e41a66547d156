"""The outcome of scheduling as rows of a table."""

from __future__ import annotations

from collections.abc import Iterator

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster import ClaimOutcome, PodPlacement, SchedulingOutcome, display_name

HEADINGS = ("POD", "NODE", "CLAIM", "REQUEST", "DEVICE")
_NONE = "-"
_NOBODY = "(no pod)"


def rows(outcome: SchedulingOutcome) -> list[list[str]]:
    """One row for each device of each pod, one for each pod or claim without; then claims that no pod uses.

    Pods that ran before and have no devices are left out.
    """
    used = {claim for pod in outcome.pods for claim in pod.claims}
    found = [row for pod in outcome.pods for row in _of_pod(pod, outcome)]
    return found + [
        [_NOBODY, claim.node or _NONE, *cells]
        for claim in outcome.claims
        if claim.claim not in used
        for cells in _of_claim(claim, display_name(claim.claim))
    ]


def summary(outcome: SchedulingOutcome) -> str:
    """One line for the end."""
    nodes = {pod.node for pod in outcome.pods if pod.node is not None} | {
        claim.node for claim in outcome.claims if claim.hypothetical and claim.node is not None
    }
    placed = sum(pod.node is not None for pod in outcome.pods)
    parts = [f"{placed} of {_count(len(outcome.pods), 'pod')} placed, on {_count(len(nodes), 'node')}"]
    if not outcome.pods:
        parts = ["no pods"]
    hypothetical = [claim for claim in outcome.claims if claim.hypothetical]
    if hypothetical:
        satisfied = sum(claim.allocation is not None for claim in hypothetical)
        parts.append(f"{satisfied} of {_count(len(hypothetical), 'claim')} without a pod allocated as if one used it")
    if not outcome.complete:
        parts.append("`dra-sdk explain` says why not all")
    return "; ".join(parts)


def device(result: JSON) -> str:
    """A device, and how much of it or in which way it is had."""
    name = f"{result['driver']}/{result['pool']}/{result['device']}"
    consumed = sorted((result.get("consumedCapacity") or {}).items())
    extras = [f"{key}={value}" for key, value in consumed if value != "0"]
    if result.get("adminAccess"):
        extras.append("admin access")
    if result.get("bindingConditions"):
        extras.append(f"once {', '.join(result['bindingConditions'])}")
    return f"{name} ({', '.join(extras)})" if extras else name


def _of_pod(pod: PodPlacement, outcome: SchedulingOutcome) -> Iterator[list[str]]:
    name = display_name(pod.pod)
    if pod.node is None:
        yield [name, _NONE, _NONE, _NONE, pod.reason]
        return
    found = False
    for key in pod.claims:
        for cells in _of_claim(outcome.claims_by_key[key], key[1]):
            found = True
            yield [name, pod.node, *cells]
    if pod.scheduled and not found:
        yield [name, pod.node, _NONE, _NONE, _NONE]


def _of_claim(claim: ClaimOutcome, name: str) -> Iterator[list[str]]:
    if claim.allocation is None:
        yield [name, _NONE, claim.reason or _NONE]
    elif not claim.results:
        yield [name, _NONE, _NONE]
    for result in claim.results:
        yield [name, result["request"], device(result)]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
