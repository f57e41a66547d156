"""What an explanation says, as values that become JSON or text.

All counts are of devices. Selectors, constraints and alternatives are counted from 0, as in the API's field paths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Drop:
    """Devices that fail for one reason: `details` are the values they have, the most frequent first.

    `field` and `position` (line and column, from 1) point at the CEL clause, where it is one.
    """

    reason: str
    count: int
    example: str
    details: tuple[str, ...] = ()
    position: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """One thing that a device must meet; `kept` of them do, which the next stage looks at.

    `kind` is one of node, pool, class, selector, binding, taint, use, capacity, counters and attribute.
    """

    kind: str
    label: str
    kept: int
    drops: tuple[Drop, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestReport:
    """A request or subrequest on one node: how many devices it needs (None: all that match), and how many are left.

    `total` devices are in the cluster, `devices` of them within reach of the node. `enough` tells whether those that
    are left suffice for the request alone; `candidates` names the first of them.
    """

    request: str
    device_class: str
    needed: int | None
    total: int
    devices: int
    stages: tuple[Stage, ...]
    left: int
    enough: bool
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why devices that suffice for each request alone do not go together.

    `kind` is one of constraint, counters, capacity, devices and search.
    """

    kind: str
    text: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What holds on some nodes alike; figures and devices are those of the first, which is nearest to a solution.

    `obstacle` says why the pod cannot run there whatever its claims, `error` what stops the allocation; with `final`,
    the scheduler then tries no further node.
    """

    nodes: tuple[str, ...]
    fits: bool
    obstacle: str = ""
    error: str = ""
    final: bool = False
    requests: tuple[RequestReport, ...] = ()
    conflicts: tuple[Conflict, ...] = ()

    @property
    def example(self) -> str:
        """The node that the figures are of."""
        return self.nodes[0]


@dataclass(frozen=True, slots=True)
class Change:
    """A change that was tried, and with which the claim can be had on `node`.

    `field` is the path of what is changed in `object`, from `before` to `after`; both are empty for something that
    happens rather than being edited. `others` are alternatives that do just as well.
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
class Got:
    """An allocated device, and for a request with alternatives, why the better ones were not taken."""

    request: str
    device: str
    admin: bool = False
    consumed: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a claim has the devices it has, or why it has none and what would help, the smallest change first.

    `allocated` tells that it has them, or gets them when the snapshot's pods are scheduled; `pod` is who uses it.
    """

    claim: str
    satisfiable: bool
    summary: str
    pod: str = ""
    node: str = ""
    allocated: bool = False
    got: tuple[Got, ...] = ()
    reports: tuple[NodeReport, ...] = ()
    changes: tuple[Change, ...] = ()
    tried: int = 0
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As JSON: fields in camelCase, without those that are empty."""
        found: dict[str, Any] = _json(self)
        return found


@dataclass(frozen=True, slots=True)
class PodExplanation:
    """Why a pod runs where it does, or why it cannot, and the same for each of its claims."""

    pod: str
    satisfiable: bool
    summary: str
    node: str = ""
    claims: tuple[Explanation, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As JSON: fields in camelCase, without those that are empty."""
        found: dict[str, Any] = _json(self)
        return found


def _json(value: Any) -> Any:
    if is_dataclass(value):
        named = {each.name: _json(getattr(value, each.name)) for each in fields(value)}
        return {_camel(name): each for name, each in named.items() if each not in (None, "", [], {})}
    if isinstance(value, Mapping):
        return {key: _json(each) for key, each in value.items()}
    return [_json(each) for each in value] if isinstance(value, tuple | list) else value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))
