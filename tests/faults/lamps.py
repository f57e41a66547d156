"""The driver of lamps for a site: it looks for changes all the time, and keeps the claims that it gets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

from dra_sdk import Claim, Device, Node, PreparedDevice
from tests.lamps import LampConfig, LampDriver

LAMPS = "LAMPS"


class WatchedLamps(LampDriver):
    """`dra-sdk run tests.faults.lamps:WatchedLamps` has its lamps in the directory $LAMPS.

    claims: the claims of `dra_prepare`, by UID.
    """

    def __init__(self, lamps: Path | None = None) -> None:
        super().__init__(lamps or Path(os.environ[LAMPS]), count=40)
        self.claims: dict[str, Claim[LampConfig]] = {}

    def dra_discover(self, node: Node) -> Iterator[Device]:
        self.step("discover")
        yield from super().dra_discover(node)

    def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        while not stop.wait(0.02):
            self.step("watch")

    def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
        self.claims[claim.uid] = claim
        yield from super().dra_prepare(claim)
