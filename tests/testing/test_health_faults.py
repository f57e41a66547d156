"""The check of health against odd files finds a hook that such a file breaks, and passes one that it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from dra_sdk import Claim, Device, DeviceHealth, DriverInfo, Node
from dra_sdk.hardware import health, read_optional, read_text
from dra_sdk.loader import Driver
from dra_sdk.model.status import HealthStatus
from dra_sdk.testing.health_faults import check_health
from dra_sdk.testing.host_faults import FAULTS

CARDS = ("card0", "card1")


class Cards:
    """A driver of cards whose state is in a file; `read` reads it."""

    def __init__(self, read: Callable[[Path], str | None]) -> None:
        self._read = read

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo("cards.example.com")

    def dra_discover(self, node: Node) -> list[Device]:
        return [Device(name) for name in CARDS]

    def dra_prepare(self, claim: Claim[None]) -> None: ...

    def dra_device_health(self, node: Node, stop: Event) -> Iterator[list[DeviceHealth]]:
        def look() -> list[DeviceHealth]:
            states = {name: self._read(node.sys / name) for name in CARDS}
            return [
                DeviceHealth(name, HealthStatus.HEALTHY if state == "ok" else HealthStatus.UNHEALTHY)
                for name, state in states.items()
            ]

        return health.watch(look, stop, 1.0, "cards")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    (tmp_path / "sys").mkdir()
    for name in CARDS:
        (tmp_path / "sys" / name).write_text("ok\n")
    return Node("node-a", tmp_path)


def check(node: Node, read: Callable[[Path], str | None], seed: int | None = None) -> int:
    return check_health(lambda: Driver.of(Cards(read)), node, lambda path, name: path.name == name, seed=seed)


def test_a_careful_hook_passes_with_every_fault(node: Node) -> None:
    assert check(node, lambda path: read_optional(read_text, path)) == 2 * len(FAULTS)
    assert check(node, lambda path: read_optional(read_text, path), seed=7) == 1  # both files are alike


def test_a_hook_that_reports_nothing_for_one_odd_file_is_found(node: Node) -> None:
    with pytest.raises(AssertionError, match="card0: EIO: no health at all is reported"):
        check(node, read_text)


def test_a_file_that_changes_another_card_is_found(node: Node) -> None:
    with pytest.raises(AssertionError, match="card0: EIO: card1, which it is not about, was HEALTHY"):
        check(node, lambda path: read_optional(read_text, path.with_name("card0")))
