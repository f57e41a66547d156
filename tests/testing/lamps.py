"""Drivers of lamps, which are files of the node: a correct one, others with more features, and some with mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dra_sdk import (
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
    OpaqueConfig,
    PermanentError,
    PreparedDevice,
    RequestPolicy,
)

NAME = "lamps.example.com"
SWITCH = "sys/class/lamps/{}/on"


class LampConfig(OpaqueConfig, api_version="lamps.example.com/v1"):
    brightness: int = 100


class LampDriver:
    """Switches lamps on and off; the switch of a lamp that is on has the UID of its claim."""

    metadata = False

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo(NAME, configs=[LampConfig], metadata=self.metadata)

    def dra_discover(self, node: Node) -> Iterator[Device]:
        for path in sorted((node.root / "sys/class/lamps").glob("*")):
            yield Device(path.name, attributes={"watt": int((path / "watt").read_text())})

    def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            self.switch_on(claim, device.name)
            yield device.prepared(self.edits(device), data={"lamp": device.name})

    def edits(self, device: Any) -> ContainerEdits:
        return ContainerEdits(
            env={f"LAMP_{device.base_request.upper()}": str(device.config.brightness)},
            device_nodes=[DeviceNode(f"/dev/{device.base_request}", host_path=f"/dev/{device.name}")],
            mounts=[Mount(f"/run/{device.name}", f"/run/{device.base_request}")],
        )

    def switch_on(self, claim: Claim[LampConfig], name: str) -> None:
        switch = claim.node.root / SWITCH.format(name)
        if switch.read_text():
            raise PermanentError(f"lamp {name} is on")
        switch.write_text(claim.uid)

    def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
        for device in claim.devices:
            switch = node.root / SWITCH.format(device.name)
            if switch.read_text() == claim.uid:
                switch.write_text("")


class Forgetful(LampDriver):
    """Mistake: relies on the data that it yields, which is lost in a crash before the yield."""

    def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
        for device in claim.devices:
            if device.data:
                (node.root / SWITCH.format(device.data["lamp"])).write_text("")


class InMemory(LampDriver):
    """Mistake: remembers in memory what it has switched on."""

    def __init__(self) -> None:
        self.on: set[str] = set()

    def switch_on(self, claim: Claim[LampConfig], name: str) -> None:
        super().switch_on(claim, name)
        self.on.add(name)

    def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
        for name in sorted(self.on):
            (node.root / SWITCH.format(name)).write_text("")


class MakingDirectories(LampDriver):
    """Mistake: makes a directory that is there already after a crash."""

    def switch_on(self, claim: Claim[LampConfig], name: str) -> None:
        directory = claim.node.root / f"run/{name}/busy"
        directory.mkdir()
        super().switch_on(claim, name)
        directory.rmdir()


class Reporting(LampDriver):
    """Reports the status of its devices; mistake: with an invalid `reason`."""

    metadata = True

    def __init__(self, reason: str = "On") -> None:
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
    """Lamps with a text attribute; a container gets only an environment variable."""

    def dra_discover(self, node: Node) -> Iterator[Device]:
        for number in range(10):
            yield Device(f"lamp-{number}", attributes={"colour": "red"})

    def edits(self, device: Any) -> ContainerEdits:
        return ContainerEdits(env={"LAMP": device.name})

    def switch_on(self, claim: Claim[LampConfig], name: str) -> None:
        pass

    def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
        pass


class Bare(Labelled):
    """Lamps without attributes."""

    def dra_discover(self, node: Node) -> Iterator[Device]:
        yield Device("lamp-0")
