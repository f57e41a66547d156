"""The check of a driver against odd files finds a driver that such a file breaks, and passes one that it does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dra_sdk import Device, HardwareError, ResourcePool
from dra_sdk.hardware import entries, leave_out, read_if_exists, read_int, read_optional
from dra_sdk.testing.host_faults import FAULTS, check_each_file


@pytest.fixture
def cards(tmp_path: Path) -> Path:
    for name in ("card0", "card1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cores").write_text("8\n")
        (tmp_path / name / "speed").write_text("100\n")
    return tmp_path


def check(cards: Path, describe: Callable[[Path], Device | None], seed: int | None = None) -> int:
    def discover() -> list[ResourcePool]:
        described = (describe(cards / name) for name in entries(cards))
        return [ResourcePool("node-a", [device for device in described if device is not None])]

    return check_each_file(discover, lambda path, device: device.name in path.parts, needed=[cards.name], seed=seed)


def careful(card: Path) -> Device | None:
    try:
        attributes = {"cores": read_int(card / "cores")}
    except HardwareError as error:
        leave_out(card.name, error)
        return None
    speed = read_optional(read_int, card / "speed")
    return Device(card.name, attributes if speed is None else {**attributes, "speed": speed})


def test_a_careful_driver_passes_with_every_fault(cards: Path) -> None:
    assert check(cards, careful) == 5 * len(FAULTS)  # two files of two cards, and the list of cards
    assert check(cards, careful, seed=7) == 5


@pytest.mark.parametrize(
    ("describe", "problem"),
    [
        (lambda card: Device(card.name, {"cores": read_int(card / "cores")}), "card1/cores: EIO: nothing is published"),
        (lambda card: Device(card.name, {"cores": _silent(card)} if _silent(card) else {}), "and nothing says why"),
        (lambda card: Device(card.name, {"cores": _silent(card) or 99}), "says something else: cores was 8, is 99"),
        (lambda card: Device(card.name) if _silent(card.parent / "card0") else None, "which it is not about"),
    ],
    ids=["all are lost", "silent", "wrong value", "others are lost"],
)
def test_a_careless_driver_does_not(cards: Path, describe: Callable[[Path], Device | None], problem: str) -> None:
    with pytest.raises(AssertionError, match="faults cost too much") as raised:
        check(cards, describe)
    assert problem in str(raised.value)


def _silent(card: Path) -> int | None:
    try:
        return read_if_exists(read_int, card / "cores")
    except HardwareError:
        return None
