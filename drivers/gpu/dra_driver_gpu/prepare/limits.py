"""The limits of an MPS daemon's clients, as its control program takes them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dra_driver_gpu.config import MIB, MpsConfig
from dra_sdk import ConfigError, Quantity


@dataclass(frozen=True, slots=True)
class MpsDevice:
    """A device of one entry of configuration: its UUID, and the name of its request."""

    uuid: str
    request: str

    @property
    def base_request(self) -> str:
        """The request without `/subrequest`."""
        return self.request.partition("/")[0]


def memory_limits(config: MpsConfig, devices: Sequence[MpsDevice]) -> dict[str, str]:
    """The memory limit of each device that has one, by UUID, such as `953M` (in MiB).

    A limit for all is overridden by one for a request, that by one for an index or a UUID. Indices count the devices
    by UUID. ConfigError where a limit is for a device or request that is not among them.
    """
    by_uuid = sorted(device.uuid for device in devices)
    limits = dict.fromkeys(by_uuid, config.default_pinned_device_memory_limit)
    single = config.default_per_device_pinned_memory_limit
    for selector, limit in sorted(single.items(), key=lambda item: _precision(item[0], devices)):
        for uuid in _selected(selector, by_uuid, devices):
            limits[uuid] = limit
    return {uuid: _mebibytes(limit) for uuid, limit in limits.items() if limit is not None}


def _precision(selector: str, devices: Sequence[MpsDevice]) -> int:
    return 0 if _of_request(selector, devices) else 1


def _of_request(selector: str, devices: Sequence[MpsDevice]) -> list[str]:
    return [device.uuid for device in devices if selector in {device.request, device.base_request}]


def _selected(selector: str, by_uuid: Sequence[str], devices: Sequence[MpsDevice]) -> list[str]:
    if selector in by_uuid:
        return [selector]
    if named := _of_request(selector, devices):
        return named
    if selector.isdecimal() and int(selector) < len(by_uuid):
        return [by_uuid[int(selector)]]
    requests = sorted({device.base_request for device in devices})
    raise ConfigError(
        f"defaultPerDevicePinnedMemoryLimit: {selector!r} is none of requests {', '.join(requests)}, none of indices 0 "
        f"to {len(by_uuid) - 1}, and none of UUIDs {', '.join(by_uuid)}"
    )


def _mebibytes(limit: str) -> str:
    return f"{int(Quantity(limit).value // MIB)}M"
