"""A driver of cards, which are files under the node's root, and drivers with mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dra_sdk import (
    Claim,
    ContainerEdits,
    CounterConsumption,
    CounterSet,
    Device,
    DriverInfo,
    Node,
    PreparedDevice,
    ResourcePool,
)

NAME = "cards.example.com"


def make_cards(root: Path, count: int = 2) -> Path:
    """Make a tree with cards; returns the tree."""
    for number in range(count):
        card = root / f"sys/class/card/card{number}"
        card.mkdir(parents=True)
        (card / "model").write_text("v80\n")
    boot_id = root / "proc/sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True)
    boot_id.write_text("boot-1\n")
    return root


class Cards:
    """One device per card and two halves of it, which share a counter."""

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo(NAME)

    def dra_discover(self, node: Node) -> Any:
        return self.pools(node)

    def pools(self, node: Node) -> Iterator[ResourcePool]:
        devices, sets = [], []
        for path in sorted((node.root / "sys/class/card").glob("card*")):
            model = {"model": (path / "model").read_text().strip()}
            sets.append(CounterSet(f"{path.name}-halves", {"halves": 2}))
            for name, halves in ((path.name, 2), (f"{path.name}-a", 1), (f"{path.name}-b", 1)):
                taken = CounterConsumption(f"{path.name}-halves", {"halves": halves})
                devices.append(Device(name, model, consumes=[taken]))
        yield ResourcePool(node.name, devices, sets)

    def dra_prepare(self, claim: Claim[None]) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            yield device.prepared(ContainerEdits(env={"CARD": device.name}))


class Unreadable(Cards):
    def dra_discover(self, node: Node) -> Any:
        return (node.root / "sys/class/card/index").read_text()  # the line that a message is to name


class Twice(Cards):
    def dra_discover(self, node: Node) -> list[Device]:
        return [Device("card0"), Device("card0")]


class Misshapen(Cards):
    def dra_discover(self, node: Node) -> list[Device]:
        return [Device("card0", attributes=[("model", "v80")])]  # type: ignore[arg-type]


class OneDevice(Cards):
    def dra_discover(self, node: Node) -> Device:
        return Device("card0")


class Burning(Cards):
    def dra_prepare(self, claim: Claim[None]) -> Any:
        raise KeyError("voltage")
