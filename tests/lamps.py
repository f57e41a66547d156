"""The driver of lamps: by itself, and as the base of drivers that do more, fail, or make a mistake.

A lamp that is on is a file that holds the UID of its claim, so two claims on one lamp, a lamp that was left on and a
hook that ran twice are all seen on disk, by any process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from dra_sdk import (
    AllocatedDevice,
    Claim,
    ContainerEdits,
    Device,
    DriverInfo,
    HeldClaim,
    Node,
    OpaqueConfig,
    PermanentError,
    PreparedDevice,
)

NAME = "lamps.example.com"


class LampConfig(OpaqueConfig, api_version="lamps.example.com/v1"):
    """How a lamp shines, and a text of any length that says why."""

    brightness: int = Field(default=100, ge=0, le=100)
    why: str = ""


class LampDriver:
    """Switches lamps on and off.

    lamps: the directory with a file for each lamp that is on; None if there is nothing to switch.
    step: called at each boundary of a hook with a name such as `prepare: on`; tests make trouble there.
    count: how many lamps there are.
    prepared: the UIDs of the claims that `dra_prepare` was called for, in order.
    undone: the claims that `dra_unprepare` was called for, in order.
    """

    def __init__(
        self, lamps: Path | None = None, step: Callable[[str], Any] = lambda _step: None, *, count: int = 8
    ) -> None:
        self.lamps = lamps
        self.step = step
        self.count = count
        self.prepared: list[str] = []
        self.undone: list[HeldClaim] = []

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo(NAME, configs=[LampConfig])

    def dra_discover(self, node: Node) -> Iterator[Device]:
        yield from (Device(f"lamp-{number}") for number in range(self.count))

    def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
        self.prepared.append(claim.uid)
        self.step("prepare: begin")
        for device in claim.devices:
            claim.journal({"lamp": device.name})
            self.step("prepare: journaled")
            self.put_on(device.name, claim.uid)
            self.step("prepare: on")
            yield device.prepared(self.edits(device), data={"lamp": device.name})
        self.step("prepare: end")

    def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
        self.undone.append(claim)
        self.step("unprepare: begin")
        for device in claim.devices:
            self.put_out(device.name, claim.uid)
            self.step("unprepare: out")
        self.step("unprepare: end")

    def edits(self, device: AllocatedDevice[LampConfig]) -> ContainerEdits:
        """What a container gets with a lamp."""
        return ContainerEdits(env={"LAMP": device.name, "BRIGHTNESS": str(device.config.brightness)})

    def put_on(self, name: str, uid: str) -> None:
        """Fails where the lamp is on already, also if it is for this claim."""
        if self.lamps is None:
            return
        try:
            handle = os.open(self.lamps / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            raise PermanentError(f"{name} is on for {(self.lamps / name).read_text()!r}") from None
        with open(handle, "w") as file:
            file.write(uid)

    def put_out(self, name: str, uid: str) -> None:
        """Leaves a lamp alone that shines for another claim."""
        if self.lamps is None:
            return
        lamp = self.lamps / name
        if lamp.exists() and lamp.read_text() in {uid, ""}:  # empty: killed before the UID was written
            lamp.unlink()
