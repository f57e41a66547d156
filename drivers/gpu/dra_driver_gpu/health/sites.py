"""Where devices and faults lie: on a GPU, and within it on some memory slices.

A fault concerns every device that lies on a faulty part: the MIG device itself, other MIG devices that could be cut
over the same slices, the whole GPU and its VFIO sibling. MIG devices on other slices stay healthy. It makes no
difference whether a MIG device exists already or is only published.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dra_driver_gpu.describe import Card, Offer, pool
from dra_driver_gpu.describe.names import parse_mig_name
from dra_driver_gpu.describe.passthrough import PassthroughGpu
from dra_driver_gpu.nvml.values import Placement
from dra_sdk import Device
from dra_sdk.hardware import PCI_BUS_ID


@dataclass(frozen=True, slots=True)
class Site:
    """A part of a GPU: `placement` None is all of it. `gpu` is the UUID, or the PCI address where no UUID is known."""

    gpu: str
    placement: Placement | None = None

    def touches(self, other: Site) -> bool:
        """Whether both have something in common."""
        if self.gpu != other.gpu:
            return False
        return self.placement is None or other.placement is None or self.placement.overlaps(other.placement)


@dataclass(frozen=True, slots=True)
class SitedDevice:
    """A published device; `passthrough` says that it is reached through VFIO, not through the NVIDIA driver."""

    name: str
    site: Site
    passthrough: bool = False


def sited(cards: Sequence[Card], others: Sequence[PassthroughGpu], offer: Offer) -> tuple[SitedDevice, ...]:
    """All devices that these GPUs are published as, in the order of the pool."""
    by_address = {card.pci_address: card for card in cards}
    published = pool("", by_address.values(), others, offer).devices
    return tuple(_sited(device, by_address) for device in published)


def existing_site(card: Card, gpu_instance: int) -> Site | None:
    """Where a GPU instance lies that was there when the GPU was last read."""
    return next((Site(card.uuid, each.placement) for each in card.existing if each.gpu_instance == gpu_instance), None)


def site_of(cards: Iterable[Card], uuid: str) -> Site | None:
    """Where the GPU or MIG device with this UUID lies."""
    for card in cards:
        if card.uuid == uuid:
            return Site(uuid)
        for each in card.existing:
            if each.uuid == uuid:
                return Site(card.uuid, each.placement)
    return None


def _sited(device: Device, by_address: Mapping[str, Card]) -> SitedDevice:
    address = str(device.attributes.get(PCI_BUS_ID, ""))
    card = by_address.get(address) or _by_name(device, by_address.values())
    passthrough = device.attributes.get("type") == "vfio"
    if card is None:
        return SitedDevice(device.name, Site(address), passthrough)
    return SitedDevice(device.name, Site(card.uuid, _placement(device.name, card)), passthrough)


def _by_name(device: Device, cards: Iterable[Card]) -> Card | None:
    """The GPU of a device without PCI address, which is so where sysfs is not to be seen."""
    uuid = device.attributes.get("parentUUID") or device.attributes.get("uuid")
    return next((card for card in cards if card.uuid == uuid), None)


def _placement(name: str, card: Card) -> Placement | None:
    parsed = parse_mig_name(name)
    size = card.size(parsed.profile_id) if parsed else None
    if parsed is None or size is None:
        return None
    return next((each for each in size.placements if each.start == parsed.start), None)
