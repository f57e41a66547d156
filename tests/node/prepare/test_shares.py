"""The shares of a device take no more of a capacity than there is, in two processes too. `lamp-1` has 10 watts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from dra_sdk import Capacity, Claim, Device, PreparedDevice, RequestPolicy, ResourcePool
from dra_sdk.errors import DeviceHeldError
from dra_sdk.model.claim import ClaimRef
from dra_sdk.node.prepare.counters import PoolCounters
from dra_sdk.node.prepare.engine import Preparer
from tests.node.prepare.test_counters import Plain
from tests.node.prepare.world import POOL, World

WATT = Capacity("10", RequestPolicy(default="1", min="0", step="1"))
LAMP = Device("lamp-1", capacity={"watt": WATT, "lumen": "1Ki"}, allow_multiple_allocations=True)


def discovered(*devices: Device) -> PoolCounters:
    return PoolCounters.of(ResourcePool(POOL, devices))


def share(number: int, watt: str, lamp: str = "lamp-1", **more: Any) -> dict[str, Any]:
    share_id = f"6c1f3a52-0000-4000-8000-{number:012}"
    return {"request": f"r{number}", "device": lamp, "shareID": share_id, "consumedCapacity": {"watt": watt}, **more}


@pytest.fixture
def world(world: World) -> World:
    world.counters = discovered(LAMP, replace(LAMP, name="lamp-2"))
    return world


@pytest.fixture(params=[False, True], ids=["one process", "two processes"])
def preparers(request: pytest.FixtureRequest, world: World) -> tuple[Preparer, Preparer]:
    """Two preparers: the same one twice, or those of the two processes of a rolling update."""
    first = world.preparer(Plain(), shared=request.param)
    return first, world.preparer(Plain(), shared=True) if request.param else first


def test_what_does_not_fit_is_refused_in_a_sentence_before_anything_is_written(
    world: World, preparers: tuple[Preparer, Preparer]
) -> None:
    first, second = preparers
    first.prepare(world.claim("u-1", share(1, "6")))
    with pytest.raises(DeviceHeldError) as caught:
        second.prepare(world.claim("u-2", share(2, "6")))
    assert str(caught.value) == (
        "the claim takes 6 of capacity watt of device node-a/lamp-1, which has 10, "
        "and 6 of it is taken by claim default/claim-u-1 (u-1)"
    )
    assert world.states() == ["u-1.json"]
    second.prepare(world.claim("u-3", share(3, "4")))
    second.prepare(world.claim("u-4", share(4, "10", "lamp-2")))
    first.unprepare(ClaimRef("default", "claim-u-1", "u-1"))
    second.prepare(world.claim("u-2", share(2, "6")))


def test_the_requests_of_one_claim_are_added_up(world: World) -> None:
    preparer = world.preparer(Plain())
    with pytest.raises(DeviceHeldError, match=r"takes 6 .* and 6 of it is taken by the same claim"):
        preparer.prepare(world.claim("u-1", share(1, "6"), share(2, "6")))
    with pytest.raises(DeviceHeldError, match=r"takes 11 of capacity watt of device node-a/lamp-1, which has 10$"):
        preparer.prepare(world.claim("u-2", share(1, "11")))


def test_amounts_of_each_capacity_are_compared(world: World) -> None:
    preparer = world.preparer(Plain())
    preparer.prepare(world.claim("u-1", share(1, "1", consumedCapacity={"watt": "1", "lumen": "768"})))
    with pytest.raises(DeviceHeldError, match=r"takes 512 of capacity lumen of .* has 1Ki, and 768 of it"):
        preparer.prepare(world.claim("u-2", share(2, "1", consumedCapacity={"watt": "1", "lumen": "512"})))


def test_a_repeated_prepare_is_answered(world: World, preparers: tuple[Preparer, Preparer]) -> None:
    ref = world.claim("u-1", share(1, "10"))
    assert preparers[0].prepare(ref) == preparers[1].prepare(ref)


def test_after_a_reboot_each_claim_gets_its_share_again(world: World) -> None:
    refs = [world.claim(f"u-{number}", share(number, "5")) for number in range(2)]
    for boot in ("boot-1", "boot-2"):
        preparer = world.preparer(Plain(), boot_id=boot)
        for ref in refs:
            preparer.prepare(ref)


@pytest.mark.parametrize("administrator", [1, 2])
def test_admin_access_takes_nothing(world: World, administrator: int) -> None:
    preparer = world.preparer(Plain())
    for number in (1, 2):
        access = {"adminAccess": True} if number == administrator else {}
        preparer.prepare(world.claim(f"u-{number}", share(number, "10", **access)))


@pytest.mark.parametrize("now", [replace(LAMP, allow_multiple_allocations=False), replace(LAMP, capacity={})])
def test_what_was_allocated_before_a_device_changed_is_prepared(world: World, now: Device) -> None:
    preparer = world.preparer(Plain())
    preparer.prepare(world.claim("u-1", share(1, "5")))
    world.counters = discovered(now)
    preparer.prepare(world.claim("u-2", share(2, "5")))


def test_of_a_device_that_has_less_now_only_a_share_of_nothing_is_left(world: World) -> None:
    preparer = world.preparer(Plain())
    preparer.prepare(world.claim("u-1", share(1, "6")))
    world.counters = discovered(replace(LAMP, capacity={"watt": "5"}))
    preparer.prepare(world.claim("u-2", share(2, "0")))
    with pytest.raises(DeviceHeldError, match="takes 1 of capacity watt"):
        preparer.prepare(world.claim("u-3", share(3, "1")))


def test_what_a_damaged_file_no_longer_says_may_be_everything(world: World) -> None:
    world.preparer(Plain()).prepare(world.claim("u-1", share(1, "1")))
    path = world.claims / "u-1.json"
    path.write_bytes(path.read_bytes()[:-40])
    preparer = world.preparer(Plain())
    with pytest.raises(
        DeviceHeldError, match=r"how much claim .*u-1.* takes of device node-a/lamp-1 is not known: .*dra"
    ):
        preparer.prepare(world.claim("u-2", share(2, "1")))
    preparer.prepare(world.claim("u-3", share(3, "1", "lamp-2")))


@pytest.mark.parametrize("shared", [False, True])
def test_of_claims_that_do_not_fit_together_one_is_prepared_at_once(world: World, *, shared: bool) -> None:
    """Also before the hook of the first one has ended."""
    driver = Slow()
    first = world.preparer(driver, shared=shared)
    second = world.preparer(driver, shared=shared) if shared else first
    refs = [world.claim(f"u-{number}", share(number, "6")) for number in range(2)]

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


class Slow(Plain):
    """Its hooks wait, and it has an undo, so that PrepareStarted is written."""

    def __init__(self) -> None:
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def dra_prepare(self, claim: Claim[Any]) -> Iterator[PreparedDevice]:
        self.begun.set()
        assert self.goes_on.wait(30)
        yield from super().dra_prepare(claim)

    def dra_unprepare(self, claim: Any, node: Any) -> None:
        pass
