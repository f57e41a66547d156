"""Hooks that fail at any device, or whose answer breaks the contract: what is undone, and what is left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dra_sdk import Claim, ContainerEdits, PreparedDevice
from dra_sdk.errors import (
    DeviceHeldError,
    HookError,
)
from tests.lamps import NAME, LampConfig, LampDriver
from tests.node.prepare.world import POOL, FailingDriver, World

KIND = f"{NAME}/device"


@pytest.mark.parametrize("after_on", [False, True])
@pytest.mark.parametrize("fails_at", ["lamp-0", "lamp-1", "lamp-2", "end"])
def test_a_hook_that_fails_at_any_device_leaves_nothing(world: World, fails_at: str, after_on: bool) -> None:
    driver = FailingDriver(world.lamps)
    driver.fails_at, driver.after_on = fails_at, after_on
    preparer = world.preparer(driver)
    ref = world.claim("u-1", "lamp-0", "lamp-1", "lamp-2")
    with pytest.raises(HookError, match=r"dra_prepare of driver .* burnt"):
        preparer.prepare(ref)
    assert world.is_clean()
    (held,) = driver.undone
    done = 3 if fails_at == "end" else int(fails_at[-1])
    assert [device.data for device in held.devices] == [
        {"lamp": f"lamp-{index}"} if index < done else {} for index in range(3)
    ]
    assert not held.complete
    driver.fails_at = None
    assert len(preparer.prepare(ref)) == 3


def yields(*names: str) -> Any:
    """A driver that puts every lamp on, and answers for the lamps called `names`."""

    class Wrong(LampDriver):
        def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[Any]:
            for device in claim.devices:
                self.put_on(device.name, claim.uid)
            for name in names:
                yield PreparedDevice("r", POOL, name, data={"lamp": name}) if name else name

    return Wrong


@pytest.mark.parametrize(
    "names",
    [(), ("lamp-0",), ("lamp-0", "lamp-0"), ("lamp-0", "lamp-1", "lamp-1"), ("lamp-0", "lamp-1", "lamp-7"), ("",)],
)
def test_an_answer_that_breaks_the_contract_is_undone(world: World, names: tuple[str, ...]) -> None:
    driver = yields(*names)(world.lamps)
    with pytest.raises(HookError, match=r"dra_prepare of driver lamps\.example\.com yielded"):
        world.preparer(driver).prepare(world.claim("u-1", "lamp-0", "lamp-1"))
    assert world.is_clean()
    assert len(driver.undone) == 1


def test_edits_that_cdi_refuses_are_undone_with_all_data(world: World) -> None:
    class Wrong(LampDriver):
        def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
            for device in claim.devices:
                self.put_on(device.name, claim.uid)
                yield device.prepared(ContainerEdits(env={"A=B": "1"}), data={"lamp": device.name})

    driver = Wrong(world.lamps)
    with pytest.raises(Exception, match="device node-a/lamp-0: env: the name of a variable"):
        world.preparer(driver).prepare(world.claim("u-1", "lamp-0"))
    assert world.is_clean()
    assert driver.undone[0].devices[0].data == {"lamp": "lamp-0"}


def test_where_undoing_fails_too_the_next_prepare_heals(world: World) -> None:
    driver = FailingDriver(world.lamps)
    driver.fails_at, driver.undo_fails = "lamp-1", True
    preparer = world.preparer(driver)
    ref = world.claim("u-1", "lamp-0", "lamp-1")
    with pytest.raises(HookError, match="lamp-1 is burnt") as caught:
        preparer.prepare(ref)
    (note,) = caught.value.__notes__
    assert note.startswith("undoing it failed as well: dra_unprepare of driver lamps.example.com failed: OSError: ")
    assert world.states() == ["u-1.json"]
    with pytest.raises(DeviceHeldError):
        preparer.prepare(world.claim("u-2", "lamp-0"))
    driver.fails_at = None
    with pytest.raises(HookError, match="switch is stuck"):
        preparer.prepare(ref)
    driver.undo_fails = False
    assert len(world.preparer(driver).prepare(ref)) == 2
    assert driver.undone[0].devices[0].data == {"lamp": "lamp-0"}


def test_where_undoing_fails_too_the_last_devices_data_is_kept(world: World) -> None:
    driver = FailingDriver(world.lamps)
    driver.fails_at, driver.undo_fails = "end", True
    ref = world.claim("u-1", "lamp-0")
    with pytest.raises(HookError, match="burnt at the end"):
        world.preparer(driver).prepare(ref)
    driver.undo_fails = False
    world.preparer(driver).unprepare(ref)
    assert driver.undone[0].devices[0].data == {"lamp": "lamp-0"}
    assert world.is_clean()


def test_the_claims_of_the_hook_are_closed_after_it(world: World) -> None:
    """A hook that keeps its claim must not bring back the state of a claim that is gone."""
    kept: list[Claim[LampConfig]] = []

    class Keep(LampDriver):
        def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
            kept.append(claim)
            yield from super().dra_prepare(claim)

    preparer = world.preparer(Keep(world.lamps))
    ref = world.claim("u-1", "lamp-0")
    preparer.prepare(ref)
    preparer.unprepare(ref)
    with pytest.raises(HookError, match="journal is closed"):
        kept[0].journal({"x": 1})
    assert world.is_clean()
