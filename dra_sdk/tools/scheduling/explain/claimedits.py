"""Changes to the claim that might help: tolerations, amounts, counts, constraints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator import MAX_RESULTS
from dra_sdk.tools.scheduling.cluster.names import key_of, shown
from dra_sdk.tools.scheduling.explain.checks import amount_text, taint_text
from dra_sdk.tools.scheduling.explain.edits import (
    REMOVED,
    Path,
    changed,
    constraint_path,
    request_path,
    text_of,
    value_at,
)
from dra_sdk.tools.scheduling.explain.requests import Looked
from dra_sdk.tools.scheduling.explain.trials import Proposal, Size
from dra_sdk.tools.scheduling.tolerations import untolerated


def edit(size: Size, text: str, claim: JSON, change: tuple[Path, Any], nodes: Sequence[JSON]) -> Proposal:
    """A change of one field of the claim: its path, and its new value or REMOVED."""
    path, value = change
    return Proposal(
        size,
        text,
        lambda setting: setting.changed(claims=(*setting.claims[:-1], changed(setting.claim, path, value))),
        nodes,
        object=f"ResourceClaim {shown(key_of(claim))}",
        field=text_of(path),
        before=value_at(claim, path),
        after=None if value is REMOVED else value,
        path=path,
    )


def of_request(claim: JSON, looked: Looked, nodes: Sequence[JSON]) -> Iterator[Proposal]:
    """Changes to a request that has not enough devices, short of its selectors."""
    path = request_path(claim, looked.request.reference)
    yield from _tolerations(claim, looked, path, nodes)
    yield from _amounts(claim, looked, path, nodes)
    yield from _fewer(claim, looked, path, nodes)


def of_constraints(claim: JSON, nodes: Sequence[JSON]) -> Iterator[Proposal]:
    """The claim without one of its constraints."""
    for index, each in enumerate(claim["spec"]["devices"].get("constraints") or ()):
        kind = "matchAttribute" if each.get("matchAttribute") else "distinctAttribute"
        text = f"leave out constraint {index} ({kind} {each[kind]})"
        yield edit(Size.CONSTRAINT, text, claim, (constraint_path(index), REMOVED), nodes)


def _fewer(claim: JSON, looked: Looked, path: Path, nodes: Sequence[JSON]) -> Iterator[Proposal]:
    """Fewer devices, or in place of all as many as there are; of several counts the highest that helps is told of."""
    name, count, left = looked.request.reference, looked.request.count, len(looked.left)
    if count is None:
        most = min(left, MAX_RESULTS)
        value = {**value_at(claim, path), "allocationMode": "ExactCount", "count": most}
        text = f"request {name}: ask for {most} devices instead of all {len(looked.matching)}"
        if most:
            yield edit(Size.NOT_ALL, text, claim, (path, value), nodes)
        return
    for less in range(min(count - 1, left or count - 1, MAX_RESULTS), 0, -1):
        text = f"request {name}: ask for {less} device{'s' if less > 1 else ''} instead of {count}"
        made = edit(Size.COUNT, text, claim, ((*path, "count"), less), nodes)
        yield replace(made, extent=count - less, family=f"count {name}", name="")


def _tolerations(claim: JSON, looked: Looked, path: Path, nodes: Sequence[JSON]) -> Iterator[Proposal]:
    before = value_at(claim, (*path, "tolerations")) or []
    seen: dict[str, JSON] = {}
    for candidate in looked.nearest:
        for taint in untolerated(candidate.device.taints, looked.request.tolerations):
            seen[taint_text(taint)] = dict(taint)
    for text, taint in seen.items():
        value = {"operator": "Equal", "value": taint["value"]} if taint.get("value") else {"operator": "Exists"}
        added = {"key": taint["key"], **value, "effect": taint["effect"]}
        told = f"request {looked.request.reference}: tolerate taint {text}"
        yield edit(Size.TOLERATION, told, claim, ((*path, "tolerations"), [*before, added]), nodes)


def _amounts(claim: JSON, looked: Looked, path: Path, nodes: Sequence[JSON]) -> Iterator[Proposal]:
    """As much of a capacity as some device has left."""
    used = looked.setting.allocated.capacity
    for name, asked in looked.request.demand.amounts.items():
        where = (*path, "capacity", "requests", name)
        found = set()
        demand = looked.request.demand
        for candidate in (each for each in looked.matching if not demand.fails(each.content)):
            needed = demand.of(candidate.content) or ()
            taken = used.get(candidate.id, {}).get(name, 0)
            found |= {each.available - taken for each in needed if each.name == name}
        for nano in sorted((each for each in found if 0 < each < asked.nano), reverse=True)[:2]:
            text = amount_text(nano, asked.text)
            told = f"request {looked.request.reference}: ask for {text} of {name} instead of {asked.text}"
            yield edit(Size.AMOUNT, told, claim, (where, text), nodes)
