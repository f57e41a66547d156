"""Faults of the API server, on purpose: errors, latency and broken connections for the requests that a rule matches.

    server.faults.add(FaultRule(Reject(statuses.too_many_requests(1)), resource="resourceslices", times=2))
    server.faults.add(FaultRule(Delay(0.2), verb="get"))
    server.faults.add(FaultRule(Reset(after_serving=True), verb="update", times=1))

Rules hold for requests over HTTP only. What an injected validation rejects or drops belongs in `ObjectStore.admit`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dra_sdk.tools.simulator.routes import Target
    from dra_sdk.tools.simulator.statuses import StatusError


@dataclass(frozen=True)
class Reject:
    """Answers with `error` instead of serving the request."""

    error: StatusError


@dataclass(frozen=True)
class Delay:
    """Waits so many seconds before serving the request."""

    seconds: float


@dataclass(frozen=True)
class Reset:
    """Drops the connection without an answer: before the request is served, or after, when the write has happened."""

    after_serving: bool = False


Effect = Reject | Delay | Reset


@dataclass
class FaultRule:
    """One fault: an effect and the requests it hits.

    `verb`, `resource`, `namespace` and `name` are shell patterns ("*" for any); `subresource` None means any, "" none.
    The first `skip` matching requests pass, the next `times` are hit (None: all of them); `hits` counts those hit.
    """

    effect: Effect
    verb: str = "*"
    resource: str = "*"
    namespace: str = "*"
    name: str = "*"
    subresource: str | None = None
    times: int | None = None
    skip: int = 0
    hits: int = field(default=0, init=False)

    def matches(self, target: Target) -> bool:
        """Whether the rule is about this request, disregarding the counts."""
        wanted = (self.verb, self.resource, self.namespace, self.name)
        actual = (target.verb, target.plural, target.namespace, target.name)
        pairs = zip(actual, wanted, strict=True)
        return self.subresource in {None, target.subresource} and all(fnmatchcase(a, w) for a, w in pairs)


class Faults:
    """The rules in force on one server. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: list[FaultRule] = []

    def add(self, rule: FaultRule) -> FaultRule:
        """Puts a rule in force and returns it."""
        with self._lock:
            self._rules.append(rule)
        return rule

    def remove(self, rule: FaultRule) -> None:
        """Takes a rule out of force."""
        with self._lock:
            self._rules.remove(rule)

    def clear(self) -> None:
        """Takes all rules out of force."""
        with self._lock:
            self._rules.clear()

    def strike(self, target: Target) -> list[Effect]:
        """The effects that hit this request, in the order of the rules; counts it in each rule that matches."""
        with self._lock:
            return [rule.effect for rule in self._rules if rule.matches(target) and self._counted(rule)]

    def _counted(self, rule: FaultRule) -> bool:
        if rule.skip > 0:
            rule.skip -= 1
            return False
        if rule.times is not None and rule.hits >= rule.times:
            return False
        rule.hits += 1
        return True
