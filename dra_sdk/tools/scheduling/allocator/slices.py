"""A ResourceSlice as the allocator works with it: its devices are read when somebody first looks at them."""

from __future__ import annotations

from functools import cached_property

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator.allocated import DeviceId
from dra_sdk.tools.scheduling.allocator.devices import Contents, PoolDevice

PoolId = tuple[str, str]
"""Driver and pool."""


class SliceView:
    """One slice of a pool; `order` is its place in the list it came in."""

    def __init__(self, raw: JSON, order: int, contents: Contents) -> None:
        self.json, self.order, self._contents = raw, order, contents
        self.spec: JSON = raw.get("spec") or {}
        pool: JSON = self.spec.get("pool") or {}
        self.name = str((raw.get("metadata") or {}).get("name") or "")
        self.pool: PoolId = (str(self.spec.get("driver") or ""), str(pool.get("name") or ""))
        self.generation = int(pool.get("generation") or 0)
        self.count = int(pool.get("resourceSliceCount") or 0)
        self.has_counter_sets = bool(self.spec.get("sharedCounters"))
        self.per_device = bool(self.spec.get("perDeviceNodeSelection"))

    def __repr__(self) -> str:
        return f"SliceView({self.name}, pool {'/'.join(self.pool)}, generation {self.generation})"

    @property
    def raw_devices(self) -> list[JSON]:
        """The entries of `spec.devices`."""
        return self.spec.get("devices") or []

    @cached_property
    def has_groups(self) -> bool:
        """Whether any device declares compatibility groups."""
        consumed = (each for device in self.raw_devices for each in device.get("consumesCounters") or ())
        return any(each.get("compatibilityGroups") for each in consumed)

    @cached_property
    def devices(self) -> tuple[PoolDevice, ...]:
        """Its devices, in order."""
        driver, pool = self.pool
        return tuple(
            PoolDevice(each, self.json, DeviceId(driver, pool, each["name"]), self._contents.of(driver, each))
            for each in self.raw_devices
        )
