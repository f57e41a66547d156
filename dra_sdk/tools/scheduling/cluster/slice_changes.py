"""How the devices of two clusters differ, for example before and after an upgrade of a driver.

Source: resource.k8s.io/v1 ResourceSliceSpec, Device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator import DeviceId
from dra_sdk.tools.scheduling.cluster.snapshot import Snapshot, device_entries, newest_generation, slices_by_pool


@dataclass(frozen=True, slots=True)
class DeviceChange:
    """A device that is new, removed or different.

    device: the device.
    what: `added`, `removed` or `changed`.
    fields: for a changed device, each field with its values before and after; None if there is none.
    """

    device: DeviceId
    what: str
    fields: Mapping[str, tuple[Any, Any]]

    def to_json(self) -> JSON:
        """Return it as JSON."""
        driver, pool, device = self.device
        change: JSON = {"driver": driver, "pool": pool, "device": device, "change": self.what}
        if self.fields:
            change["fields"] = {name: {"before": old, "after": new} for name, (old, new) in self.fields.items()}
        return change


def compare_slices(before: Snapshot, after: Snapshot) -> list[DeviceChange]:
    """Return the devices that differ, by driver, pool and name; the newest generation of each pool counts."""
    old, new = _devices(before), _devices(after)
    changes = []
    for key in sorted(old.keys() | new.keys()):
        if key not in new:
            changes.append(DeviceChange(key, "removed", {}))
        elif key not in old:
            changes.append(DeviceChange(key, "added", {}))
        elif old[key] is not new[key] and (fields := dict(_changed_fields(old[key], new[key]))):
            changes.append(DeviceChange(key, "changed", fields))
    return changes


def _devices(snapshot: Snapshot) -> dict[DeviceId, JSON]:
    return {
        key: device
        for pool in slices_by_pool(snapshot.slices).values()
        for raw_slice in newest_generation(pool)
        for key, device in device_entries(raw_slice)
    }


def _changed_fields(old: JSON, new: JSON) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield the fields that differ; those of maps such as `attributes` one by one."""
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if was == now:
            continue
        if isinstance(was or {}, dict) and isinstance(now or {}, dict):
            was, now = was or {}, now or {}
            for key in sorted(was.keys() | now.keys()):
                if was.get(key) != now.get(key):
                    yield f"{name}[{key}]", (_plain(was.get(key)), _plain(now.get(key)))
        else:
            yield name, (was, now)


def _plain(value: Any) -> Any:
    """Return an attribute or capacity without the name of its type, if it has only that."""
    return next(iter(value.values())) if isinstance(value, dict) and len(value) == 1 else value
