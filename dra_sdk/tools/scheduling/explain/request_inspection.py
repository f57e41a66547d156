"""One request on one node: which of the devices there pass which check, and why the others fail.

For a CEL selector, conjuncts (the parts of the `&&` at the top) that are false are named, with the values they read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Final

from dra_sdk import cel
from dra_sdk.cel.conjuncts import Conjunct, conjuncts
from dra_sdk.cel.fields import FieldValue
from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator.claim_requests import ParsedClaim, ParsedRequest, RequestGroup
from dra_sdk.tools.scheduling.allocator.devices import DeviceContent, PoolId
from dra_sdk.tools.scheduling.allocator.inventory import NodeInventory
from dra_sdk.tools.scheduling.allocator.pools import Candidate
from dra_sdk.tools.scheduling.cluster.snapshot import newest_generation, slices_by_pool
from dra_sdk.tools.scheduling.explain.allocation_problem import AllocationProblem
from dra_sdk.tools.scheduling.explain.device_checks import (
    CheckFailure,
    DeviceChecks,
    DeviceFunnel,
    short_device_name,
)
from dra_sdk.tools.scheduling.explain.explanation import FailedDevices, FunnelStage, RequestReport

_MAX_CONJUNCT_COST: Final = cel.MAX_COST // 20
"""The cost limit of a conjunct if its expression as a whole costs too much."""
_MAX_CANDIDATES_NAMED: Final = 8
_DRIVER_CONJUNCT: Final = re.compile(r"device\.driver\s*==\s*[\"']([^\"']+)[\"']")


class InspectedSelector:
    """A selector of a request or of its class, as a check; `index` counts those of the class first."""

    def __init__(self, problem: AllocationProblem, request: ParsedRequest, index: int) -> None:
        self.text = request.selectors[index]
        self.is_of_class = index < request.class_selector_count
        self.number = index if self.is_of_class else index - request.class_selector_count
        self._request = request
        self._expression = problem.selectors.expression(self.text)
        self._features = problem.features.cel
        #: Returns the result of each conjunct for a device, None if it fails or costs too much; CelCompileError.
        self.verdicts = cache(self._conjunct_verdicts)
        self._failures = cache(self._reasons)

    @property
    def kind(self) -> str:
        """The kind of its stage in the funnel."""
        return "class" if self.is_of_class else "selector"

    @property
    def location(self) -> str:
        """The class or request, and the index from 0."""
        if self.is_of_class:
            return f"class {self._request.class_name}, selector {self.number}"
        return f"request {self._request.reference}, selector {self.number}"

    def __call__(self, candidate: Candidate) -> tuple[CheckFailure, ...]:
        """Return why a candidate is not selected."""
        return self._failures(candidate.content)

    def _conjunct_verdicts(self, content: DeviceContent) -> tuple[tuple[Conjunct, bool | None], ...]:
        costly = isinstance(self._expression.verdict(content), cel.CelCostError)
        limit = _MAX_CONJUNCT_COST if costly else cel.MAX_COST
        return tuple(
            (conjunct, conjunct.holds(content.view, limit)) for conjunct in conjuncts(self.text, self._features)
        )

    def _reasons(self, content: DeviceContent) -> tuple[CheckFailure, ...]:
        verdict = self._expression.verdict(content)
        if isinstance(verdict, cel.CelCompileError):
            problem = f"fail because the expression is invalid: {verdict.problem}"
            return (CheckFailure(problem, "", (verdict.line, verdict.column)),)
        if isinstance(verdict, cel.CelError):
            return (self._not_evaluated(content, verdict),)
        if verdict:
            return ()
        return tuple(
            CheckFailure(
                f"fail {conjunct.text}", format_fields(conjunct.fields(content.view)), (conjunct.line, conjunct.column)
            )
            for conjunct, holds in self.verdicts(content)
            if holds is False
        )

    def _not_evaluated(self, content: DeviceContent, error: cel.CelError) -> CheckFailure:
        """Explain which conjunct cannot be evaluated."""
        for conjunct, holds in self.verdicts(content):
            if holds is not None:
                continue
            if isinstance(error, cel.CelCostError):
                return CheckFailure(f"fail {conjunct.text}: {error.problem}", "", (conjunct.line, conjunct.column))
            explanation = conjunct.explain(content.view)
            problem = f"on which {conjunct.text} cannot be evaluated: {explanation.problem}"
            return CheckFailure(problem, format_fields(explanation.fields), (explanation.line, explanation.column))
        return CheckFailure(f"on which it cannot be evaluated: {error.problem}")


def format_fields(fields: Sequence[FieldValue]) -> str:
    """Return the values that a conjunct read, in one line."""
    return ", ".join(map(str, fields))


@dataclass(frozen=True, slots=True)
class RequestInspection:
    """A request on a node.

    problem: the problem that it is part of.
    request: the request.
    report: what was found.
    left: the candidates that pass all checks.
    matching: those that pass all selectors.
    passing_class: those that pass the selectors of the class.
    """

    problem: AllocationProblem
    request: ParsedRequest
    report: RequestReport
    left: Sequence[Candidate]
    matching: Sequence[Candidate]
    passing_class: Sequence[Candidate]

    @property
    def closest(self) -> Sequence[Candidate]:
        """The devices that match, or without any those of the class."""
        return self.matching or self.passing_class


class RequestInspector:
    """Inspects the requests of a problem; results of selectors are kept."""

    def __init__(self, problem: AllocationProblem) -> None:
        self.problem = problem
        self._selectors: dict[tuple[str, int], InspectedSelector] = {}

    @cached_property
    def _sizes(self) -> Mapping[PoolId, int]:
        """The number of devices of each pool, in its newest generation."""
        return {
            pool: sum(len(raw_slice["spec"].get("devices") or ()) for raw_slice in newest_generation(slices))
            for pool, slices in slices_by_pool(self.problem.slices).items()
        }

    def selectors(self, request: ParsedRequest) -> Iterator[InspectedSelector]:
        """Yield the selectors of a request, those of its class first."""
        for index in range(len(request.selectors)):
            key = (request.reference, index)
            if key not in self._selectors:
                self._selectors[key] = InspectedSelector(self.problem, request, index)
            yield self._selectors[key]

    def inspect(self, parsed: ParsedClaim, request: ParsedRequest, node: JSON) -> RequestInspection:
        """Apply all checks to the devices of a node."""
        problem, name = self.problem, node["metadata"]["name"]
        node_devices = problem.inventory.node_devices(node)
        funnel = DeviceFunnel(name, [candidate for candidate in node_devices.candidates if candidate.on_node])
        accessible = len(funnel.left)
        if unusable := tuple(self._unusable(node_devices)):
            funnel.stages.append(FunnelStage("pool", "", accessible, unusable))
            accessible += sum(drop.count for drop in unusable)
        passing_class = self._select(funnel, request)
        checks = DeviceChecks(problem, request, node)
        if request.count is None:
            # Mode All skips devices without enough capacity before it counts devices.
            when_unused = problem.features.behaviour.all_mode_counts_full_devices
            funnel.apply("capacity", checks.capacity_when_unused if when_unused else checks.capacity_available)
        matching = funnel.left
        self._restrict(funnel, parsed, checks)
        report = RequestReport(
            request.reference,
            request.class_name,
            request.count,
            sum(self._sizes.values()),
            accessible,
            tuple(funnel.stages),
            len(funnel.left),
            _enough(request, matching, funnel.left),
            tuple(short_device_name(candidate, name) for candidate in funnel.left[:_MAX_CANDIDATES_NAMED]),
        )
        return RequestInspection(problem, request, report, funnel.left, matching, passing_class)

    def _unusable(self, node_devices: NodeInventory) -> Iterator[FailedDevices]:
        """Yield the devices of the pools that are incomplete or invalid."""
        for pool in node_devices.pools:
            if problem := pool.incomplete or pool.invalid:
                state = "incomplete" if pool.incomplete else "invalid"
                reason = f"in pool {pool.name}, which is {state}: {problem}"
                yield FailedDevices(reason, self._sizes[pool.id], pool.id[1])

    def _select(self, funnel: DeviceFunnel, request: ParsedRequest) -> Sequence[Candidate]:
        """Apply the selectors; return the candidates that pass those of the class."""
        passing_class = funnel.left
        for selector in self.selectors(request):
            funnel.apply(selector.kind, selector, f"selector {selector.number}", always=True)
            passing_class = funnel.left if selector.is_of_class else passing_class
        if not self.problem.features.binding_conditions:
            off = (CheckFailure("with binding conditions, but the feature DRADeviceBindingConditions is off"),)
            funnel.apply("binding", lambda candidate: off if candidate.device.binding_conditions else ())
        return passing_class

    def _restrict(self, funnel: DeviceFunnel, parsed: ParsedClaim, checks: DeviceChecks) -> None:
        """Apply all other checks to the devices that match."""
        features, request = self.problem.features, checks.request
        if not request.admin_access:
            funnel.apply("use", checks.not_in_use)
        if request.count is not None:
            funnel.apply("capacity", checks.capacity_available)
        elif features.behaviour.all_mode_counts_full_devices:
            funnel.apply("available", checks.capacity_available)
        if features.device_taints:
            funnel.apply("taint", checks.taints_tolerated)
        if features.variant == "experimental":
            funnel.apply("operations", checks.operations_supported)
        if features.compatibility_groups:
            funnel.apply("groups", checks.groups_compatible)
        funnel.apply("counters", checks.counters_available)
        for index, constraint in constraints_on(parsed, request):
            funnel.apply("attribute", partial(checks.attribute_present, constraint), f"constraint {index}")


def _enough(request: ParsedRequest, matching: Sequence[Candidate], left: Sequence[Candidate]) -> bool:
    """Return whether the candidates are enough for a request alone."""
    if request.count is None:
        return bool(matching) and len(left) == len(matching)
    return len(left) >= request.count


def constraints_on(parsed: ParsedClaim, request: ParsedRequest) -> Iterator[tuple[int, JSON]]:
    """Yield the constraints of a claim that cover a request, with their index."""
    for index, constraint in enumerate(parsed.constraints):
        names = set(constraint.get("requests") or ())
        if not names or names & {request.base_name, request.reference}:
            yield index, dict(constraint)


def failing_requests(
    groups: Iterable[RequestGroup], inspections: Iterable[RequestInspection]
) -> list[RequestInspection]:
    """Return the requests that fail by themselves: those without an alternative that has enough devices."""
    enough = {id(inspection.request): inspection.report.enough for inspection in inspections}
    failing = {
        id(request)
        for group in groups
        if not any(enough[id(alternative)] for alternative in group.alternatives)
        for request in group.alternatives
    }
    return [inspection for inspection in inspections if id(inspection.request) in failing]


def unpublished_driver(problem: AllocationProblem) -> str:
    """Return which driver has published nothing, if no request of a group can do without it; else empty."""
    published = {raw_slice["spec"]["driver"] for raw_slice in problem.slices}
    for group in problem.parsed_claim.groups:
        drivers = {request.class_name: _driver_of_class(problem, request) for request in group.alternatives}
        if drivers and all(driver and driver not in published for driver in drivers.values()):
            name, driver = next(iter(drivers.items()))
            return f"driver {driver} of class {name} has published nothing"
    return ""


def _driver_of_class(problem: AllocationProblem, request: ParsedRequest) -> str:
    """Return the only driver whose devices a class selects, as one of its conjuncts says; empty without one."""
    for text in request.selectors[: request.class_selector_count]:
        with suppress(cel.CelCompileError):
            for conjunct in conjuncts(text, problem.features.cel):
                if found := _DRIVER_CONJUNCT.fullmatch(conjunct.text):
                    return found[1]
    return ""
