"""What differs between two outcomes: who moved, who was placed, who has nothing any more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dra_sdk.tools.scheduling.cluster.names import Key
from dra_sdk.tools.scheduling.cluster.outcome import ClaimOutcome, Outcome

Devices = Mapping[str, tuple[str, ...]]
"""Devices as `driver/pool/device` by request; one of several claims goes by `claim/request`."""


@dataclass(frozen=True, slots=True)
class Situation:
    """Where a pod runs, or nowhere, and the devices it has."""

    node: str | None
    devices: Devices


@dataclass(frozen=True, slots=True)
class Change:
    """A pod, or a claim that no pod uses, that is not as before; None stands for "did not exist".

    `evicted` says why it had to leave its node, `reason` why it runs nowhere now.
    """

    subject: Key
    is_pod: bool
    before: Situation | None
    after: Situation | None
    evicted: str = ""
    reason: str = ""


def compare(before: Outcome, after: Outcome) -> tuple[Change, ...]:
    """The changes, pods first, in the order of `after`; what is gone comes last."""
    return (*_of_pods(before, after), *_of_claims(before, after))


def _of_pods(before: Outcome, after: Outcome) -> Iterator[Change]:
    gone = [each.pod for each in before.pods if each.pod not in after.pods_by_key]
    for key in (*(each.pod for each in after.pods), *gone):
        was, now = _pod(before, key), _pod(after, key)
        evicted = str(after.evicted.get(key, ""))
        if was != now or evicted:
            reason = after.pods_by_key[key].reason if now else ""
            yield Change(key, True, was, now, evicted, reason)


def _of_claims(before: Outcome, after: Outcome) -> Iterator[Change]:
    for each in after.claims:
        old = before.claims_by_key.get(each.claim)
        if each.imagined:
            was, now = _claim(old) if old else None, _claim(each)
            evicted = str(after.evicted.get(each.claim, ""))
            if was != now or evicted:
                yield Change(each.claim, False, was, now, evicted, each.reason)


def _pod(outcome: Outcome, key: Key) -> Situation | None:
    placement = outcome.pods_by_key.get(key)
    if placement is None:
        return None
    claims = [outcome.claims_by_key[each] for each in placement.claims if each in outcome.claims_by_key]
    devices: dict[str, tuple[str, ...]] = {}
    for claim in claims if placement.node is not None else ():
        for request, names in _devices(claim).items():
            devices[f"{claim.claim[1]}/{request}" if len(claims) > 1 else request] = names
    return Situation(placement.node, devices)


def _claim(claim: ClaimOutcome) -> Situation:
    return Situation(claim.node, _devices(claim))


def _devices(claim: ClaimOutcome) -> Devices:
    found: dict[str, tuple[str, ...]] = {}
    for each in claim.results:
        name = f"{each['driver']}/{each['pool']}/{each['device']}"
        found[each["request"]] = (*found.get(each["request"], ()), name)
    return found
