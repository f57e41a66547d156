"""FPGA cards: whole, by region, and DMA bandwidth in shares; with configuration, undo and health.

The device is invented and made of plain files: `/sys/class/fpga/card0/{model,regions,health,region0,…}`.
"""

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Literal

from pydantic import Field

from dra_sdk import (
    AllocatedDevice,
    Capacity,
    Claim,
    ContainerEdits,
    CounterConsumption,
    CounterSet,
    Device,
    DeviceHealth,
    DeviceNode,
    DriverInfo,
    HealthStatus,
    HeldClaim,
    Node,
    OpaqueConfig,
    PermanentError,
    PreparedDevice,
    RequestPolicy,
    ResourcePool,
)

FPGAS = "sys/class/fpga"


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
        """The name and the configuration; a claim without configuration gets the defaults of the first class."""
        return DriverInfo("fpga.example.com", configs=[FpgaConfig])

    def dra_discover(self, node: Node) -> Iterator[ResourcePool]:
        """The whole card and its regions consume one counter set, so no claim gets a region of a card in use."""
        devices: list[Device] = []
        sets: list[CounterSet] = []
        for card in sorted((node.root / FPGAS).glob("card*")):
            regions = int((card / "regions").read_text())
            sets.append(CounterSet(f"{card.name}-regions", {"regions": regions}))
            devices += _devices(card, regions)
        yield ResourcePool(node.name, devices, sets)

    def dra_prepare(self, claim: Claim[FpgaConfig]) -> Iterator[PreparedDevice]:
        """Load the bitstream; the journal first records the previous one, so that unprepare can restore it."""
        for device in claim.devices:
            card = device.name.partition("-")[0]
            for region in _regions(claim.node, device.name):
                claim.journal({"region": str(region), "before": region.read_text()})
                region.write_text(device.config.bitstream)
            node = DeviceNode(f"/dev/{device.base_request}", host_path=f"/dev/fpga{card.removeprefix('card')}")
            yield device.prepared(ContainerEdits(env=_environment(device), device_nodes=[node]))

    def dra_unprepare(self, claim: HeldClaim) -> None:
        """Restore what the journal records, newest first; a claim that was never prepared has no journal."""
        for entry in reversed(claim.journal):
            Path(entry["region"]).write_text(entry["before"])

    def dra_device_health(self, node: Node, stop: Event) -> Iterator[list[DeviceHealth]]:
        """Every two seconds the health of all devices of each card."""
        while not stop.is_set():
            yield [health for card in sorted((node.root / FPGAS).glob("card*")) for health in _health(card)]
            stop.wait(2)


def _devices(card: Path, regions: int) -> Iterator[Device]:
    model, counters = (card / "model").read_text().strip(), f"{card.name}-regions"
    whole = [CounterConsumption(counters, {"regions": regions})]
    yield Device(card.name, {"type": "card", "model": model}, {"regions": regions}, consumes=whole)
    for number in range(regions):
        part = [CounterConsumption(counters, {"regions": 1})]
        yield Device(f"{card.name}-region{number}", {"type": "region", "model": model}, consumes=part)
    policy = RequestPolicy(default="1Gi", min="1Gi", step="1Gi")
    bandwidth = {"bandwidth": Capacity("16Gi", policy)}
    yield Device(f"{card.name}-dma", {"type": "dma", "model": model}, bandwidth, allow_multiple_allocations=True)


def _regions(node: Node, device: str) -> list[Path]:
    """The files of the regions in a device; a share of DMA has none."""
    card, _, part = device.partition("-")
    found = sorted((node.root / FPGAS / card).glob(part or "region[0-9]*"))
    if not found and part != "dma":
        raise PermanentError(f"device {device}: the card has no region {part}; was it replaced?")
    return found


def _environment(device: AllocatedDevice[FpgaConfig]) -> dict[str, str]:
    share = device.consumed_capacity.get("bandwidth")
    clock = {"FPGA_CLOCK_MHZ": str(device.config.clock_mhz), "FPGA_MODE": device.config.mode}
    return clock if share is None else {**clock, "FPGA_BANDWIDTH": str(share)}


def _health(card: Path) -> Iterator[DeviceHealth]:
    state = (card / "health").read_text().strip()
    status = HealthStatus.HEALTHY if state == "ok" else HealthStatus.UNHEALTHY
    regions = int((card / "regions").read_text())
    for name in (card.name, *(f"{card.name}-region{number}" for number in range(regions)), f"{card.name}-dma"):
        yield DeviceHealth(name, status, "" if state == "ok" else state)
