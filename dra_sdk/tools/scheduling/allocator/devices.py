"""A device of a slice as the allocator works with it: read once, with everything that is asked often at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dra_sdk.cel import DeviceView
from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator.allocated import DeviceId
from dra_sdk.tools.scheduling.allocator.amounts import amount
from dra_sdk.tools.scheduling.allocator.errors import AllocationError
from dra_sdk.tools.scheduling.allocator.plain import is_plain

CounterId = tuple[str, str]
"""Counter set and counter."""


class Content:
    """What selectors and requests for capacity look at: equal for devices that differ in name only.

    Compares by identity; `Contents` makes one for each distinct content.
    """

    __slots__ = ("_plain", "_view", "device", "driver")

    def __init__(self, driver: str, device: JSON) -> None:
        self.driver, self.device = driver, device
        self._view: DeviceView | None = None
        self._plain: bool | None = None

    @property
    def plain(self) -> bool:
        """Whether all attributes and capacities are single values that make sense."""
        if self._plain is None:
            self._plain = is_plain(self.device)
        return self._plain

    @property
    def view(self) -> DeviceView:
        """The device as CEL sees it."""
        if self._view is None:
            self._view = DeviceView.from_json(self.device, self.driver)
        return self._view


class Contents:
    """The distinct contents of an inventory."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bool, str, str], Content] = {}

    def of(self, driver: str, device: JSON) -> Content:
        """The content of a device."""
        multiple = bool(device.get("allowMultipleAllocations"))
        key = (driver, multiple, repr(device.get("attributes")), repr(device.get("capacity")))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Content(driver, device)
        return found

    def __len__(self) -> int:
        return len(self._known)


class PoolDevice:
    """One entry of `spec.devices`; `json` is the entry, `slice` the ResourceSlice it stands in."""

    __slots__ = (
        *("binding_conditions", "content", "counters", "id", "json", "multiple", "skips_operations", "slice", "taints"),
    )

    def __init__(self, raw: JSON, pool_slice: JSON, identity: DeviceId, content: Content) -> None:
        self.id, self.json, self.slice, self.content = identity, raw, pool_slice, content
        self.multiple = bool(raw.get("allowMultipleAllocations"))
        self.taints: Sequence[Mapping[str, Any]] = raw.get("taints") or ()
        self.binding_conditions: Sequence[str] = raw.get("bindingConditions") or ()
        self.skips_operations: Sequence[str] = pool_slice["spec"].get("skipNodeOperations") or ()
        self.counters: Sequence[tuple[CounterId, int]] = _counters(raw, identity) if "consumesCounters" in raw else ()

    def __repr__(self) -> str:
        return f"PoolDevice({self.id})"

    def attribute(self, name: str) -> Mapping[str, Any] | None:
        """An attribute by its fully qualified name, `domain/name`; without domain, names are the driver's."""
        attributes: Mapping[str, Mapping[str, Any]] = self.json.get("attributes") or {}
        found = attributes.get(name)
        if found is not None:
            return found
        domain, slash, short = name.partition("/")
        return attributes.get(short) if slash and domain == self.id.driver else None

    @property
    def place(self) -> Mapping[str, Any]:
        """Where it is: the device itself where the slice says so, else the spec of the slice."""
        spec: Mapping[str, Any] = self.slice["spec"]
        return self.json if spec.get("perDeviceNodeSelection") else spec


def _counters(raw: JSON, identity: DeviceId) -> tuple[tuple[CounterId, int], ...]:
    found: list[tuple[CounterId, int]] = []
    for consumption in raw["consumesCounters"] or []:
        for name, counter in (consumption.get("counters") or {}).items():
            found.append(((consumption["counterSet"], name), nano(counter, f"device {identity}, counter {name}")))
    return tuple(found)


def nano(counter: Mapping[str, Any], where: str) -> int:
    """The value of a counter or capacity in billionths; AllocationError naming `where` if it is no quantity."""
    try:
        return amount(counter.get("value")).nano
    except ValueError as error:
        raise AllocationError(f"{where}: {error}") from None
