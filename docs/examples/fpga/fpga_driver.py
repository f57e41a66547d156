"""FPGA cards: whole, by region, and DMA bandwidth in shares; with configuration, undo and health.

The device is invented and made of plain files: `/sys/class/fpga/card0/{model,regions,health,region0,…}`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Literal

from pydantic import Field

from dra_sdk import (
    AllocatedDevice,
    Claim,
    ContainerEdits,
    CounterConsumption,
    CounterSet,
    Device,
    DeviceHealth,
    DeviceNode,
    DriverInfo,
    HeldClaim,
    Node,
    NotNeededError,
    OpaqueConfig,
    PermanentError,
    PreparedDevice,
    ResourcePool,
)
from dra_sdk.hardware import polling
from dra_sdk.hardware.health import HealthTracker
from dra_sdk.hardware.sharing import Sharing


class FpgaConfig(OpaqueConfig, api_version="fpga.example.com/v1"):
    """The configuration of a claim; in YAML the fields are `bitstream`, `clockMhz` and `mode`.

    bitstream: the program to load into each region.
    clock_mhz: the clock of the region, MHz.
    mode: how the program receives data.
    """

    bitstream: str = Field(default="blank", max_length=64)
    clock_mhz: int = Field(default=200, ge=50, le=400)
    mode: Literal["stream", "batch"] = "stream"


class FpgaDriver:
    """One pool per node. The devices of card 0 are `card0`, `card0-region0` and so on, and `card0-dma`."""

    def dra_driver_info(self) -> DriverInfo:
        """Return the name and the configuration; a claim without configuration gets the defaults of the first class."""
        return DriverInfo("fpga.example.com", configs=[FpgaConfig])

    def dra_discover(self, node: Node) -> Iterator[ResourcePool]:
        """Publish cards and regions on one counter set for each card, so no claim gets a region of a card in use."""
        devices: list[Device] = []
        sets: list[CounterSet] = []
        cards = _cards(node)
        for card in cards:
            made = list(_devices(card))
            sets.append(CounterSet(f"{card.name}-regions", {"regions": len(made[0].hardware.regions)}))
            devices += made
        yield ResourcePool(node.name, devices, sets, without_counters=[card.name for card in cards])

    def dra_prepare(self, claim: Claim[FpgaConfig]) -> Iterator[PreparedDevice]:
        """Load the bitstream; the journal first records the previous one, so that unprepare can restore it."""
        for device in claim.devices:
            part: Part = device.hardware
            for region in part.regions:
                if not region.exists():
                    raise PermanentError(f"device {device.name}: the card has no {region.name}; was it replaced?")
                claim.journal({"region": str(region), "before": region.read_text()})
                region.write_text(device.config.bitstream)
            node = DeviceNode(
                f"/dev/{device.base_request}", host_path=f"/dev/fpga{part.card.name.removeprefix('card')}"
            )
            yield device.prepared(ContainerEdits(env=_environment(device), device_nodes=[node]))

    def dra_unprepare(self, claim: HeldClaim) -> None:
        """Restore what the journal records, newest first; a claim that was never prepared has no journal."""
        for entry in reversed(claim.journal):
            with claim.undoing(entry["region"]):
                if not Path(entry["region"]).exists():
                    raise NotNeededError("the card was unplugged")
                Path(entry["region"]).write_text(entry["before"])

    def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        """Every two seconds: have cards come or gone?"""
        polling.watch(lambda: frozenset(_cards(node)), changed, stop, 2)

    def dra_device_health(self, node: Node, stop: Event) -> Iterator[list[DeviceHealth]]:
        """Every two seconds the health of all devices of each card; those of a card fail together."""
        health = HealthTracker()
        while not stop.is_set():
            for card in _cards(node):
                health.publish(card.name, {device.name: device.hardware.regions or None for device in _devices(card)})
                state = (card / "health").read_text().strip()
                health.observe(card.name, [] if state == "ok" else [state])
            yield health.report()
            stop.wait(2)


@dataclass(frozen=True)
class Part:
    """What a device is made of: a card, and some of its regions; the DMA engine has none."""

    card: Path
    regions: tuple[Path, ...] = ()


def _cards(node: Node) -> list[Path]:
    return sorted((node.sys / "class/fpga").glob("card*"))


def _devices(card: Path) -> Iterator[Device]:
    """Yield the whole card first, then its regions, then its DMA engine."""
    model, counters = (card / "model").read_text().strip(), f"{card.name}-regions"
    regions = tuple(card / f"region{number}" for number in range(int((card / "regions").read_text())))
    whole = [CounterConsumption(counters, {"regions": len(regions)})]
    attributes = {"type": "card", "model": model}
    yield Device(card.name, attributes, {"regions": len(regions)}, consumes=whole, hardware=Part(card, regions))
    one = [CounterConsumption(counters, {"regions": 1})]
    for region in regions:
        attributes = {"type": "region", "model": model}
        yield Device(f"{card.name}-{region.name}", attributes, consumes=one, hardware=Part(card, (region,)))
    dma = Device(f"{card.name}-dma", {"type": "dma", "model": model}, {"bandwidth": "16Gi"}, hardware=Part(card))
    yield Sharing("divided", capacity="bandwidth", step="1Gi", default="1Gi").apply(dma)


def _environment(device: AllocatedDevice[FpgaConfig]) -> dict[str, str]:
    share = device.consumed_capacity.get("bandwidth")
    clock = {"FPGA_CLOCK_MHZ": str(device.config.clock_mhz), "FPGA_MODE": device.config.mode}
    return clock if share is None else {**clock, "FPGA_BANDWIDTH": str(share)}
