"""One request on one node: which of the devices there pass which test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator.inventory import NodeView
from dra_sdk.tools.scheduling.allocator.pools import Candidate
from dra_sdk.tools.scheduling.allocator.requests import ClaimPlan, Group, Request
from dra_sdk.tools.scheduling.explain import checks
from dra_sdk.tools.scheduling.explain.funnel import Funnel, Reason, name_of
from dra_sdk.tools.scheduling.explain.model import Drop, RequestReport, Stage
from dra_sdk.tools.scheduling.explain.selection import Selector
from dra_sdk.tools.scheduling.explain.setting import Setting

_NAMED = 8


@dataclass(frozen=True, slots=True)
class Looked:
    """A request on a node: the report, and the candidates that pass all tests, all selectors, those of the class."""

    setting: Setting
    request: Request
    report: RequestReport
    left: Sequence[Candidate]
    matching: Sequence[Candidate]
    of_class: Sequence[Candidate]

    @property
    def nearest(self) -> Sequence[Candidate]:
        """Devices that match, or if there are none those of the class."""
        return self.matching or self.of_class


class Looker:
    """Looks at requests in one setting; what selectors say of a device is worked out once."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._selectors: dict[tuple[str, int], Selector] = {}

    @cached_property
    def _sizes(self) -> Mapping[tuple[str, str], int]:
        """How many devices each pool has, in its newest generation."""
        slices = self.setting.inventory.slices
        newest: dict[tuple[str, str], int] = {}
        for each in slices:
            newest[each.pool] = max(each.generation, newest.get(each.pool, 0))
        found: Counter[tuple[str, str]] = Counter()
        for each in slices:
            found[each.pool] += len(each.raw_devices) if each.generation == newest[each.pool] else 0
        return found

    @cached_property
    def _total(self) -> int:
        return sum(self._sizes.values())

    def selectors(self, request: Request) -> Iterator[Selector]:
        """The selectors of a request, those of its class first."""
        for index in range(len(request.selectors)):
            key = (request.reference, index)
            if key not in self._selectors:
                self._selectors[key] = Selector(self.setting, request, index)
            yield self._selectors[key]

    def look(self, plan: ClaimPlan, request: Request, node: JSON) -> Looked:
        """The funnel of a request."""
        setting, name = self.setting, node["metadata"]["name"]
        view = setting.inventory.view(node)
        funnel = Funnel(name, [each for each in view.candidates if each.here])
        devices = len(funnel.left)
        if unusable := tuple(self._unusable(view)):
            funnel.stages.append(Stage("pool", "", devices, unusable))
            devices += sum(each.count for each in unusable)
        of_class = self._select(funnel, request)
        matching = funnel.left
        if request.count is None:
            # A request for all passes over devices that have not the capacity, before it counts them.
            ever = setting.features.behaviour.all_counts_the_full
            funnel.apply("capacity", "", checks.capacity(setting, request, ever=ever), silent=True)
            matching = funnel.left
        self._restrict(funnel, plan, request, node)
        enough = _enough(request, matching, funnel.left)
        names = tuple(name_of(each, name) for each in funnel.left[:_NAMED])
        stages = tuple(funnel.stages)
        count, cls = request.count, request.class_name
        report = RequestReport(
            request.reference, cls, count, self._total, devices, stages, len(funnel.left), enough, names
        )
        return Looked(setting, request, report, funnel.left, matching, of_class)

    def _unusable(self, view: NodeView) -> Iterator[Drop]:
        for pool in view.pools:
            if problem := pool.incomplete or pool.invalid:
                state = "incomplete" if pool.incomplete else "invalid"
                yield Drop(f"in pool {pool.name}, which is {state}: {problem}", self._sizes[pool.id], pool.id[1])

    def _select(self, funnel: Funnel, request: Request) -> Sequence[Candidate]:
        of_class = funnel.left
        for each in self.selectors(request):
            funnel.apply(each.kind, f"selector {each.number}", each)
            of_class = funnel.left if each.of_class else of_class
        if not self.setting.features.binding_conditions:
            off = (Reason("with binding conditions, while the feature DRADeviceBindingConditions is off"),)
            funnel.apply("binding", "", lambda each: off if each.device.binding_conditions else (), silent=True)
        return of_class

    def _restrict(self, funnel: Funnel, plan: ClaimPlan, request: Request, node: JSON) -> None:
        setting = self.setting
        if not request.admin:
            funnel.apply("use", "", checks.free(setting, funnel.node), silent=True)
        if request.count is not None:
            funnel.apply("capacity", "", checks.capacity(setting, request), silent=True)
        elif setting.features.behaviour.all_counts_the_full:
            funnel.apply("room", "", checks.capacity(setting, request), silent=True)
        if setting.features.device_taints:
            funnel.apply("taint", "", checks.untainted(request), silent=True)
        if setting.features.variant == "experimental":
            funnel.apply("operations", "", checks.operations(setting, node), silent=True)
        if setting.features.compatibility_groups:
            funnel.apply("groups", "", checks.groups(setting), silent=True)
        funnel.apply("counters", "", checks.counters(setting), silent=True)
        for index, each in constraints_on(plan, request):
            test = checks.attribute(each, request, lists=setting.features.list_attributes)
            funnel.apply("attribute", f"constraint {index}", test, silent=True)


def _enough(request: Request, matching: Sequence[Candidate], left: Sequence[Candidate]) -> bool:
    """Whether the candidates suffice for a request alone."""
    if request.count is None:
        return bool(matching) and len(left) == len(matching)
    return len(left) >= request.count


def constraints_on(plan: ClaimPlan, request: Request) -> Iterator[tuple[int, JSON]]:
    """The constraints of a claim that are about a request, with their index."""
    for index, each in enumerate(plan.constraints):
        names = set(each.get("requests") or ())
        if not names or names & {request.base, request.reference}:
            yield index, dict(each)


def short(groups: Iterable[Group], looked: Iterable[Looked]) -> list[Looked]:
    """The requests that fail by themselves: those without any alternative that has enough devices."""
    enough = {id(each.request): each.report.enough for each in looked}
    failing = {
        id(request)
        for group in groups
        if not any(enough[id(each)] for each in group.alternatives)
        for request in group.alternatives
    }
    return [each for each in looked if id(each.request) in failing]
