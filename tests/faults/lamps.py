"""A driver whose lamps are files: what was done and not undone is seen on disk, by any process.

A lamp that is on is a file that holds the UID of its claim, so two claims on one lamp, a lamp that nobody put out and a
hook that ran twice are all noticed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

from pydantic import Field

from dra_sdk import (
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
LAMPS = "LAMPS"


class LampConfig(OpaqueConfig, api_version="lamps.example.com/v1"):
    """How a lamp shines, and a text of any length that says why."""

    brightness: int = Field(default=100, ge=0, le=100)
    why: str = ""


class LampDriver:
    """`dra-sdk run tests.faults.lamps:LampDriver` has its lamps in the directory $LAMPS.

    `step` is called at each boundary of a hook with a name such as `prepare: on`; tests make trouble there.
    """

    def __init__(self, lamps: Path | None = None, count: int = 40) -> None:
        self.lamps = lamps or Path(os.environ[LAMPS])
        self.count = count
        self.step: Callable[[str], Any] = lambda _name: None
        self.prepared: list[str] = []
        self.claims: dict[str, Claim[LampConfig]] = {}
        self.undone: list[HeldClaim] = []

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo(NAME, configs=[LampConfig])

    def dra_discover(self, node: Node) -> Iterator[Device]:
        self.step("discover")
        yield from (Device(f"lamp-{number}") for number in range(self.count))

    def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        while not stop.wait(0.02):
            self.step("watch")

    def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
        self.prepared.append(claim.uid)
        self.claims[claim.uid] = claim
        self.step("prepare: begin")
        for device in claim.devices:
            claim.journal({"lamp": device.name})
            self.put_on(device.name, claim.uid)
            self.step("prepare: on")
            yield device.prepared(
                ContainerEdits(env={"LAMP": device.name, "BRIGHTNESS": str(device.config.brightness)}),
                data={"lamp": device.name},
            )
        self.step("prepare: end")

    def dra_unprepare(self, claim: HeldClaim) -> None:
        self.undone.append(claim)
        self.step("unprepare: begin")
        for device in claim.devices:
            self.put_out(device.name, claim.uid)
            self.step("unprepare: out")
        self.step("unprepare: end")

    def put_on(self, name: str, uid: str) -> None:
        """Fails where the lamp is on already, for whomever."""
        try:
            handle = os.open(self.lamps / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            raise PermanentError(f"{name} is on for {(self.lamps / name).read_text()!r}") from None
        with open(handle, "w") as file:
            file.write(uid)

    def put_out(self, name: str, uid: str) -> None:
        """Leaves a lamp alone that shines for another claim."""
        lamp = self.lamps / name
        if lamp.exists() and lamp.read_text() in {uid, ""}:  # empty: killed before the UID was written
            lamp.unlink()
