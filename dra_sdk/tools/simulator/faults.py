"""Injected faults of the API server: errors, latency and broken connections for the requests that a rule matches.

    server.faults.add(FaultRule(Reject(statuses.too_many_requests(1)), resource="resourceslices", times=2))
    server.faults.add(FaultRule(Delay(0.2), verb="get"))
    server.faults.add(FaultRule(Reset(after_serving=True), verb="update", times=1))

Rules apply to requests over HTTP only. To reject or change what is written, append to `ObjectStore.admit` instead.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from dra_sdk.tools.simulator.request import RequestInfo
from dra_sdk.tools.simulator.statuses import StatusError


@dataclass(frozen=True)
class Reject:
    """Refuses the request.

    error: the answer.
    """

    error: StatusError


@dataclass(frozen=True)
class Delay:
    """Waits before serving the request.

    seconds: how long; less if the server stops.
    """

    seconds: float


@dataclass(frozen=True)
class Reset:
    """Resets the connection (TCP RST) without an answer.

    after_serving: whether the request is served before, so that a write takes effect.
    """

    after_serving: bool = False


Effect = Reject | Delay | Reset


@dataclass
class FaultRule:
    """One fault: an effect and the requests that it applies to.

    effect: what happens to the request.
    verb: shell pattern of the API verb.
    resource: shell pattern of the plural name.
    namespace: shell pattern of the namespace.
    name: shell pattern of the object's name.
    subresource: exactly this one, "" for none; None for any.
    times: how many requests are hit, None for all.
    skip: how many matching requests pass before the first hit.
    hits: how many requests were hit so far.
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

    def matches(self, request: RequestInfo) -> bool:
        """Return whether the rule matches this request, regardless of its counts."""
        is_place = fnmatchcase(request.namespace, self.namespace) and fnmatchcase(request.name, self.name)
        return request.fits(self.verb, self.resource) and is_place and self.subresource in {None, request.subresource}


class FaultRules:
    """The fault rules of one server. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: list[FaultRule] = []

    def add(self, rule: FaultRule) -> FaultRule:
        """Add a rule and return it."""
        with self._lock:
            self._rules.append(rule)
        return rule

    def remove(self, rule: FaultRule) -> None:
        """Remove a rule."""
        with self._lock:
            self._rules.remove(rule)

    def clear(self) -> None:
        """Remove all rules."""
        with self._lock:
            self._rules.clear()

    def hit(self, request: RequestInfo) -> list[Effect]:
        """Return the effects on this request, in the order of the rules; count it in every rule that matches."""
        with self._lock:
            return [rule.effect for rule in self._rules if rule.matches(request) and self._hits(rule)]

    def _hits(self, rule: FaultRule) -> bool:
        if rule.skip > 0:
            rule.skip -= 1
            return False
        if rule.times is not None and rule.hits >= rule.times:
            return False
        rule.hits += 1
        return True
