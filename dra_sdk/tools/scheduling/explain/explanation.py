"""What an explanation says, as values that become JSON or text.

All counts are of devices. Selectors, constraints and alternatives are counted from 0, as in the field paths of the API.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FailedDevices:
    """Devices that fail a check for the same reason.

    reason: the reason, a phrase that follows the number of devices.
    count: how many devices.
    example: one of them.
    details: the values that they have, the most frequent first.
    position: line and column of the CEL conjunct, from 1; None if the check is no selector.
    """

    reason: str
    count: int
    example: str
    details: tuple[str, ...] = ()
    position: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class FunnelStage:
    """A check that devices have to pass.

    kind: pool, class, selector, binding, use, capacity, available, taint, operations, groups, counters or attribute.
    label: which one, if there are several.
    kept: how many devices pass; the next check examines these.
    drops: the devices that fail, by reason.
    """

    kind: str
    label: str
    kept: int
    drops: tuple[FailedDevices, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestReport:
    """A request or subrequest on one node.

    request: its name, `request` or `request/subrequest`.
    device_class: the name of its class.
    needed: how many devices it needs; None for all that match.
    total: how many devices are in the cluster.
    devices: how many of them the node can use.
    stages: the checks, in order.
    left: how many devices pass all checks.
    enough: whether these are enough for this request alone.
    candidates: the names of the first of them.
    """

    request: str
    device_class: str
    needed: int | None
    total: int
    devices: int
    stages: tuple[FunnelStage, ...]
    left: int
    enough: bool
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why devices that are enough for each request alone are not enough together.

    kind: constraint, counters, capacity or devices.
    text: the reason, in one sentence.
    details: more lines.
    """

    kind: str
    text: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What is the same on some nodes.

    Numbers and devices are those of the first node, which is nearest to a solution.

    nodes: the names of the nodes.
    fits: whether the claim can be allocated there.
    rejection: why the nodes reject the pod regardless of its claims; empty if they do not.
    error: what stops the allocation; empty without an error.
    final: whether kube-scheduler tries no other node after the error.
    requests: the requests.
    conflicts: why the requests cannot be satisfied together.
    """

    nodes: tuple[str, ...]
    fits: bool
    rejection: str = ""
    error: str = ""
    final: bool = False
    requests: tuple[RequestReport, ...] = ()
    conflicts: tuple[Conflict, ...] = ()

    @property
    def example(self) -> str:
        """The node that the numbers are from."""
        return self.nodes[0]


@dataclass(frozen=True, slots=True)
class SuggestedChange:
    """A change that was tried and makes the claim fit.

    kind: the kind of change.
    text: the change, in one sentence.
    node: the node on which the claim fits then.
    object: the object to change; empty for an event in the cluster.
    field: the path of the changed field.
    before: its value before.
    after: its value after; None if it is removed.
    others: the names of alternatives that are as good.
    """

    kind: str
    text: str
    node: str
    object: str = ""
    field: str = ""
    before: Any = None
    after: Any = None
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExplainedDevice:
    """An allocated device.

    request: the request or subrequest that it is for.
    device: `driver/pool/device`.
    admin: whether it is allocated for admin access.
    consumed: the capacity that the request consumes, by name.
    """

    request: str
    device: str
    admin: bool = False
    consumed: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a claim has its devices, or why it cannot be allocated and what would help.

    claim: the name of the claim.
    satisfiable: whether it is allocated or can be.
    summary: the answer, in one sentence.
    pod: the pod that uses it.
    node: where it is allocated.
    allocated: whether it is allocated in the snapshot, or when the pods of the snapshot are scheduled.
    got: its devices.
    reports: what was found on the nodes, nearest to a solution first.
    changes: what would help, the smallest change first.
    tried: how many changes were tried.
    notes: more sentences.
    """

    claim: str
    satisfiable: bool
    summary: str
    pod: str = ""
    node: str = ""
    allocated: bool = False
    got: tuple[ExplainedDevice, ...] = ()
    reports: tuple[NodeReport, ...] = ()
    changes: tuple[SuggestedChange, ...] = ()
    tried: int = 0
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON: fields in camelCase, without empty ones."""
        as_json: dict[str, Any] = _json(self)
        return as_json


@dataclass(frozen=True, slots=True)
class PodExplanation:
    """Why a pod runs where it does, or why it does not; and the same for each of its claims.

    pod: the name of the pod.
    satisfiable: whether it runs, or can run on a node that it does not have yet.
    summary: the answer, in one sentence.
    node: its node.
    claims: the explanations of its claims.
    notes: more sentences.
    """

    pod: str
    satisfiable: bool
    summary: str
    node: str = ""
    claims: tuple[Explanation, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON: fields in camelCase, without empty ones."""
        as_json: dict[str, Any] = _json(self)
        return as_json


def _json(value: Any) -> Any:
    if is_dataclass(value):
        named = {field.name: _json(getattr(value, field.name)) for field in fields(value)}
        return {_camel(name): text for name, text in named.items() if text not in (None, "", [], {})}
    if isinstance(value, Mapping):
        return {key: _json(element) for key, element in value.items()}
    return [_json(element) for element in value] if isinstance(value, tuple | list) else value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))
