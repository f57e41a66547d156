"""Changes that are tried, one at a time, and those of them with which the claim can be had, the smallest first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import combinations, starmap
from typing import Any, Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.explain.edits import Path
from dra_sdk.tools.scheduling.explain.model import Change
from dra_sdk.tools.scheduling.explain.setting import Attempt, Setting

_MOST: Final = 200
"""How many changes are tried at most."""
_PAIRED: Final = 12
_STEPS: Final = 500_000
"""How many steps all searches together may take; enough unless hardly anything fits together."""


class Size(IntEnum):
    """How large a change is: what its owner loses by it, and how many others it concerns."""

    TOLERATION = 1
    GUARD = 2
    CONSTANT = 3
    AMOUNT = 4
    COUNT = 5
    NOT_ALL = 6
    CLAUSE = 7
    CONSTRAINT = 8
    NODE_OPENED = 9
    CLAIM_FREED = 10
    TAINT_REMOVED = 11
    POOL_COMPLETED = 12
    CLASS = 13
    CLAIMS_FREED = 14
    NODE = 15
    PAIR = 20


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change to try: `apply` makes the changed setting, `nodes` are those to try it on.

    Of proposals of one `family`, which are as good as each other, the first that helps is told of and the others are
    named beside it. `extent` orders changes of one size. `parts` are the clauses it is about: once a change to some
    clauses helps, larger changes to these and others need not be tried. `path` is the place in the claim that it
    changes; of two changes the later place is changed first, so that what is removed leaves the other where it is.
    """

    size: Size
    text: str
    apply: Callable[[Setting], Setting]
    nodes: Sequence[JSON]
    extent: int = 0
    family: str = ""
    name: str = ""
    object: str = ""
    field: str = ""
    before: Any = None
    after: Any = None
    parts: frozenset[tuple[str, int]] = frozenset()
    path: Path = ()

    @property
    def pairs(self) -> bool:
        """Whether it is worth trying together with another: an edit of the claim, or claims that give devices back."""
        return self.size < Size.TAINT_REMOVED

    def change(self, node: str, others: Iterable[str] = ()) -> Change:
        """What to tell of it."""
        kind = self.size.name.lower().replace("_", "-")
        return Change(kind, self.text, node, self.object, self.field, self.before, self.after, tuple(others))


@dataclass(slots=True)
class Trials:
    """The proposals that were tried in a setting: `tried` counts them.

    On the nodes in `wary` the allocation ends in an error, which a change must do away with too.
    """

    setting: Setting
    wary: Sequence[JSON] = ()
    tried: int = 0
    steps: int = 0

    def helpful(self, proposals: Iterable[Proposal]) -> list[Change]:
        """Those with which the claim can be had; the first pair of them if no single one helps."""
        distinct: dict[str, Proposal] = {}
        for each in proposals:
            distinct.setdefault(each.text, each)
        ordered = sorted(distinct.values(), key=lambda each: (each.size, each.extent))
        found = self._try(ordered)
        if not found:
            pairs = combinations([each for each in ordered if each.pairs][:_PAIRED], 2)
            found = self._try(starmap(_both, pairs), most=1)
        return found

    def _try(self, proposals: Iterable[Proposal], most: int = _MOST) -> list[Change]:
        found: list[tuple[Proposal, str, list[str]]] = []
        families: dict[str, list[str]] = {}
        for each in proposals:
            if len(found) >= most or self.tried >= _MOST or self.steps >= _STEPS:
                break
            if any(
                done.parts and done.parts <= each.parts and done.family != (each.family or None) for done, _, _ in found
            ):
                continue
            node = self._node_for(each)
            if node is None:
                continue
            if each.family in families:
                families[each.family].append(each.name)
                continue
            others: list[str] = []
            if each.family:
                families[each.family] = others
            found.append((each, node, others))
        return [each.change(node, others) for each, node, others in found]

    def _node_for(self, proposal: Proposal) -> str | None:
        """A node on which the claim can be had with a change, if there is one."""
        self.tried += 1
        changed = proposal.apply(self.setting)
        node = next((each for each in proposal.nodes if self._attempt(changed, each).fits), None)
        if node is None or any(self._attempt(changed, each).final for each in self.wary):
            return None
        return str(node["metadata"]["name"])

    def _attempt(self, setting: Setting, node: JSON) -> Attempt:
        found = setting.attempt(node)
        self.steps += setting.allocator.work
        return found


def _both(first: Proposal, second: Proposal) -> Proposal:
    later, earlier = sorted((first, second), key=lambda each: each.path, reverse=True)
    return Proposal(
        Size.PAIR,
        f"{first.text}; and {second.text}",
        lambda setting: earlier.apply(later.apply(setting)),
        [*first.nodes, *(each for each in second.nodes if each not in first.nodes)],
    )
