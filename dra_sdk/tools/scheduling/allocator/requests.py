"""A claim as the allocator works through it: its requests, each with the alternatives among which one is chosen.

Everything that can be said without looking at devices is checked here. A request that asks for exactly something is a
group of one alternative; one with `firstAvailable` is a group of its subrequests, in order of preference.
Source: resource.k8s.io/v1 DeviceRequest, ExactDeviceRequest, DeviceSubRequest; defaults as the API server sets them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator.amounts import amount
from dra_sdk.tools.scheduling.allocator.capacity import Arithmetic, Demand
from dra_sdk.tools.scheduling.allocator.derived import DerivedAttribute
from dra_sdk.tools.scheduling.allocator.errors import AllocationError
from dra_sdk.tools.scheduling.allocator.features import Features

MAX_RESULTS: Final = 32
"""How many devices a claim may get (AllocationResultsMaxSize)."""
_MODES: Final = ("ExactCount", "All")


@dataclass(slots=True, eq=False)
class Request:
    """One request or subrequest: what a device must be, and how many of them.

    `count` is None for all devices that match. `selectors` are the expressions of the class, `of_class` of them, then
    those of the request. `demand` is the capacity asked of each device, `derived` has the attributes that the request
    derives by their names. Compares by identity.
    """

    claim: str
    name: str
    parent: str | None
    class_name: str
    device_class: JSON
    selectors: tuple[str, ...]
    of_class: int
    count: int | None
    admin: bool
    tolerations: Sequence[Mapping[str, Any]]
    demand: Demand
    derived: Mapping[str, DerivedAttribute] = field(default_factory=dict)

    @property
    def reference(self) -> str:
        """How results and configurations refer to it: `request` or `request/subrequest`."""
        return self.name if self.parent is None else f"{self.parent}/{self.name}"

    @property
    def base(self) -> str:
        """The name of the request in the claim, without subrequest."""
        return self.name if self.parent is None else self.parent

    def where(self, selector: int) -> str:
        """What a selector is, for messages: the class or the claim, the request and the index from 0."""
        request = f"claim {self.claim}, request {self.reference}"
        if selector < self.of_class:
            return f"{request}, class {self.class_name}: selector #{selector}"
        return f"{request}: selector #{selector - self.of_class}"


@dataclass(frozen=True, slots=True)
class Group:
    """A request of the claim: `alternatives` in order of preference, one only unless it is `optional`."""

    name: str
    alternatives: Sequence[Request]
    optional: bool


@dataclass(frozen=True, slots=True, eq=False)
class ClaimPlan:
    """A claim, read. `label` is `namespace/name`, or the name alone."""

    claim: JSON
    label: str
    groups: Sequence[Group]
    constraints: Sequence[Mapping[str, Any]] = field(default=())

    @property
    def requests(self) -> Iterator[Request]:
        """All requests and subrequests."""
        return (request for group in self.groups for request in group.alternatives)

    @property
    def derives(self) -> bool:
        """Whether any of them derives an attribute."""
        return any(each.derived for each in self.requests)


def label(claim: JSON) -> str:
    """`namespace/name` of a claim, or its name where it has no namespace."""
    metadata = claim.get("metadata") or {}
    name, namespace = metadata.get("name", ""), metadata.get("namespace")
    return f"{namespace}/{name}" if namespace else str(name)


def parse(claim: JSON, classes: Mapping[str, JSON], features: Features) -> ClaimPlan:
    """Reads a claim; AllocationError if it, or a class it names, cannot be worked with under these features."""
    devices = (claim.get("spec") or {}).get("devices") or {}
    reader = _Reader(label(claim), classes, features)
    groups = [reader.group(each) for each in devices.get("requests") or []]
    constraints = devices.get("constraints") or []
    for index, each in enumerate(constraints):
        if not each.get("matchAttribute") and not each.get("distinctAttribute"):
            problem = "empty constraint (unsupported constraint type?)"
            raise AllocationError(f"claim {reader.claim}, constraint #{index}: {problem}")
    return ClaimPlan(claim, reader.claim, groups, constraints)


@dataclass(frozen=True, slots=True)
class _Reader:
    claim: str
    classes: Mapping[str, JSON]
    features: Features

    def group(self, raw: JSON) -> Group:
        name, exactly, alternatives = raw.get("name", ""), raw.get("exactly"), raw.get("firstAvailable") or []
        if alternatives and not self.features.prioritized_list:
            raise self._refused(name, "has subrequests, but the DRAPrioritizedList feature is disabled")
        if alternatives:
            requests = [self._request(each.get("name", ""), name, each) for each in alternatives]
            return Group(name, requests, optional=True)
        if exactly is None:
            raise self._refused(name, "has neither exactly nor firstAvailable (unsupported request type?)")
        return Group(name, [self._request(name, None, exactly)], optional=False)

    def _refused(self, request: str, problem: str, what: str = "request") -> AllocationError:
        return AllocationError(f"claim {self.claim}, {what} {request}: {problem}")

    def _request(self, name: str, parent: str | None, raw: JSON) -> Request:
        if raw.get("capacity") is not None and not self.features.consumable_capacity:
            problem = "has capacity requests, but the DRAConsumableCapacity feature is disabled"
            raise self._refused(name, problem, "request" if parent is None else "subrequest")
        derived = raw.get("derivedAttributes") or ()
        if derived and self.features.behaviour.knows_newer_fields and not self.features.derived_attributes:
            raise self._refused(name, "has derived attributes, but the DRADerivedAttributes feature is disabled")
        own = self._expressions(raw.get("selectors"), f"claim {self.claim}, request {name}")
        if parent is None and raw.get("adminAccess") is not None and not self.features.admin_access:
            raise self._refused(name, "admin access is requested, but the feature is disabled")
        class_name = raw.get("deviceClassName") or ""
        device_class = self._class(name, class_name)
        selectors = (device_class.get("spec") or {}).get("selectors")
        inherited = self._expressions(selectors, f"class {class_name}")
        return Request(
            claim=self.claim,
            name=name,
            parent=parent,
            class_name=class_name,
            device_class=device_class,
            selectors=(*inherited, *own),
            of_class=len(inherited),
            count=self._count(name, raw),
            admin=parent is None and bool(raw.get("adminAccess")),
            tolerations=raw.get("tolerations") or (),
            demand=self._demand(name, raw.get("capacity") or {}),
            derived=dict(self._derived(name, derived)) if self.features.derived_attributes else {},
        )

    def _class(self, request: str, name: str) -> JSON:
        if not name:
            raise self._refused(request, "missing device class name (unsupported request type?)")
        try:
            return self.classes[name]
        except KeyError:
            raise self._refused(request, f"could not retrieve device class {name}: it does not exist") from None

    def _count(self, request: str, raw: JSON) -> int | None:
        mode = raw.get("allocationMode") or "ExactCount"
        if mode not in _MODES:
            raise self._refused(request, f"unsupported count mode {mode}")
        if mode == "All":
            return None
        count = raw.get("count")
        return 1 if count is None else int(count)

    def _demand(self, request: str, capacity: JSON) -> Demand:
        try:
            amounts = {name: amount(value) for name, value in (capacity.get("requests") or {}).items()}
            return Demand(amounts, Arithmetic.of(self.features), f"claim {self.claim}, request {request}")
        except ValueError as error:
            raise self._refused(request, f"capacity: {error}") from None

    def _derived(self, request: str, derived: Sequence[JSON]) -> Iterator[tuple[str, DerivedAttribute]]:
        for each in derived:
            where = f"claim {self.claim}, request {request}: derived attribute {each['name']}"
            yield each["name"], DerivedAttribute(each["expression"], self.features.cel, where)

    @staticmethod
    def _expressions(selectors: Sequence[JSON] | None, where: str) -> list[str]:
        found: list[str] = []
        for index, each in enumerate(selectors or []):
            cel = each.get("cel")
            if cel is None:
                problem = "CEL expression empty (unsupported selector type?)"
                raise AllocationError(f"{where}, selector #{index}: {problem}")
            found.append(cel.get("expression", ""))
        return found
