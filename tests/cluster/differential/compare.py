"""Where the real control plane and this package disagree about a case."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from tests.cluster.differential.api import Refusal
from tests.cluster.differential.case import JSON, PodPlan
from tests.cluster.differential.ours import Placed, Prospect
from tests.cluster.differential.real import Verdict

_DRAWN: Final = frozenset({"timeAdded", "allocationTimestamp"})
#: Parts of taints and tolerations that mean the same whether they are empty or missing.
_OPTIONAL: Final = frozenset({"key", "operator", "value", "effect"})


@dataclass(frozen=True)
class Disagreement:
    """A difference between both."""

    subject: str
    what: str
    real: str
    ours: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.what}\n    real: {self.real}\n    ours: {self.ours}"


def compare_created(obj: JSON, real: JSON | Refusal, ours: JSON | Refusal) -> Disagreement | None:
    """Compares whether an object is accepted, what is stored of it, and for which fields it is refused."""
    subject = f"{obj['kind']} {obj['metadata']['name']}"
    if isinstance(real, Refusal) and isinstance(ours, Refusal):
        if real.fields == ours.fields:
            return None
        return Disagreement(subject, "refused fields", str(sorted(real.fields)), str(sorted(ours.fields)))
    if isinstance(real, Refusal) or isinstance(ours, Refusal):
        return Disagreement(subject, "taken or not", _taken(real), _taken(ours))
    left, right = plain(real["spec"]), plain(ours["spec"])
    return None if left == right else Disagreement(subject, "stored", _short(left), _short(right))


def compare_pod(plan: PodPlan, real: Verdict, ours: Prospect, *, exact: bool) -> Disagreement | None:
    """Compares whether and where a pod can run, and what its claims get on the node that it got.

    Where devices are not taken in an `exact` order, neither what is got nor whether an error shows can be said. For
    extended resources ours says only why, not whether that is an error.
    """
    if has_changed_its_claim(real):
        return None
    subject = f"pod {plan.name}"
    undecided = plan.extended if real.kind == "error" else not exact
    if undecided and "error" in {_outcome(real), _prospect(ours)}:
        return None
    told_real, told_ours = _outcome(real), _prospect(ours)
    if told_real != told_ours:
        more = f" ({real.message})" if real.message else ""
        return Disagreement(subject, "nodes that fit", told_real + more, f"{told_ours} {ours.error or ours.reasons}")
    if real.kind != "scheduled" or not exact:
        return None
    expected = ours.fitting[real.node]
    for name, allocation in real.allocations.items():
        left, right = plain(allocation), plain(expected[name])
        if left != right:
            return Disagreement(f"{subject} on {real.node}, claim {name}", "allocation", _short(left), _short(right))
    return None


def has_changed_its_claim(real: Verdict) -> bool:
    """Returns whether the scheduler fails at a claim whose requests it has changed in its own memory.

    Seen with kube-scheduler 1.36.3: of a request for 10Pi of a capacity it wrote back 11259006363393536, which is
    7294967296 more, and the API server refused the update. Presumably a copy shares a large number with its original.
    """
    return real.kind == "error" and "add finalizer to claim" in real.message and "field is immutable" in real.message


def compare_placed(plan: PodPlan, real: Verdict, ours: Prospect, placed: Placed) -> Disagreement | None:
    """Compares the whole simulated scheduler: it must take one of the nodes that really fit, and allocate the same."""
    if has_changed_its_claim(real):
        return None
    node, subject = placed.node, f"pod {plan.name}, simulated"
    if (node not in real.fitting) if real.fitting else (node is not None):
        return Disagreement(subject, "node", _outcome(real), f"{node or 'none'} {placed.reason}")
    expected = ours.fitting[node] if node else {}
    if plain(expected) != plain(placed.allocations):
        return Disagreement(f"{subject} on {node}", "allocation", _short(expected), _short(placed.allocations))
    return None


def compare_extended(plan: PodPlan, real: Verdict, placed: Placed) -> Disagreement | None:
    """Compares the claim for extended resources, on the node that the pod really got."""
    if real.extended is None and placed.extended is None:
        return None
    left, right = _made(real.extended), _made(placed.extended)
    if left == right:
        return None
    return Disagreement(f"pod {plan.name} on {real.node}", "extended resources", _short(left), _short(right))


def _made(claim: JSON | None) -> Any:
    """Returns the parts of a claim for extended resources that can be compared; its name is random."""
    if claim is None:
        return None
    return plain({"spec": claim["spec"], "allocation": claim["status"]["allocation"], "mappings": claim["mappings"]})


def plain(value: Any) -> Any:
    """Returns a copy without empty parts and without what differs from run to run."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {name: plain(inner) for name, inner in value.items() if name not in _DRAWN}
    kept |= {"shareID": "one"} if kept.get("shareID") else {}
    return {name: inner for name, inner in kept.items() if not _absent(name, inner)}


def _absent(name: str, value: Any) -> bool:
    return value in (None, [], {}) or (value == "" and name in _OPTIONAL)


def _taken(made: JSON | Refusal) -> str:
    return f"refused: {made.message}" if isinstance(made, Refusal) else "taken"


def _outcome(real: Verdict) -> str:
    return f"fits {list(real.fitting)}" if real.kind == "scheduled" else real.kind


def _prospect(ours: Prospect) -> str:
    if ours.error:
        return "error"
    return f"fits {sorted(ours.fitting)}" if ours.fitting else "unschedulable"


def _short(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
