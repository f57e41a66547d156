"""No claim gets hardware that another one holds: what devices take of the counters of their pool, in two processes too.

`lamp-0` is a whole chandelier, `lamp-1` and `lamp-2` are its halves; `lamp-3` is a lamp of its own.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dra_sdk import (
    Claim,
    ContainerEdits,
    CounterConsumption,
    CounterSet,
    Device,
    DriverInfo,
    PreparedDevice,
    ResourcePool,
)
from dra_sdk.errors import DeviceHeldError, HookError
from dra_sdk.model.claim import ClaimRef
from dra_sdk.node.prepare.counters import PoolCounters
from dra_sdk.node.prepare.engine import Preparer
from tests.lamps import NAME, LampConfig, LampDriver
from tests.node.prepare.world import POOL, World

SHARED = "6c1f3a52-0000-4000-8000-000000000001"


def part(name: str, units: int, **more: Any) -> Device:
    return Device(name, consumes=[CounterConsumption("chandelier", {"bulbs": units})], **more)


DEVICES = [part("lamp-0", 2), part("lamp-1", 1), part("lamp-2", 1), Device("lamp-3")]
CHANDELIER = ResourcePool(POOL, DEVICES, [CounterSet("chandelier", {"bulbs": 2})])


@pytest.fixture
def world(world: World) -> World:
    world.counters = PoolCounters.of(CHANDELIER)
    return world


@pytest.fixture(params=[False, True], ids=["one process", "two processes"])
def preparers(request: pytest.FixtureRequest, world: World) -> tuple[Preparer, Preparer]:
    """Two preparers: the same one twice, or those of the two processes of a rolling update."""
    first = world.preparer(shared=request.param)
    return first, world.preparer(shared=True) if request.param else first


def test_the_half_of_a_device_that_is_held_is_refused_in_a_sentence(
    world: World, preparers: tuple[Preparer, Preparer]
) -> None:
    first, second = preparers
    first.prepare(world.claim("u-1", "lamp-0"))
    with pytest.raises(DeviceHeldError) as caught:
        second.prepare(world.claim("u-2", "lamp-1"))
    assert str(caught.value) == (
        "device node-a/lamp-1 takes 1 of counter bulbs of counter set chandelier, which has 2, "
        "and 2 of it is taken by device node-a/lamp-0 of claim default/claim-u-1 (u-1)"
    )
    assert world.shining() == {"lamp-0": "u-1"}
    second.prepare(world.claim("u-3", "lamp-3"))


def test_halves_fit_together_and_leave_nothing_for_the_whole(
    world: World, preparers: tuple[Preparer, Preparer]
) -> None:
    first, second = preparers
    first.prepare(world.claim("u-1", "lamp-1"))
    second.prepare(world.claim("u-2", "lamp-2"))
    with pytest.raises(DeviceHeldError, match=r"lamp-1 of claim default/claim-u-1 .*, device node-a/lamp-2 of claim"):
        first.prepare(world.claim("u-3", "lamp-0"))
    for uid in ("u-1", "u-2"):
        first.unprepare(ClaimRef("default", f"claim-{uid}", uid))
    second.prepare(ClaimRef("default", "claim-u-3", "u-3"))


def test_the_devices_of_one_claim_do_not_overlap_either(world: World) -> None:
    with pytest.raises(DeviceHeldError, match=r"lamp-0 takes 2 .* taken by device node-a/lamp-1 of the same claim"):
        world.preparer().prepare(world.claim("u-1", "lamp-0", "lamp-1"))


def test_a_repeated_prepare_is_answered(world: World, preparers: tuple[Preparer, Preparer]) -> None:
    ref = world.claim("u-1", "lamp-0")
    assert preparers[0].prepare(ref) == preparers[1].prepare(ref)


def test_a_claim_that_is_allocated_anew_gives_back_first_what_it_had(world: World) -> None:
    with pytest.raises(HookError):
        world.preparer(Interrupted(world.lamps)).prepare(world.claim("u-1", "lamp-0"))
    assert world.states() == ["u-1.json"]
    world.preparer().prepare(world.claim("u-1", "lamp-1"))
    assert world.shining() == {"lamp-1": "u-1"}


def test_a_claim_of_the_same_name_gets_the_device_once_the_former_one_is_undone(world: World) -> None:
    preparer, former = world.preparer(), world.claim("u-1", "lamp-0")
    preparer.prepare(former)
    latter = replace(former, uid="u-2")
    world.api["u-1"]["metadata"]["uid"] = "u-2"
    world.api["u-1"]["status"]["allocation"]["devices"]["results"][0]["device"] = "lamp-1"
    with pytest.raises(DeviceHeldError):
        preparer.prepare(latter)
    preparer.unprepare(former)
    preparer.prepare(latter)
    assert world.shining() == {"lamp-1": "u-2"}


@pytest.mark.parametrize("administrator", ["u-1", "u-2"])
def test_admin_access_takes_nothing(world: World, administrator: str) -> None:
    preparer = world.preparer()
    for uid, lamp in (("u-1", "lamp-0"), ("u-2", "lamp-1")):
        access = {"adminAccess": True} if uid == administrator else {}
        preparer.prepare(world.claim(uid, {"request": "r", "device": lamp, **access}))
    assert world.shining() == {"lamp-0": "u-1", "lamp-1": "u-2"}


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(("held", "wanted"), [("lamp-0", "lamp-1"), ("lamp-1", "lamp-0")])
def test_admin_access_to_a_device_hides_nothing_that_is_taken(world: World, held: str, wanted: str, order: int) -> None:
    """Neither what another claim takes with that device, nor what the same claim takes with it by another request."""
    preparer = world.preparer(Plain())
    preparer.prepare(world.claim("u-1", held))
    for seen in (held, wanted):
        requests = [{"request": "admin", "device": seen, "adminAccess": True}, wanted][::order]
        with pytest.raises(DeviceHeldError, match=f"{wanted} takes .* taken by device node-a/{held} of claim"):
            preparer.prepare(world.claim("u-2", *requests))


def test_shares_take_what_one_of_them_takes(world: World) -> None:
    world.counters = PoolCounters.of(replace(CHANDELIER, devices=[part("lamp-1", 1), part("lamp-2", 2)]))
    preparer = world.preparer(Plain())
    for number in range(3):
        share = {"request": "r", "device": "lamp-1", "shareID": f"{SHARED}{number}", "consumedCapacity": {"watt": "5"}}
        preparer.prepare(world.claim(f"u-{number}", share))
    with pytest.raises(DeviceHeldError, match="lamp-2 takes 2"):
        preparer.prepare(world.claim("u-9", "lamp-2"))


def test_a_claim_of_an_earlier_release_counts_with_what_its_device_takes_now(world: World) -> None:
    """A process of the former release, in a rolling update, does not write what devices take."""
    counters, world.counters = world.counters, PoolCounters()
    former = world.preparer(shared=True)
    former.prepare(world.claim("u-1", "lamp-0"))
    assert b"consumes" not in (world.claims / "u-1.json").read_bytes()
    world.counters = counters
    with pytest.raises(DeviceHeldError, match=r"taken by device node-a/lamp-0 of claim default/claim-u-1"):
        world.preparer(shared=True).prepare(world.claim("u-2", "lamp-1"))


def test_a_device_that_is_no_longer_discovered_still_has_its_hardware(world: World) -> None:
    world.preparer().prepare(world.claim("u-1", "lamp-0"))
    world.counters = PoolCounters.of(replace(CHANDELIER, devices=DEVICES[1:]))
    with pytest.raises(DeviceHeldError, match=r"taken by device node-a/lamp-0 of claim default/claim-u-1"):
        world.preparer().prepare(world.claim("u-2", "lamp-1"))


def test_a_damaged_file_holds_what_its_devices_take(world: World) -> None:
    world.preparer().prepare(world.claim("u-1", "lamp-0"))
    path = world.claims / "u-1.json"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DeviceHeldError, match=r"taken by device node-a/lamp-0 of claim default/claim-u-1"):
        world.preparer().prepare(world.claim("u-2", "lamp-1"))


def test_what_a_device_takes_is_on_disk(world: World) -> None:
    world.preparer().prepare(world.claim("u-1", "lamp-0"))
    _, body = (world.claims / "u-1.json").read_bytes().splitlines()
    assert json.loads(body)["devices"][0]["consumes"] == {"chandelier": {"bulbs": "2"}}


def test_a_pool_with_values_of_wrong_types_has_no_counters() -> None:
    """It is not published, with a sentence; discovery goes on."""
    odd: Any = ["bulbs"]
    pool = PoolCounters.of(ResourcePool(POOL, DEVICES, [CounterSet("chandelier", odd)]))
    assert (pool.sets, pool.consumers) == ({}, {})
    assert pool.devices["lamp-0"] is DEVICES[0]


@pytest.mark.parametrize("undoable", [True, False])
@pytest.mark.parametrize("shared", [False, True])
def test_of_claims_that_exclude_each_other_one_is_prepared_at_once(
    world: World, *, shared: bool, undoable: bool
) -> None:
    """Also before the hook of the first one has ended."""
    driver = Slow(world.lamps) if undoable else SlowAndPlain()
    first = world.preparer(driver, shared=shared)
    second = world.preparer(driver, shared=shared) if shared else first
    refs = [world.claim("u-1", "lamp-0"), world.claim("u-2", "lamp-1")]

    def attempt(preparer: Preparer, ref: ClaimRef) -> str:
        try:
            preparer.prepare(ref)
        except DeviceHeldError:
            return "refused"
        return "prepared"

    with ThreadPoolExecutor(2) as pool:
        outcomes = [pool.submit(attempt, preparer, ref) for preparer, ref in zip((first, second), refs, strict=True)]
        assert driver.begun.wait(30)
        driver.goes_on.set()
        assert sorted(outcome.result(30) for outcome in outcomes) == ["prepared", "refused"]


def test_a_claim_with_other_counters_does_not_wait(world: World) -> None:
    driver = Slow(world.lamps)
    preparer = world.preparer(driver)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(preparer.prepare, world.claim("u-1", "lamp-1"))
        assert driver.begun.wait(30)
        preparer.prepare(world.claim("u-2", "lamp-2"))  # its half of the same counter set is free
        driver.goes_on.set()
        slow.result(30)


class Interrupted(LampDriver):
    """Its hook and its undo fail, so that its claim keeps what it began with."""

    def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
        raise KeyError("killed")

    def dra_unprepare(self, claim: Any, node: Any) -> None:
        raise KeyError("killed")


class Slow(LampDriver):
    """The hook of its first claim waits."""

    def __init__(self, lamps: Path) -> None:
        super().__init__(lamps)
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
        if not self.begun.is_set():
            self.begun.set()
            assert self.goes_on.wait(30)
        yield from super().dra_prepare(claim)


class Plain:
    """Has no `dra_unprepare`, so that nothing is written before its hook has ended."""

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo(NAME)

    def dra_discover(self, node: Any) -> list[Device]:
        return DEVICES

    def dra_prepare(self, claim: Claim[Any]) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            yield device.prepared(ContainerEdits(env={"L": device.name}))


class SlowAndPlain(Plain):
    """The hooks wait."""

    def __init__(self) -> None:
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def dra_prepare(self, claim: Claim[Any]) -> Iterator[PreparedDevice]:
        self.begun.set()
        assert self.goes_on.wait(30)
        yield from super().dra_prepare(claim)
