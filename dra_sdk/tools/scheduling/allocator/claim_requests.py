"""A claim as the allocator reads it: its requests, each with the alternatives among which one is chosen.

Everything that can be checked without devices is checked here. A request with `exactly` has one alternative; one with
`firstAvailable` has its subrequests, in order of preference. Missing fields have the defaults of the API server.
Source: resource.k8s.io/v1 DeviceRequest, ExactDeviceRequest, DeviceSubRequest, DeviceDerivedAttribute (KEP-6080).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dra_sdk import cel
from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator.allocation_errors import AllocationError
from dra_sdk.tools.scheduling.allocator.consumable_capacity import CapacityRequest
from dra_sdk.tools.scheduling.allocator.devices import DeviceContent, PoolDevice
from dra_sdk.tools.scheduling.allocator.features import SchedulerFeatures
from dra_sdk.tools.scheduling.allocator.quantities import parse_quantity

MAX_RESULTS: Final = 32
"""The largest number of devices in one claim (AllocationResultsMaxSize)."""
_ALLOCATION_MODES: Final = ("ExactCount", "All")


class AttributeDerivation:
    """An attribute that a request derives from a device by a CEL expression.

    It is evaluated when a constraint first reads it, once for devices with equal content. `where` names the claim, the
    request and the attribute, for messages.
    """

    __slots__ = ("_expression", "_features", "_values", "where")

    def __init__(self, expression: str, features: cel.Features, where: str) -> None:
        self._expression, self._features, self.where = expression, features, where
        self._values: dict[DeviceContent, Mapping[str, Any]] = {}

    def value_for(self, device: PoolDevice) -> Mapping[str, Any]:
        """Return the DeviceAttribute of a device; AllocationError if the expression is invalid or fails on it."""
        value = self._values.get(device.content)
        if value is None:
            value = self._values[device.content] = self._evaluate(device)
        return value

    def _evaluate(self, device: PoolDevice) -> Mapping[str, Any]:
        try:
            return cel.compile_derived(self._expression, self._features).attribute(device.content.view)
        except cel.CelError as error:
            raise AllocationError(f"{self.where}, evaluated on device {device.id}: {error}") from None


@dataclass(slots=True, eq=False)
class ParsedRequest:
    """One request or subrequest: which devices it selects and how many it needs. Compared by identity.

    claim: the label of the claim, see `claim_label`.
    name: the name of the request or subrequest.
    parent: for a subrequest, the name of its request; else None.
    class_name: the name of its DeviceClass.
    device_class: the DeviceClass.
    selectors: the CEL expressions of the class, then those of the request.
    class_selector_count: how many of the selectors are those of the class.
    count: how many devices it needs; None for allocation mode All.
    admin_access: whether it asks for admin access.
    tolerations: the taints that it tolerates.
    capacity_request: the capacity that it asks of each device.
    derived_attributes: the attributes that it derives, by name.
    """

    claim: str
    name: str
    parent: str | None
    class_name: str
    device_class: JSON
    selectors: tuple[str, ...]
    class_selector_count: int
    count: int | None
    admin_access: bool
    tolerations: Sequence[Mapping[str, Any]]
    capacity_request: CapacityRequest
    derived_attributes: Mapping[str, AttributeDerivation] = field(default_factory=dict)

    @property
    def reference(self) -> str:
        """How results and configuration refer to it: `request` or `request/subrequest`."""
        return self.name if self.parent is None else f"{self.parent}/{self.name}"

    @property
    def base_name(self) -> str:
        """The name of the request in the claim, without subrequest."""
        return self.name if self.parent is None else self.parent

    def describe_selector(self, selector: int) -> str:
        """Return which selector it is, for messages: class or claim, request, and the index from 0."""
        request = f"claim {self.claim}, request {self.reference}"
        if selector < self.class_selector_count:
            return f"{request}, class {self.class_name}: selector #{selector}"
        return f"{request}: selector #{selector - self.class_selector_count}"


@dataclass(frozen=True, slots=True)
class RequestGroup:
    """An entry of `spec.devices.requests`.

    name: the name of the request.
    alternatives: one for `exactly`, or one for each subrequest of `firstAvailable`, in order of preference.
    prioritized: whether it has `firstAvailable`.
    """

    name: str
    alternatives: Sequence[ParsedRequest]
    prioritized: bool


@dataclass(frozen=True, slots=True, eq=False)
class ParsedClaim:
    """A claim as the allocator reads it.

    claim: the ResourceClaim.
    label: `namespace/name`, or the name alone.
    groups: its requests.
    constraints: its constraints, as in the API.
    """

    claim: JSON
    label: str
    groups: Sequence[RequestGroup]
    constraints: Sequence[Mapping[str, Any]] = field(default=())

    @property
    def requests(self) -> Iterator[ParsedRequest]:
        """All requests and subrequests."""
        return (request for group in self.groups for request in group.alternatives)

    @property
    def has_derived_attributes(self) -> bool:
        """Whether any request derives an attribute."""
        return any(request.derived_attributes for request in self.requests)


def claim_label(claim: JSON) -> str:
    """Return `namespace/name` of a claim, or the name if it has no namespace."""
    metadata = claim.get("metadata") or {}
    name, namespace = metadata.get("name", ""), metadata.get("namespace")
    return f"{namespace}/{name}" if namespace else str(name)


def parse_claim(claim: JSON, classes: Mapping[str, JSON], features: SchedulerFeatures) -> ParsedClaim:
    """Parse a claim; AllocationError if it, or a class that it names, cannot be processed with these features."""
    devices = (claim.get("spec") or {}).get("devices") or {}
    parser = _ClaimParser(claim_label(claim), classes, features)
    groups = [parser.parse_request(request) for request in devices.get("requests") or []]
    constraints = devices.get("constraints") or []
    for index, constraint in enumerate(constraints):
        if not constraint.get("matchAttribute") and not constraint.get("distinctAttribute"):
            problem = "empty constraint (unsupported constraint type?)"
            raise AllocationError(f"claim {parser.claim}, constraint #{index}: {problem}")
    return ParsedClaim(claim, parser.claim, groups, constraints)


@dataclass(frozen=True, slots=True)
class _ClaimParser:
    claim: str
    classes: Mapping[str, JSON]
    features: SchedulerFeatures

    def parse_request(self, raw: JSON) -> RequestGroup:
        name, exactly, alternatives = raw.get("name", ""), raw.get("exactly"), raw.get("firstAvailable") or []
        if alternatives and not self.features.prioritized_list:
            raise self._error(name, "has subrequests, but the DRAPrioritizedList feature is disabled")
        if alternatives:
            requests = [self._parse_alternative(option.get("name", ""), name, option) for option in alternatives]
            return RequestGroup(name, requests, prioritized=True)
        if exactly is None:
            raise self._error(name, "has neither exactly nor firstAvailable (unsupported request type?)")
        return RequestGroup(name, [self._parse_alternative(name, None, exactly)], prioritized=False)

    def _error(self, request: str, problem: str, kind: str = "request") -> AllocationError:
        return AllocationError(f"claim {self.claim}, {kind} {request}: {problem}")

    def _parse_alternative(self, name: str, parent: str | None, raw: JSON) -> ParsedRequest:
        if raw.get("capacity") is not None and not self.features.consumable_capacity:
            problem = "has capacity requests, but the DRAConsumableCapacity feature is disabled"
            raise self._error(name, problem, "request" if parent is None else "subrequest")
        derived = raw.get("derivedAttributes") or ()
        if derived and self.features.behaviour.knows_1_37_fields and not self.features.derived_attributes:
            raise self._error(name, "has derived attributes, but the DRADerivedAttributes feature is disabled")
        derived = derived if self.features.derived_attributes else ()
        own = self._selector_expressions(raw.get("selectors"), f"claim {self.claim}, request {name}")
        if parent is None and raw.get("adminAccess") is not None and not self.features.admin_access:
            raise self._error(name, "admin access is requested, but the feature is disabled")
        class_name = raw.get("deviceClassName") or ""
        device_class = self._device_class(name, class_name)
        selectors = (device_class.get("spec") or {}).get("selectors")
        inherited = self._selector_expressions(selectors, f"class {class_name}")
        return ParsedRequest(
            claim=self.claim,
            name=name,
            parent=parent,
            class_name=class_name,
            device_class=device_class,
            selectors=(*inherited, *own),
            class_selector_count=len(inherited),
            count=self._count(name, raw),
            admin_access=parent is None and bool(raw.get("adminAccess")),
            tolerations=raw.get("tolerations") or (),
            capacity_request=self._capacity_request(name, raw.get("capacity") or {}),
            derived_attributes=dict(self._derived_attributes(name, derived)),
        )

    def _device_class(self, request: str, name: str) -> JSON:
        if not name:
            raise self._error(request, "missing device class name (unsupported request type?)")
        try:
            return self.classes[name]
        except KeyError:
            raise self._error(request, f"could not retrieve device class {name}: it does not exist") from None

    def _count(self, request: str, raw: JSON) -> int | None:
        mode = raw.get("allocationMode") or "ExactCount"
        if mode not in _ALLOCATION_MODES:
            raise self._error(request, f"unsupported count mode {mode}")
        if mode == "All":
            return None
        count = raw.get("count")
        return 1 if count is None else int(count)

    def _capacity_request(self, request: str, capacity: JSON) -> CapacityRequest:
        try:
            amounts = {name: parse_quantity(value) for name, value in (capacity.get("requests") or {}).items()}
        except ValueError as error:
            raise self._error(request, f"capacity: {error}") from None
        return CapacityRequest(amounts, self.features, f"claim {self.claim}, request {request}")

    def _derived_attributes(self, request: str, derived: Sequence[JSON]) -> Iterator[tuple[str, AttributeDerivation]]:
        for attribute in derived:
            where = f"claim {self.claim}, request {request}: derived attribute {attribute['name']}"
            yield attribute["name"], AttributeDerivation(attribute["expression"], self.features.cel, where)

    @staticmethod
    def _selector_expressions(selectors: Sequence[JSON] | None, where: str) -> list[str]:
        expressions: list[str] = []
        for index, raw in enumerate(selectors or []):
            selector = raw.get("cel")
            if selector is None:
                problem = "CEL expression empty (unsupported selector type?)"
                raise AllocationError(f"{where}, selector #{index}: {problem}")
            expressions.append(selector.get("expression", ""))
        return expressions
