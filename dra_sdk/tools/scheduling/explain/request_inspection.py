"""One request on one node: which of the devices there pass which check, and why the others fail.

For a CEL selector, conjuncts (the parts of the `&&` at the top) that are false are named, with the values they read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dra_sdk import cel
from dra_sdk.cel.conjuncts import Conjunct, conjuncts
from dra_sdk.cel.fields import FieldValue
from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator.claim_requests import ParsedClaim, Request, RequestGroup
from dra_sdk.tools.scheduling.allocator.devices import DeviceContent
from dra_sdk.tools.scheduling.allocator.inventory import NodeDevices
from dra_sdk.tools.scheduling.allocator.pools import Candidate
from dra_sdk.tools.scheduling.explain.allocation_problem import AllocationProblem
from dra_sdk.tools.scheduling.explain.device_checks import (
    CheckFailure,
    DeviceFunnel,
    attribute_present,
    capacity_available,
    counters_available,
    groups_compatible,
    not_in_use,
    operations_supported,
    short_device_name,
    taints_tolerated,
)
from dra_sdk.tools.scheduling.explain.explanation import FailedDevices, FunnelStage, RequestReport

_MAX_CONJUNCT_COST: Final = cel.MAX_COST // 20
"""The cost limit of a conjunct if its expression as a whole costs too much."""
_MAX_CANDIDATES_NAMED: Final = 8


class InspectedSelector:
    """A selector of a request or of its class, as a check; `index` counts those of the class first."""

    def __init__(self, problem: AllocationProblem, request: Request, index: int) -> None:
        self.text = request.selectors[index]
        self.is_of_class = index < request.class_selector_count
        self.number = index if self.is_of_class else index - request.class_selector_count
        self._request = request
        self._expression = problem.selectors.expression(self.text)
        self._features = problem.features.cel
        self._failures: dict[DeviceContent, tuple[CheckFailure, ...]] = {}
        self._verdicts: dict[DeviceContent, tuple[tuple[Conjunct, bool | None], ...]] = {}

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

    def conjuncts(self) -> tuple[Conjunct, ...]:
        """Return its conjuncts; CelCompileError if it does not compile."""
        return conjuncts(self.text, self._features)

    def __call__(self, candidate: Candidate) -> tuple[CheckFailure, ...]:
        """Return why a candidate is not selected."""
        content = candidate.content
        failures = self._failures.get(content)
        if failures is None:
            failures = self._failures[content] = tuple(self._reasons(content))
        return failures

    def verdicts(self, content: DeviceContent) -> tuple[tuple[Conjunct, bool | None], ...]:
        """Return the result of each conjunct for a device; None if it fails, or costs too much."""
        found = self._verdicts.get(content)
        if found is None:
            costly = isinstance(self._expression.verdict(content), cel.CelCostError)
            limit = _MAX_CONJUNCT_COST if costly else cel.MAX_COST
            found = self._verdicts[content] = tuple(
                (conjunct, conjunct.holds(content.view, limit)) for conjunct in self.conjuncts()
            )
        return found

    def _reasons(self, content: DeviceContent) -> Iterator[CheckFailure]:
        verdict = self._expression.verdict(content)
        if isinstance(verdict, cel.CelCompileError):
            yield CheckFailure(
                f"fail because the expression is invalid: {verdict.problem}", "", (verdict.line, verdict.column)
            )
        elif isinstance(verdict, cel.CelError):
            yield self._not_evaluated(content, verdict)
        elif not verdict:
            for conjunct, holds in self.verdicts(content):
                if holds is False:
                    yield CheckFailure(
                        f"fail {conjunct.text}",
                        format_fields(conjunct.fields(content.view)),
                        (conjunct.line, conjunct.column),
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
    request: Request
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
    def _sizes(self) -> Mapping[tuple[str, str], int]:
        """The number of devices of each pool, in its newest generation."""
        slices = self.problem.inventory.slices
        newest: dict[tuple[str, str], int] = {}
        for pool_slice in slices:
            newest[pool_slice.pool] = max(pool_slice.generation, newest.get(pool_slice.pool, 0))
        sizes: Counter[tuple[str, str]] = Counter()
        for pool_slice in slices:
            is_newest = pool_slice.generation == newest[pool_slice.pool]
            sizes[pool_slice.pool] += len(pool_slice.raw_devices) if is_newest else 0
        return sizes

    @cached_property
    def _total(self) -> int:
        """The number of devices in the cluster."""
        return sum(self._sizes.values())

    def selectors(self, request: Request) -> Iterator[InspectedSelector]:
        """Yield the selectors of a request, those of its class first."""
        for index in range(len(request.selectors)):
            key = (request.reference, index)
            if key not in self._selectors:
                self._selectors[key] = InspectedSelector(self.problem, request, index)
            yield self._selectors[key]

    def inspect(self, parsed: ParsedClaim, request: Request, node: JSON) -> RequestInspection:
        """Apply all checks to the devices of a node."""
        problem, name = self.problem, node["metadata"]["name"]
        node_devices = problem.inventory.node_devices(node)
        funnel = DeviceFunnel(name, [candidate for candidate in node_devices.candidates if candidate.on_node])
        accessible = len(funnel.left)
        if unusable := tuple(self._unusable(node_devices)):
            funnel.stages.append(FunnelStage("pool", "", accessible, unusable))
            accessible += sum(drop.count for drop in unusable)
        passing_class = self._select(funnel, request)
        matching = funnel.left
        if request.count is None:
            # Mode All skips devices without enough capacity before it counts devices.
            when_unused = problem.features.behaviour.all_mode_counts_full_devices
            funnel.apply(
                "capacity", "", capacity_available(problem, request, when_unused=when_unused), omit_if_passed=True
            )
            matching = funnel.left
        self._restrict(funnel, parsed, request, node)
        report = RequestReport(
            request.reference,
            request.class_name,
            request.count,
            self._total,
            accessible,
            tuple(funnel.stages),
            len(funnel.left),
            _enough(request, matching, funnel.left),
            tuple(short_device_name(candidate, name) for candidate in funnel.left[:_MAX_CANDIDATES_NAMED]),
        )
        return RequestInspection(problem, request, report, funnel.left, matching, passing_class)

    def _unusable(self, node_devices: NodeDevices) -> Iterator[FailedDevices]:
        """Yield the devices of the pools that are incomplete or invalid."""
        for pool in node_devices.pools:
            if problem := pool.incomplete or pool.invalid:
                state = "incomplete" if pool.incomplete else "invalid"
                reason = f"in pool {pool.name}, which is {state}: {problem}"
                yield FailedDevices(reason, self._sizes[pool.id], pool.id[1])

    def _select(self, funnel: DeviceFunnel, request: Request) -> Sequence[Candidate]:
        """Apply the selectors; return the candidates that pass those of the class."""
        passing_class = funnel.left
        for selector in self.selectors(request):
            funnel.apply(selector.kind, f"selector {selector.number}", selector)
            passing_class = funnel.left if selector.is_of_class else passing_class
        if not self.problem.features.binding_conditions:
            off = (CheckFailure("with binding conditions, but the feature DRADeviceBindingConditions is off"),)
            funnel.apply("binding", "", lambda left: off if left.device.binding_conditions else (), omit_if_passed=True)
        return passing_class

    def _restrict(self, funnel: DeviceFunnel, parsed: ParsedClaim, request: Request, node: JSON) -> None:
        """Apply all other checks to the devices that match."""
        problem = self.problem
        if not request.admin_access:
            funnel.apply("use", "", not_in_use(problem, funnel.node), omit_if_passed=True)
        if request.count is not None:
            funnel.apply("capacity", "", capacity_available(problem, request), omit_if_passed=True)
        elif problem.features.behaviour.all_mode_counts_full_devices:
            funnel.apply("available", "", capacity_available(problem, request), omit_if_passed=True)
        if problem.features.device_taints:
            funnel.apply("taint", "", taints_tolerated(request), omit_if_passed=True)
        if problem.features.variant == "experimental":
            funnel.apply("operations", "", operations_supported(problem, node), omit_if_passed=True)
        if problem.features.compatibility_groups:
            funnel.apply("groups", "", groups_compatible(problem), omit_if_passed=True)
        funnel.apply("counters", "", counters_available(problem), omit_if_passed=True)
        for index, constraint in constraints_on(parsed, request):
            check = attribute_present(constraint, request, lists=problem.features.list_attributes)
            funnel.apply("attribute", f"constraint {index}", check, omit_if_passed=True)


def _enough(request: Request, matching: Sequence[Candidate], left: Sequence[Candidate]) -> bool:
    """Return whether the candidates are enough for a request alone."""
    if request.count is None:
        return bool(matching) and len(left) == len(matching)
    return len(left) >= request.count


def constraints_on(parsed: ParsedClaim, request: Request) -> Iterator[tuple[int, JSON]]:
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
