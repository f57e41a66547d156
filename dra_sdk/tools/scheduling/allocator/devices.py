"""ResourceSlices and their devices, read once, so that the allocator has at hand what it needs often."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Self, TypeVar

from dra_sdk.cel import DeviceView
from dra_sdk.cel.values import Semver
from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator.allocation_errors import AllocationError
from dra_sdk.tools.scheduling.allocator.quantities import parse_quantity

_DIGEST_BYTES: Final = 32
_SCALARS: Final[Mapping[str, type]] = {"string": str, "int": int, "bool": bool}


class DeviceId(NamedTuple):
    """Identifies a device in the cluster; `str()` gives `driver/pool/device`."""

    driver: str
    pool: str
    device: str

    @classmethod
    def of(cls, result: JSON) -> Self:
        """Return the device of an allocation result."""
        return cls(result["driver"], result["pool"], result["device"])

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


PoolId = tuple[str, str]
"""Driver and pool."""
CounterId = tuple[str, str]
"""Counter set and counter."""
Amounts = TypeVar("Amounts")
ConsumedCounters = tuple[tuple[CounterId, int], ...]
"""Amounts of counters, in billionths."""


class DeviceContent:
    """What selectors and capacity requests read of a device: its attributes and capacity, but not its name.

    Devices with equal content share one object, which `ContentCache` makes. It is compared by identity.
    """

    __slots__ = ("_all_scalar", "_view", "device", "driver")

    def __init__(self, driver: str, device: JSON) -> None:
        self.driver, self.device = driver, device
        self._view: DeviceView | None = None
        self._all_scalar: bool | None = None

    @property
    def all_scalar(self) -> bool:
        """Whether all attributes and capacities are valid single values, no lists."""
        if self._all_scalar is None:
            self._all_scalar = has_scalar_values(self.device)
        return self._all_scalar

    @property
    def view(self) -> DeviceView:
        """The device as CEL sees it."""
        if self._view is None:
            self._view = DeviceView.from_json(self.device, self.driver)
        return self._view


class ContentCache:
    """What devices and slices of an inventory share: contents of devices, counters that they consume, shapes of slices.

    Objects of the API that are one object in memory are looked at once; they must not change, and are kept by the
    inventory. Equal contents of different objects are found by a digest of their text.
    """

    def __init__(self) -> None:
        self._contents: dict[tuple[str, bool, int, int], DeviceContent] = {}
        self._by_text: dict[tuple[str, bool, bytes], DeviceContent] = {}
        self._consumed: dict[int, ConsumedCounters] = {}
        self._shapes: dict[tuple[Any, ...], SliceShape] = {}
        self._kept: list[Any] = []

    def get(self, driver: str, device: JSON) -> DeviceContent:
        """Return the content of a device of a driver."""
        attributes, capacity = device.get("attributes"), device.get("capacity")
        multiple = bool(device.get("allowMultipleAllocations"))
        key = (driver, multiple, id(attributes), id(capacity))
        content = self._contents.get(key)
        if content is None:
            text = f"{attributes!r} {capacity!r}".encode(errors="surrogatepass")
            digest = blake2b(text, digest_size=_DIGEST_BYTES).digest()
            content = self._by_text.setdefault((driver, multiple, digest), DeviceContent(driver, device))
            self._contents[key] = content
            self._kept += (attributes, capacity)
        return content

    def consumed_counters(self, raw: JSON, device: DeviceId) -> ConsumedCounters:
        """Return what a device consumes; AllocationError, naming the device, if an amount is invalid."""
        consumptions = raw["consumesCounters"]
        consumed = self._consumed.get(id(consumptions))
        if consumed is None:
            consumed = self._consumed[id(consumptions)] = _consumed_counters(raw, device)
            self._kept.append(consumptions)
        return consumed

    def shape(self, pool_slice: PoolSlice) -> SliceShape:
        """Return the shape of a slice."""
        devices, sets = pool_slice.raw_devices, pool_slice.spec.get("sharedCounters")
        key = (id(sets), *((device["name"], id(device.get("consumesCounters"))) for device in devices))
        binding = any(device.get("bindingConditions") for device in devices)
        shape = self._shapes.get((binding, key))
        if shape is None:
            shape = self._shapes[binding, key] = SliceShape.of(pool_slice, self, has_binding_conditions=binding)
            self._kept += (sets, *(device.get("consumesCounters") for device in devices))
        return shape

    def __len__(self) -> int:
        return len(self._by_text)


@dataclass(frozen=True, slots=True, eq=False)
class SliceShape:
    """What pools check of a slice. Slices share one if names, counters and counter sets of them are the same.

    names: the names of its devices.
    counter_sets: the names of its counter sets.
    counters: the counters of its counter sets, in billionths; None if an amount is invalid.
    consumed_sets: the counter sets that its devices consume.
    consumed: the counters that its devices consume; None if an amount is invalid.
    has_binding_conditions: whether any device has binding conditions.
    """

    names: tuple[str, ...]
    counter_sets: tuple[str, ...]
    counters: Mapping[CounterId, int] | None
    consumed_sets: frozenset[str]
    consumed: frozenset[CounterId] | None
    has_binding_conditions: bool

    @classmethod
    def of(cls, pool_slice: PoolSlice, contents: ContentCache, *, has_binding_conditions: bool) -> SliceShape:
        """Return the shape of a slice that is the first of its kind."""
        consumptions = [counter for raw in pool_slice.raw_devices for counter in raw.get("consumesCounters") or ()]
        return cls(
            tuple(str(device["name"]) for device in pool_slice.raw_devices),
            tuple(str(counter_set["name"]) for counter_set in pool_slice.spec.get("sharedCounters") or ()),
            _if_valid(partial(counters_of, pool_slice)),
            frozenset(str(counter["counterSet"]) for counter in consumptions),
            _if_valid(partial(_all_consumed, pool_slice, contents)),
            has_binding_conditions,
        )


def _if_valid(read: Callable[[], Amounts]) -> Amounts | None:
    try:
        return read()
    except AllocationError:
        return None


def counters_of(pool_slice: PoolSlice) -> dict[CounterId, int]:
    """Return the counters of a slice in billionths; AllocationError, naming the counter, if an amount is invalid."""
    where = f"slice {pool_slice.name}, counter set"
    return {
        (counter_set["name"], counter): parse_nanos(value, f"{where} {counter_set['name']}, counter {counter}")
        for counter_set in pool_slice.spec.get("sharedCounters") or ()
        for counter, value in (counter_set.get("counters") or {}).items()
    }


def _all_consumed(pool_slice: PoolSlice, contents: ContentCache) -> frozenset[CounterId]:
    driver, pool = pool_slice.pool
    return frozenset(
        counter
        for raw in pool_slice.raw_devices
        if raw.get("consumesCounters")
        for counter, _ in contents.consumed_counters(raw, DeviceId(driver, pool, raw["name"]))
    )


class PoolDevice:
    """A device of a slice.

    json: its entry in `spec.devices`.
    slice: the ResourceSlice.
    """

    __slots__ = (
        "allow_multiple",
        "binding_conditions",
        "content",
        "counters",
        "id",
        "json",
        "skipped_operations",
        "slice",
        "taints",
    )

    def __init__(self, raw: JSON, pool_slice: JSON, device_id: DeviceId, contents: ContentCache) -> None:
        self.id, self.json, self.slice = device_id, raw, pool_slice
        self.content = contents.get(device_id.driver, raw)
        self.allow_multiple = bool(raw.get("allowMultipleAllocations"))
        self.taints: Sequence[Mapping[str, Any]] = raw.get("taints") or ()
        self.binding_conditions: Sequence[str] = raw.get("bindingConditions") or ()
        self.skipped_operations: Sequence[str] = pool_slice["spec"].get("skipNodeOperations") or ()
        self.counters: ConsumedCounters = (
            contents.consumed_counters(raw, device_id) if "consumesCounters" in raw else ()
        )

    def __repr__(self) -> str:
        return f"PoolDevice({self.id})"

    def attribute(self, name: str) -> Mapping[str, Any] | None:
        """Return an attribute by its qualified name `domain/name`; names without domain have the driver's."""
        attributes: Mapping[str, Mapping[str, Any]] = self.json.get("attributes") or {}
        if (attribute := attributes.get(name)) is not None:
            return attribute
        domain, slash, short = name.partition("/")
        return attributes.get(short) if slash and domain == self.id.driver else None

    @property
    def node_scope(self) -> Mapping[str, Any]:
        """What selects the nodes of the device: its own entry with `perDeviceNodeSelection`, else the slice's spec."""
        spec: Mapping[str, Any] = self.slice["spec"]
        return self.json if spec.get("perDeviceNodeSelection") else spec


def _consumed_counters(raw: JSON, device_id: DeviceId) -> ConsumedCounters:
    consumed: list[tuple[CounterId, int]] = []
    for consumption in raw["consumesCounters"] or []:
        for name, counter in (consumption.get("counters") or {}).items():
            consumed.append(
                ((consumption["counterSet"], name), parse_nanos(counter, f"device {device_id}, counter {name}"))
            )
    return tuple(consumed)


def parse_nanos(counter: Mapping[str, Any], where: str) -> int:
    """Return the value of a counter or capacity in billionths; AllocationError, naming `where`, if it is invalid."""
    try:
        return parse_quantity(counter.get("value")).nano
    except ValueError as error:
        raise AllocationError(f"{where}: {error}") from None


def has_scalar_values(device: Mapping[str, Any]) -> bool:
    """Return whether all attributes and capacities are valid single values, no lists."""
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    return all(map(_is_scalar, attributes.values())) and all(map(_is_quantity, capacity.values()))


def _is_scalar(value: Mapping[str, Any]) -> bool:
    if len(value) != 1:
        return False
    ((kind, scalar),) = value.items()
    return type(scalar) is _SCALARS.get(kind) or (kind == "version" and _is_version(scalar))


@lru_cache(maxsize=1024)
def _is_version(text: Any) -> bool:
    try:
        Semver(text)
    except (TypeError, ValueError):
        return False
    return True


def _is_quantity(value: Mapping[str, Any]) -> bool:
    try:
        parse_quantity(value.get("value"))
    except ValueError:
        return False
    return True


class PoolSlice:
    """A ResourceSlice; `order` is its position in the inventory. Its devices are read on first access."""

    def __init__(self, raw: JSON, order: int, contents: ContentCache) -> None:
        self.json, self.order, self._contents = raw, order, contents
        self.spec: JSON = raw.get("spec") or {}
        pool: JSON = self.spec.get("pool") or {}
        self.name = str((raw.get("metadata") or {}).get("name") or "")
        self.pool: PoolId = (str(self.spec.get("driver") or ""), str(pool.get("name") or ""))
        self.generation = int(pool.get("generation") or 0)
        self.count = int(pool.get("resourceSliceCount") or 0)
        self.has_counter_sets = bool(self.spec.get("sharedCounters"))
        self.per_device_node_selection = bool(self.spec.get("perDeviceNodeSelection"))

    def __repr__(self) -> str:
        return f"PoolSlice({self.name}, pool {'/'.join(self.pool)}, generation {self.generation})"

    @property
    def raw_devices(self) -> list[JSON]:
        """The entries of `spec.devices`."""
        return self.spec.get("devices") or []

    @cached_property
    def has_compatibility_groups(self) -> bool:
        """Whether any device declares compatibility groups."""
        consumed = (consumption for device in self.raw_devices for consumption in device.get("consumesCounters") or ())
        return any(consumption.get("compatibilityGroups") for consumption in consumed)

    @cached_property
    def shape(self) -> SliceShape:
        """What pools check of it."""
        return self._contents.shape(self)

    @cached_property
    def devices(self) -> tuple[PoolDevice, ...]:
        """The devices, in order."""
        driver, pool = self.pool
        return tuple(
            PoolDevice(device, self.json, DeviceId(driver, pool, device["name"]), self._contents)
            for device in self.raw_devices
        )
