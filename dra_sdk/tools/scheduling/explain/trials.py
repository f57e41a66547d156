"""Tries changes one at a time, and returns those that make the claim fit, the smallest first.

A change is tried on changed copies of API objects, which share what is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import combinations, starmap
from typing import Any, Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.explain.allocation_problem import AllocationAttempt, AllocationProblem
from dra_sdk.tools.scheduling.explain.explanation import SuggestedChange

ObjectPath = tuple[str | int, ...]
"""Keys and indices from the object down, such as `("spec", "devices", "requests", 0)`."""

REMOVED: Any = object()
"""In place of a value: the field or item is removed."""
_MAX_TRIED: Final = 200
"""The largest number of changes that are tried."""
_MAX_PAIRED: Final = 12
"""Of how many changes pairs are tried."""
_MAX_TOTAL_STEPS: Final = 500_000
"""The largest number of steps of all searches together; enough except for very hard problems."""


def with_value(obj: Any, path: ObjectPath, value: Any) -> Any:
    """Return the object with another value at a path, or without it if the value is REMOVED; the rest is shared."""
    if not path:
        return value
    key, *rest = path
    if isinstance(obj, list):
        assert isinstance(key, int)
        inner = with_value(obj[key], tuple(rest), value)
        return obj[:key] + ([] if inner is REMOVED else [inner]) + obj[key + 1 :]
    obj = obj or {}
    inner = with_value(obj.get(key), tuple(rest), value)
    if inner is REMOVED:
        return {name: field for name, field in obj.items() if name != key}
    return {**obj, key: inner}


def path_text(path: ObjectPath) -> str:
    """Return a path as the API server writes it: `spec.devices.requests[0].exactly.capacity.requests[dra.cpu/cpu]`."""
    return "".join(f".{step}" if str(step).isalpha() else f"[{step}]" for step in path).lstrip(".")


def request_path(claim: JSON, request: str) -> ObjectPath:
    """Return the path of what `request` or `request/subrequest` names: its `exactly` or its subrequest."""
    name, _, alternative = request.partition("/")
    requests = claim["spec"]["devices"]["requests"]
    index = next(at for at, request_ in enumerate(requests) if request_["name"] == name)
    start: ObjectPath = ("spec", "devices", "requests", index)
    if not alternative:
        return (*start, "exactly")
    listed = requests[index]["firstAvailable"]
    return (*start, "firstAvailable", next(at for at, request_ in enumerate(listed) if request_["name"] == alternative))


def constraint_path(index: int) -> ObjectPath:
    """Return the path of a constraint of a claim."""
    return ("spec", "devices", "constraints", index)


class ChangeSize(IntEnum):
    """How large a change is: what its owner loses by it, and how many others it affects."""

    TOLERATION = 1
    GUARD = 2
    DOMAIN = 3
    CONSTANT = 4
    AMOUNT = 5
    COUNT = 6
    NOT_ALL = 7
    CONJUNCT = 8
    CONSTRAINT = 9
    NODE_OPENED = 10
    CLAIM_FREED = 11
    TAINT_REMOVED = 12
    POOL_COMPLETED = 13
    CLASS = 14
    CLAIMS_FREED = 15
    NODE = 16
    PAIR = 20


@dataclass(frozen=True, slots=True)
class ProposedChange:
    """A change to try.

    size: its size; smaller changes are tried first.
    text: the change, in one sentence.
    apply: makes the changed problem.
    nodes: the nodes to try it on.
    extent: orders changes of the same size.
    family: of changes of one family, which are equally good, the first that helps is reported and the others are named.
    name: its name in the family.
    object, field, before, after: see SuggestedChange.
    parts: the conjuncts that it changes. Once a change of some conjuncts helps, larger changes of them are not tried.
    path: the place in the claim that it changes; of two changes the later place is changed first, so that removing an
        item of a list does not move the other place.
    """

    size: ChangeSize
    text: str
    apply: Callable[[AllocationProblem], AllocationProblem]
    nodes: Sequence[JSON]
    extent: int = 0
    family: str = ""
    name: str = ""
    object: str = ""
    field: str = ""
    before: Any = None
    after: Any = None
    parts: frozenset[tuple[str, int]] = frozenset()
    path: ObjectPath = ()

    @property
    def can_be_paired(self) -> bool:
        """Whether it is tried together with another change: an edit of the claim, or claims that end."""
        return self.size < ChangeSize.TAINT_REMOVED

    def change(self, node: str, others: Iterable[str] = ()) -> SuggestedChange:
        """Return what to report about it."""
        kind = self.size.name.lower().replace("_", "-")
        return SuggestedChange(kind, self.text, node, self.object, self.field, self.before, self.after, tuple(others))


@dataclass(slots=True)
class ChangeTrials:
    """Tries changes to a problem.

    problem: the problem.
    error_nodes: nodes on which the allocation ends in an error, which a change has to remove too.
    tried: how many changes were tried.
    steps: how many steps their searches took.
    """

    problem: AllocationProblem
    error_nodes: Sequence[JSON] = ()
    tried: int = 0
    steps: int = 0

    def helpful(self, proposals: Iterable[ProposedChange]) -> list[SuggestedChange]:
        """Return the changes that help; if none does alone, the first pair that does."""
        distinct: dict[str, ProposedChange] = {}
        for proposal in proposals:
            distinct.setdefault(proposal.text, proposal)
        ordered = sorted(distinct.values(), key=lambda proposal: (proposal.size, proposal.extent))
        changes = self._try(ordered)
        if not changes:
            pairs = combinations([proposal for proposal in ordered if proposal.can_be_paired][:_MAX_PAIRED], 2)
            changes = self._try(starmap(_both, pairs), limit=1)
        return changes

    def _try(self, proposals: Iterable[ProposedChange], limit: int = _MAX_TRIED) -> list[SuggestedChange]:
        helped: list[tuple[ProposedChange, str, list[str]]] = []
        families: dict[str, list[str]] = {}
        for proposal in proposals:
            if len(helped) >= limit or self.tried >= _MAX_TRIED or self.steps >= _MAX_TOTAL_STEPS:
                break
            if any(_makes_unnecessary(helpful, proposal) for helpful, _, _ in helped):
                continue
            node = self._node_for(proposal)
            if node is None:
                continue
            if proposal.family in families:
                families[proposal.family].append(proposal.name)
                continue
            others: list[str] = []
            if proposal.family:
                families[proposal.family] = others
            helped.append((proposal, node, others))
        return [proposal.change(node, others) for proposal, node, others in helped]

    def _node_for(self, proposal: ProposedChange) -> str | None:
        """Return a node on which the claim fits with the change, None if there is none."""
        self.tried += 1
        changed = proposal.apply(self.problem)
        node = next((node for node in proposal.nodes if self._attempt(changed, node).fits), None)
        if node is None or any(self._attempt(changed, error_node).final for error_node in self.error_nodes):
            return None
        return str(node["metadata"]["name"])

    def _attempt(self, problem: AllocationProblem, node: JSON) -> AllocationAttempt:
        """Allocate on a node, and count the steps."""
        attempt = problem.allocate_on(node)
        self.steps += problem.allocator.work
        return attempt


def _makes_unnecessary(helpful: ProposedChange, other: ProposedChange) -> bool:
    """Return whether a change that helps already changes some of the conjuncts that the other one changes."""
    same_family = bool(other.family) and helpful.family == other.family
    return bool(helpful.parts) and helpful.parts <= other.parts and not same_family


def _both(first: ProposedChange, second: ProposedChange) -> ProposedChange:
    later, earlier = sorted((first, second), key=lambda proposal: proposal.path, reverse=True)
    return ProposedChange(
        ChangeSize.PAIR,
        f"{first.text}; and {second.text}",
        lambda problem: earlier.apply(later.apply(problem)),
        [*first.nodes, *(node for node in second.nodes if node not in first.nodes)],
    )
