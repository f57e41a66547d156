"""Disks that fail at any step of prepare and unprepare: nothing is lost, and nothing stays held."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.errors import (
    ClaimError,
    HookError,
    StateError,
)
from dra_sdk.model.claim import ClaimRef
from dra_sdk.node.files import Files
from tests.lamps import NAME
from tests.node.prepare.world import FailingDisk, FailingDriver, World

KIND = f"{NAME}/device"


def is_spec(path: Path) -> bool:
    return path.parent.name == "cdi"


@pytest.mark.parametrize("steps", [{"create"}, {"write"}, {"rename"}, {"create", "unlink"}])
def test_a_cdi_directory_that_cannot_be_written_holds_no_device(world: World, steps: set[str]) -> None:
    disk = FailingDisk(lambda step, path: is_spec(path) and step in steps)
    preparer = world.preparer(files=Files(disk))
    ref = world.claim("u-1", "lamp-0", "lamp-1")
    with pytest.raises(ClaimError, match=r"cannot write CDI spec .*u-1.json: No space left on device"):
        preparer.prepare(ref)
    assert world.is_clean()
    assert [device.data for device in world.driver.undone[0].devices] == [{"lamp": "lamp-0"}, {"lamp": "lamp-1"}]
    disk.when = None
    assert len(preparer.prepare(ref)) == 2


def test_a_cdi_directory_that_became_a_file_holds_no_device(world: World) -> None:
    preparer = world.preparer()
    world.cdi.rmdir()
    world.cdi.touch()
    ref = world.claim("u-1", "lamp-0")
    with pytest.raises(ClaimError, match="cannot write CDI spec"):
        preparer.prepare(ref)
    assert (world.shining(), world.states()) == ({}, [])
    preparer.unprepare(ref)
    world.cdi.unlink()
    assert len(preparer.prepare(ref)) == 1


class Counting:
    """A disk that fails at step number `first`, and at all after it where it is broken for good."""

    def __init__(self, first: int, *, for_good: bool) -> None:
        self.first, self.for_good = first, for_good
        self.steps = 0
        self.repaired = True

    def __call__(self, step: str, path: Path) -> None:
        if self.repaired:
            return
        self.steps += 1
        if self.steps == self.first or (self.for_good and self.steps > self.first):
            raise OSError(28, "No space left on device")


def failure(call: Callable[[ClaimRef], Any], ref: ClaimRef) -> str | None:
    """What a call failed with, if it did."""
    try:
        call(ref)
    except (StateError, ClaimError) as error:
        return str(error)
    return None


@pytest.mark.parametrize("for_good", [False, True])
def test_a_disk_that_fails_at_any_step_of_prepare_loses_nothing(in_memory: Path, for_good: bool) -> None:
    """An error; nothing left if the disk failed only once; and when it works again both calls succeed."""
    for first in range(1, 100):
        for then in ("prepare", "unprepare"):
            world = World(in_memory / f"{first}-{then}")
            disk = Counting(first, for_good=for_good)
            preparer = world.preparer(files=Files(disk))
            ref = world.claim("u-1", "lamp-0", "lamp-1")
            disk.repaired = False
            refusal = failure(preparer.prepare, ref)
            if refusal is None:
                assert first == 28, "27 steps can fail"
                return
            assert "No space left" in refusal
            assert for_good or world.is_clean(), first
            disk.repaired = True
            if then == "prepare":
                assert len(preparer.prepare(ref)) == 2
                assert world.shining() == {"lamp-0": "u-1", "lamp-1": "u-1"}
            preparer.unprepare(ref)
            assert world.is_clean(), first
            assert world.preparer().held() == []
    pytest.fail("no end of steps")


@pytest.mark.parametrize("broken", ["create", "fsync", "rename", "fsync-directory"])
def test_the_hook_does_not_run_before_its_beginning_is_written(world: World, broken: str) -> None:
    failures: list[str] = []

    def first(step: str, path: Path) -> bool:
        fails = not failures and step == broken and path.parent == world.claims
        failures.extend([step] * fails)
        return fails

    preparer = world.preparer(files=Files(FailingDisk(first)))
    with pytest.raises(StateError, match="No space left"):
        preparer.prepare(world.claim("u-1", "lamp-0"))
    assert (world.driver.prepared, world.states(), preparer.held()) == ([], [], [])


@pytest.mark.parametrize("for_good", [False, True])
def test_a_disk_that_fails_at_any_step_of_unprepare_loses_nothing(in_memory: Path, for_good: bool) -> None:
    for first in range(1, 100):
        world = World(in_memory / str(first))
        disk = Counting(first, for_good=for_good)
        preparer = world.preparer(files=Files(disk))
        ref = world.claim("u-1", "lamp-0")
        preparer.prepare(ref)
        disk.repaired = False
        assert "No space left" in (failure(preparer.unprepare, ref) or "No space left")
        if disk.steps < first:
            assert first == 9, "8 steps can fail"
            return
        disk.repaired = True
        preparer.unprepare(ref)
        assert world.is_clean()
        assert world.preparer().held() == []
    pytest.fail("no end of steps")


@pytest.mark.parametrize("for_good", [False, True])
def test_a_claim_whose_undoing_began_is_never_answered_from_its_state(in_memory: Path, for_good: bool) -> None:
    for first in range(1, 10):
        world = World(in_memory / str(first))
        disk = Counting(first, for_good=for_good)
        preparer = world.preparer(files=Files(disk))
        ref = world.claim("u-1", "lamp-0")
        preparer.prepare(ref)
        disk.repaired = False
        with suppress(StateError, ClaimError):
            preparer.unprepare(ref)
        disk.repaired = True
        assert len(preparer.prepare(ref)) == 1
        assert world.shining() == {"lamp-0": "u-1"}, first


def test_a_removal_that_may_not_have_reached_the_disk_is_repeated(world: World) -> None:
    """After a power failure its state would be back, and hold the device for nobody."""
    steps: list[str] = []

    def fail_once(step: str, path: Path) -> bool:
        if path != world.claims / "u-1.json" or step not in {"unlink", "fsync-directory"}:
            return False
        steps.append(step)
        return steps == ["unlink", "fsync-directory"]

    disk = FailingDisk(None)
    preparer = world.preparer(files=Files(disk))
    ref = world.claim("u-1", "lamp-0")
    preparer.prepare(ref)
    disk.when = fail_once
    with pytest.raises(StateError, match="cannot remove state file"):
        preparer.unprepare(ref)
    preparer.unprepare(ref)
    assert steps == ["unlink", "fsync-directory", "fsync-directory"]
    assert world.is_clean()


@pytest.mark.parametrize("shared", [False, True])
def test_a_claim_half_undone_on_a_full_disk_is_not_answered_by_another(world: World, shared: bool) -> None:
    disk, driver = FailingDisk(None), FailingDriver(world.lamps)
    old = world.preparer(driver, files=Files(disk), shared=shared)
    ref = world.claim("u-1", "lamp-0", "lamp-1")
    old.prepare(ref)
    disk.when = lambda step, path: step == "create"
    driver.undo_fails = True
    with pytest.raises(HookError, match="switch is stuck"):
        old.unprepare(ref)
    driver.put_out("lamp-0", "u-1")  # that far it came
    disk.when, driver.undo_fails = None, False
    new = world.preparer(driver, shared=shared)
    assert [claim.complete for claim in new.held()] == [False]
    assert len(new.prepare(ref)) == 2
    assert world.shining() == {"lamp-0": "u-1", "lamp-1": "u-1"}
    new.unprepare(ref)
    assert world.is_clean()


def test_nothing_is_undone_where_not_even_that_can_be_remembered(world: World) -> None:
    disk = FailingDisk(None)
    preparer = world.preparer(files=Files(disk))
    ref = world.claim("u-1", "lamp-0")
    answer = preparer.prepare(ref)
    disk.when = lambda step, path: step in {"create", "chmod"}
    with pytest.raises(StateError, match="cannot write state file"):
        preparer.unprepare(ref)
    assert world.driver.undone == []
    assert preparer.prepare(ref) == answer
    disk.when = None
    preparer.unprepare(ref)
    assert world.is_clean()


def test_a_full_disk_does_not_keep_devices_held(world: World) -> None:
    disk = FailingDisk(None)
    preparer = world.preparer(files=Files(disk))
    ref = world.claim("u-1", "lamp-0")
    preparer.prepare(ref)
    disk.when = lambda step, path: step == "create"
    preparer.unprepare(ref)
    assert world.is_clean()


def test_a_broken_state_file_is_its_claims_error_and_stays(world: World) -> None:
    preparer = world.preparer()
    ref = world.claim("u-1", "lamp-0")
    preparer.prepare(ref)
    path = world.claims / "u-1.json"
    path.write_bytes(path.read_bytes()[:-20])
    damaged = path.read_bytes()
    again = world.preparer()
    for call in (again.prepare, again.unprepare):
        with pytest.raises(StateError, match=f"{path} is damaged"):
            call(ref)
    assert len(again.prepare(world.claim("u-2", "lamp-1"))) == 1
    assert path.read_bytes() == damaged
    assert len(world.specs()) == 2, "the spec of a running container was removed"
