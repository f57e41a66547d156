"""Would a new node help? Tries a copy of each kind of node that is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Final

from dra_sdk.tools.scheduling.cluster.names import Key
from dra_sdk.tools.scheduling.cluster.outcome import Outcome
from dra_sdk.tools.scheduling.cluster.schedule import schedule
from dra_sdk.tools.scheduling.cluster.snapshot import Snapshot
from dra_sdk.tools.scheduling.cluster.templates import Template, add_nodes, free_names

_MOST: Final = 64
_STEPS: Final = 100_000
"""How long a search may take: shorter than that which found no place, because several clusters are tried."""


@dataclass(frozen=True, slots=True)
class Help:
    """What `nodes` more nodes like `like` do for those that have no place: who gets one, and who still does not."""

    like: str
    nodes: int
    placed: tuple[Key, ...]
    left: tuple[Key, ...]


def would_help(outcome: Outcome, present: Snapshot | None = None) -> list[Help]:
    """For each kind of node what more of it would do, the best first; empty if all is placed or nothing helps.

    The kinds are those of `present`, by default of the outcome's own snapshot. Up to 64 nodes of a kind are tried.
    """
    wanting = _wanting(outcome)
    if not wanting:
        return []
    found = [_help(outcome, each, wanting) for each in _kinds(present or outcome.snapshot)]
    return sorted((each for each in found if each.placed), key=lambda each: (-len(each.placed), each.nodes))


def _wanting(outcome: Outcome) -> tuple[Key, ...]:
    return (*(each.pod for each in outcome.unplaced), *(each.claim for each in outcome.unallocated))


def _kinds(snapshot: Snapshot) -> Iterator[Template]:
    """One node of each make."""
    seen = set()
    for name in snapshot.nodes_by_name:
        template = Template.of(snapshot, name)
        if template.signature not in seen:
            seen.add(template.signature)
            yield template


def _help(outcome: Outcome, template: Template, wanting: tuple[Key, ...]) -> Help:
    """One node more; if that does something for some, as many as the rest would need at this rate."""
    found = _with(outcome, template, wanting, 1)
    if found.placed and found.left:
        found = _with(outcome, template, wanting, min(_MOST, ceil(len(wanting) / len(found.placed))))
    return found


def _with(outcome: Outcome, template: Template, wanting: tuple[Key, ...], count: int) -> Help:
    names = free_names(outcome.snapshot, template.name, count)
    after = schedule(add_nodes(outcome.snapshot, template, names), _STEPS)
    left = _wanting(after)
    placed = tuple(each for each in wanting if each not in left)
    used = {after.pods_by_key[each].node if each in after.pods_by_key else None for each in placed}
    used |= {after.claims_by_key[each].node for each in placed if each in after.claims_by_key}
    return Help(template.name, len(used & set(names)), placed, tuple(each for each in wanting if each in left))
