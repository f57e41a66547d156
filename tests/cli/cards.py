"""A driver of cards, which are files under the node's root, and drivers with mistakes."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dra_sdk import (
    Capacity,
    Claim,
    ContainerEdits,
    CounterConsumption,
    CounterSet,
    Device,
    DriverInfo,
    Node,
    PreparedDevice,
    RequestPolicy,
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


class RootedCards(Cards):
    """Cards whose environment has the directory that the hook reads."""

    def dra_discover(self, node: Node) -> Any:
        self._root = node.root
        return super().dra_discover(node)

    def dra_prepare(self, claim: Claim) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            yield device.prepared(ContainerEdits(env={"ROOT": str(self._root)}))


class Detailed(Cards):
    """One device with many attributes and two capacities."""

    def dra_discover(self, node: Node) -> list[Device]:
        attributes = {f"attribute{number}": f"value-of-some-length-{number}" for number in range(12)}
        return [Device("card0", attributes, {"memory": "80Gi", "bandwidth": "2"})]


class Talkative(Cards):
    """Prints, and starts a program that prints."""

    def dra_driver_info(self) -> DriverInfo:
        print("info is asked for")
        return DriverInfo(NAME)

    def dra_discover(self, node: Node) -> list[Device]:
        print("devices are asked for")
        subprocess.run(["/bin/sh", "-c", "echo asked by a program"], check=True)
        return [Device("card0")]


class Patient(Cards):
    """Its discovery ends when the user was told that it is slow."""

    told: threading.Event

    def dra_discover(self, node: Node) -> list[Device]:
        assert self.told.wait(60)
        return [Device("card0")]


class SharedCards(Cards):
    """A card that one claim can have, or several claims in shares: both consume the card's counter."""

    def dra_discover(self, node: Node) -> list[ResourcePool]:
        whole = [CounterConsumption("card0", {"card": 1})]
        seats = Capacity(4, RequestPolicy(default=1, min=1, step=1))
        devices = [
            Device("card0", consumes=whole),
            Device("card0-shared", capacity={"seats": seats}, consumes=whole, allow_multiple_allocations=True),
        ]
        return [ResourcePool(node.name, devices, [CounterSet("card0", {"card": 1})])]


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


class Drawing(Cards):
    """Draws what it has prepared, and does not know that claims may be only planned."""

    def dra_top(self, node: Node) -> Iterator[str]:
        raise KeyError("state")
