"""What the API server left out of a slice it stored, and the feature gates that are probably off.

Fields of a disabled feature are dropped silently; list attributes leave something behind that is refused. Source:
resource.k8s.io/v1 field comments and the feature gates of Kubernetes 1.34 to 1.37.
"""

from __future__ import annotations

from typing import Final

from dra_sdk.errors import InvalidError, InvalidObjectError
from dra_sdk.model import JSON
from dra_sdk.node.slices.compare import normal
from dra_sdk.node.slices.layout import WANTED_BY_1_34
from dra_sdk.wire.slice import is_list

UNKNOWN: Final = "unknown"
_SHOWN: Final = 10  # slices, and fields of each: thousands of devices lose the same
_ELSEWHERE: Final = "must reference a counterSet defined in the ResourceSlice sharedCounters"
_PARTITIONS: Final = "DRAPartitionableDevices"
_SPEC_GATES: Final = {"perDeviceNodeSelection": _PARTITIONS, "sharedCounters": _PARTITIONS}
_DEVICE_GATES: Final = {
    "consumesCounters": _PARTITIONS,
    "nodeName": _PARTITIONS,
    "nodeSelector": _PARTITIONS,
    "allNodes": _PARTITIONS,
    "taints": "DRADeviceTaints",
    "bindsToNode": "DRADeviceBindingConditions",
    "bindingConditions": "DRADeviceBindingConditions",
    "bindingFailureConditions": "DRADeviceBindingConditions",
    "allowMultipleAllocations": "DRAConsumableCapacity",
    "capacity": "DRAConsumableCapacity",
    "nodeAllocatableResourceMappings": "DRANodeAllocatableResources",
    "attributes": "DRAListTypeAttributes",
}


class DroppedFieldsError(InvalidObjectError):
    """The API server stored slices of `pool` without some fields; `gates` are the features it probably lacks."""

    def __init__(self, pool: str, dropped: dict[int, list[tuple[str, str]]]) -> None:
        self.pool = pool
        self.slices = sorted(dropped)
        self.gates = sorted({gate for fields in dropped.values() for _, gate in fields})
        problems = [
            f"slice {index}: the API server dropped {_some([field for field, _ in fields])}"
            for index, fields in sorted(dropped.items())[:_SHOWN]
        ]
        if len(dropped) > _SHOWN:
            problems.append(f"and so on in {len(dropped) - _SHOWN} more slices")
        problems.append("probably these feature gates are disabled: " + ", ".join(self.gates))
        super().__init__(f"pool {pool}", problems)


def _some(fields: list[str]) -> str:
    more = f" and {len(fields) - _SHOWN} more" if len(fields) > _SHOWN else ""
    return ", ".join(fields[:_SHOWN]) + more


def dropped_fields(sent: JSON, stored: JSON) -> list[tuple[str, str]]:
    """Each field of the sent spec that the stored one lacks, as (`device gpu-0: taints`, gate)."""
    sent, stored = normal(sent), normal(stored)
    found = [
        (key, _SPEC_GATES.get(key, UNKNOWN)) for key in sent if key not in {"devices", "pool"} and key not in stored
    ]
    kept = {device["name"]: device for device in stored.get("devices", ())}
    for device in sent.get("devices", ()):
        found += _of_device(device, kept.get(device["name"]))
    return found


def explained(error: InvalidError, spec: JSON) -> InvalidError:
    """The server's 422, and what its words hide.

    A list attribute that it does not know becomes one of no value; 1.34 wants more in one slice than may be there.
    """
    values = (each for device in spec.get("devices", ()) for each in device.get("attributes", {}).values())
    if _ELSEWHERE in str(error):
        hint = WANTED_BY_1_34
    elif any(map(is_list, values)):
        hint = f"a server without the feature gate {_DEVICE_GATES['attributes']} refuses list attributes in these words"
    else:
        return error
    return InvalidError(f"{error} ({hint})", status=error.status, reason=error.reason, retry_after=error.retry_after)


def _of_device(sent: JSON, stored: JSON | None) -> list[tuple[str, str]]:
    where = f"device {sent['name']}"
    if stored is None:
        return [(where, UNKNOWN)]
    found = [(f"{where}: {key}", _DEVICE_GATES.get(key, UNKNOWN)) for key in sent if key not in stored]
    for key in ("attributes", "capacity"):
        kept = stored.get(key, {})
        for name, value in sent.get(key, {}).items() if kept else ():
            if _shrunk(value, kept.get(name)):
                found.append((f"{where}: {key} {name}", _DEVICE_GATES[key]))
    return found


def _shrunk(sent: JSON, stored: JSON | None) -> bool:
    return stored is None or bool(set(sent) - set(stored))
