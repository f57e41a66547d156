"""Drivers of lamps, which are files of the node: a correct one, others with more features, and some with mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dra_sdk import (
    AllocatedDevice,
    Capacity,
    Claim,
    Condition,
    ContainerEdits,
    Device,
    DeviceNode,
    DeviceStatus,
    DeviceTaint,
    DriverInfo,
    HeldClaim,
    Mount,
    Node,
    PermanentError,
    PreparedDevice,
    RequestPolicy,
)
from tests.lamps import NAME, LampConfig, LampDriver

LAMPS = "sys/class/lamps"


class SwitchedLamps(LampDriver):
    """Lamps that are files of the node; the switch of a lamp that is on has the UID of its claim."""

    metadata = False

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo(NAME, configs=[LampConfig], metadata=self.metadata)

    def dra_discover(self, node: Node) -> Iterator[Device]:
        for path in sorted((node.root / LAMPS).glob("*")):
            yield Device(path.name, attributes={"watt": int((path / "watt").read_text())})

    def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
        self.lamps = claim.node.root / LAMPS
        yield from super().dra_prepare(claim)

    def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
        self.lamps = node.root / LAMPS
        super().dra_unprepare(claim, node)

    def edits(self, device: AllocatedDevice[LampConfig]) -> ContainerEdits:
        return ContainerEdits(
            env={f"LAMP_{device.base_request.upper()}": str(device.config.brightness)},
            device_nodes=[DeviceNode(f"/dev/{device.base_request}", host_path=f"/dev/{device.name}")],
            mounts=[Mount(f"/run/{device.name}", f"/run/{device.base_request}")],
        )

    def put_on(self, name: str, uid: str) -> None:
        if self.switch(name).read_text():
            raise PermanentError(f"lamp {name} is on")
        self.switch(name).write_text(uid)

    def put_out(self, name: str, uid: str) -> None:
        if self.switch(name).read_text() == uid:
            self.switch(name).write_text("")

    def switch(self, name: str) -> Path:
        assert self.lamps
        return self.lamps / name / "on"


class Forgetful(SwitchedLamps):
    """Mistake: relies on the data that it yields, which is lost in a crash before the yield."""

    def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
        self.lamps = node.root / LAMPS
        for device in claim.devices:
            if device.data:
                self.switch(device.data["lamp"]).write_text("")


class InMemory(SwitchedLamps):
    """Mistake: remembers in memory what it has switched on."""

    def __init__(self) -> None:
        super().__init__()
        self.on: set[str] = set()

    def put_on(self, name: str, uid: str) -> None:
        super().put_on(name, uid)
        self.on.add(name)

    def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
        self.lamps = node.root / LAMPS
        for name in sorted(self.on):
            self.switch(name).write_text("")


class MakingDirectories(SwitchedLamps):
    """Mistake: makes a directory that is there already after a crash."""

    def put_on(self, name: str, uid: str) -> None:
        assert self.lamps
        directory = self.lamps.parents[2] / f"run/{name}/busy"
        directory.mkdir()
        super().put_on(name, uid)
        directory.rmdir()


class Reporting(SwitchedLamps):
    """Reports the status of its devices; mistake: with an invalid `reason`."""

    metadata = True

    def __init__(self, reason: str = "On") -> None:
        super().__init__()
        self.reason = reason

    def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            condition = Condition(type="Ready", status=True, reason=self.reason)
            yield device.prepared(
                ContainerEdits(env={"A": "b"}), status=DeviceStatus(conditions=[condition]), metadata={"bulb": "led"}
            )


class Dimmable(LampDriver):
    """One lamp whose light is shared by claims."""

    def dra_discover(self, node: Node) -> Iterator[Device]:
        policy = RequestPolicy(default=10, min=10, max=100, step=10)
        yield Device("lamp-0", capacity={"light": Capacity(100, policy)}, allow_multiple_allocations=True)

    def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            light: Mapping[str, Any] = device.consumed_capacity
            yield device.prepared(ContainerEdits(env={"LIGHT": str(light["light"])}))


class Uneven(LampDriver):
    """Two of its valid amounts of light are equal after rounding, which a server accepts only with a gate of 1.37."""

    def dra_discover(self, node: Node) -> Iterator[Device]:
        policy = RequestPolicy(default=1, valid_values=["500m", 1])
        yield Device("lamp-0", capacity={"light": Capacity(100, policy)}, allow_multiple_allocations=True)


class Hot(LampDriver):
    """Its lamps are tainted."""

    def dra_discover(self, node: Node) -> Iterator[Device]:
        yield Device("lamp-0", taints=[DeviceTaint(key=f"{NAME}/hot", effect="None")])


class Unplugged(LampDriver):
    """Finds no lamp."""

    def dra_discover(self, node: Node) -> Iterator[Device]:
        yield from ()


class Labelled(LampDriver):
    """Lamps with a text attribute; a container gets only environment variables."""

    def dra_discover(self, node: Node) -> Iterator[Device]:
        for number in range(10):
            yield Device(f"lamp-{number}", attributes={"colour": "red"})


class Failing(Labelled):
    """Mistake: its prepare raises."""

    def dra_prepare(self, claim: Claim[Any]) -> Iterator[PreparedDevice]:
        raise ValueError("the bulb is loose")


class Bare(Labelled):
    """Lamps without attributes."""

    def dra_discover(self, node: Node) -> Iterator[Device]:
        yield Device("lamp-0")
