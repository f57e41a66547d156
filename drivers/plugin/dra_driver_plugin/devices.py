"""Devices of plugins as DRA devices: names, attributes, order; and the checks of what a plugin says about them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dra_driver_plugin import deviceplugin_v1beta1_pb2 as wire
from dra_driver_plugin import limits
from dra_driver_plugin.settings import PluginSettings
from dra_sdk import AttributeValue, Device, HardwareError
from dra_sdk.hardware import NUMA_NODE, Host, pci_attributes, read_pci_device
from dra_sdk.hardware.naming import attribute_text, device_name, natural_order

_NUMA_NODES: Final = range(1024)  # that Linux can have
_ADDRESS: Final = re.compile(r"(?<![0-9a-f])([0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7])(?![0-9a-f])", re.IGNORECASE)
_LABELS: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_RESOURCE: Final = re.compile(rf"(?P<domain>{_LABELS})/[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class PluginDevice:
    """One device of a plugin, the `hardware` of a published device.

    resource: the extended resource, `vendor.com/thing`.
    id: the plugin's own name of the device: any text.
    numa: its NUMA nodes.
    health: the health that the plugin reports, `Healthy` if it is.
    """

    resource: str
    id: str
    numa: tuple[int, ...] = ()
    health: str = "Healthy"

    @property
    def name(self) -> str:
        """The device's name in ResourceSlices: a DNS label that depends on nothing but resource and id."""
        return device_name(self.resource.rpartition("/")[2], self.id, scope=self.resource)


def resource_problem(name: str) -> str | None:
    """Return why a name is no extended resource, as the kubelet sees it; None if it is one."""
    match = _RESOURCE.fullmatch(name)
    if match is None or len(match["domain"]) > 253 - len("requests."):
        return "must be a domain, a slash and a name of at most 63 characters, such as vendor.com/thing"
    if "kubernetes.io/" in name or name.startswith("requests."):
        return "must not be of the domain kubernetes.io, nor begin with 'requests.'"
    return None


def read_devices(
    resource: str, answer: Sequence[wire.Device], room: int = limits.LISTED, known: Collection[str] = ()
) -> tuple[dict[str, PluginDevice], list[str], int]:
    """Return the devices of a plugin's list by id, what is wrong with the list, and how many there is no room for.

    An id that comes twice is one device, which is unhealthy if the plugin says so once. The devices of `known` have
    their place before new ones.
    """
    devices: dict[str, PluginDevice] = {}
    problems: list[str] = []
    left_out = 0
    new = room - len({message.ID for message in answer if message.ID in known})
    for message in answer:
        device = _read_device(resource, message, problems)
        if device is None:
            continue
        if (first := devices.get(device.id)) is not None:
            problems.append(f"device {device.id!r} is there twice")
            device = first if device.health == "Healthy" else device
        elif device.id not in known:
            if new <= 0:
                left_out += 1
                continue
            new -= 1
        devices[device.id] = device
    return devices, problems, left_out


def _read_device(resource: str, message: wire.Device, problems: list[str]) -> PluginDevice | None:
    if not 0 < len(message.ID) <= limits.ID:
        problems.append(f"a device is left out, because its id has {len(message.ID)} characters, not 1 to {limits.ID}")
        return None
    nodes = [node.ID for node in message.topology.nodes[: limits.NUMA_NODES]]
    if len(message.topology.nodes) > limits.NUMA_NODES:
        count = len(message.topology.nodes)
        problems.append(f"device {message.ID!r}: of its {count} NUMA nodes the first {limits.NUMA_NODES} count")
    if any(node not in _NUMA_NODES for node in nodes):
        problems.append(f"device {message.ID!r}: NUMA nodes {nodes} must lie between 0 and {_NUMA_NODES[-1]}")
    numa = tuple(dict.fromkeys(node for node in nodes if node in _NUMA_NODES))
    return PluginDevice(resource, message.ID, numa, message.health[: limits.TEXT])


def describe(device: PluginDevice, host: Host, settings: PluginSettings, address: str = "") -> Device:
    """Return the device as it is published; `address` of its PCI function, where it is known and not in its id."""
    attributes: dict[str, AttributeValue] = {
        "resource": attribute_text(device.resource),
        "id": attribute_text(device.id),
    }
    if settings.replica_pattern and (match := re.fullmatch(settings.replica_pattern, device.id)):
        attributes["hardware"] = attribute_text(match[1] or "")
    attributes |= _pci(device, host, address)
    if len(device.numa) == 1 or (device.numa and settings.numa_lists):
        attributes[NUMA_NODE] = device.numa[0] if len(device.numa) == 1 else list(device.numa)
    return Device(device.name, attributes, hardware=device)


def in_order(devices: Mapping[str, PluginDevice]) -> Sequence[PluginDevice]:
    """Return the devices in an order that does not depend on that of the plugin: `gpu2` before `gpu10`."""
    return sorted(devices.values(), key=lambda device: (natural_order(device.id), device.id))


def _pci(device: PluginDevice, host: Host, address: str) -> dict[str, AttributeValue]:
    """Return the standard attributes of the PCI function whose address is in the id or given, if the node has it."""
    match = _ADDRESS.search(device.id)
    try:
        address = match[1].lower() if match else address
        return pci_attributes(read_pci_device(host, address)) if address else {}
    except HardwareError:
        return {}
