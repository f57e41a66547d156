"""All changes that might help, from what was seen on the nodes, and those that do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.snapshot import Snapshot
from dra_sdk.tools.scheduling.explain import claimedits, clusterchanges
from dra_sdk.tools.scheduling.explain.model import Change
from dra_sdk.tools.scheduling.explain.reports import Seen
from dra_sdk.tools.scheduling.explain.requests import Looker, short
from dra_sdk.tools.scheduling.explain.selectoredits import of_selectors
from dra_sdk.tools.scheduling.explain.setting import TRIAL_STEPS, Setting
from dra_sdk.tools.scheduling.explain.trials import Proposal, Trials

_KINDS: Final = 6
"""How many kinds of nodes changes are tried on."""


def advice(
    snapshot: Snapshot, setting: Setting, groups: Sequence[Sequence[Seen]], pod: str
) -> tuple[tuple[Change, ...], int]:
    """The changes that help, the smallest first, and how many were tried."""
    seen = [group[0] for group in groups][:_KINDS]
    wary = [each.node for group in groups for each in group if each.report.final and not each.report.obstacle]
    trials = Trials(setting.changed(steps=TRIAL_STEPS), wary)
    found = trials.helpful(_proposals(snapshot, setting, seen, pod))
    return tuple(found), trials.tried


def _proposals(snapshot: Snapshot, setting: Setting, seen: Sequence[Seen], pod: str) -> Iterator[Proposal]:
    closed = [each for each in seen if each.report.obstacle]
    open_ = [each for each in seen if not each.report.obstacle]
    for each in closed:
        yield from clusterchanges.opened(each, pod)
    nodes = [each.node for each in open_]
    for each in open_:
        yield from _of_node(setting, each, nodes)
    yield from claimedits.of_constraints(setting.claim, nodes)
    for each in open_:
        yield from clusterchanges.freed(setting, each)
        yield from clusterchanges.untainted(each)
        yield from clusterchanges.completed(setting, each)
        yield from clusterchanges.another_node(snapshot, each)


def _of_node(setting: Setting, seen: Seen, nodes: Sequence[JSON]) -> Iterator[Proposal]:
    """Edits of the claim: of the requests that have not enough, or of all if only together they have not."""
    if not seen.looked:
        return
    failing = short(seen.setting.plan.groups, seen.looked)
    looker = Looker(seen.setting)
    devices = [each for each in setting.inventory.view(seen.node).candidates if each.here]
    for each in failing or seen.looked:
        yield from claimedits.of_request(setting.claim, each, nodes)
        yield from of_selectors(setting, each, list(looker.selectors(each.request)), devices, nodes)
