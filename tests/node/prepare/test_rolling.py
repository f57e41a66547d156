"""Two processes of one driver on the same directories, while a third starts again and again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dra_sdk import Claim, ContainerEdits, HeldClaim, Node, PreparedDevice
from dra_sdk.errors import DeviceHeldError, HookError
from dra_sdk.node.files import Files
from tests.lamps import LampConfig, LampDriver
from tests.node.prepare.rolling import shared_claims
from tests.node.prepare.world import World

PROGRAM = Path(__file__).with_name("rolling.py")


def test_processes_that_share_a_directory_keep_every_promise(world: World) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    workers = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(world.root), str(seed)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in (1, 2)
    ]
    while any(worker.poll() is None for worker in workers):
        world.preparer(shared=True)
        with suppress(subprocess.TimeoutExpired):
            workers[0].wait(0.01)
    ended = [(worker.communicate(), worker.returncode) for worker in workers]
    for (printed, errors), status in ended:
        assert status == 0, errors
        assert set(json.loads(printed)) <= {"DeviceHeldError"}, printed
    last = world.preparer(shared=True)
    held = {claim.uid: {device.name for device in claim.devices} for claim in last.held()}
    assert world.shining() == {lamp: uid for uid, lamps in held.items() for lamp in lamps}
    assert len(world.specs()) == len(held)
    for ref in shared_claims(world):
        last.unprepare(ref)
    assert world.is_clean()


def test_a_claim_prepared_by_one_process_is_answered_and_undone_by_the_other(world: World) -> None:
    old, new = (world.preparer(shared=True) for _ in range(2))
    ref = world.claim("u-1", "lamp-0")
    answer = old.prepare(ref)
    assert new.prepare(ref) == answer
    assert world.driver.prepared == ["u-1"]
    with pytest.raises(DeviceHeldError):
        new.prepare(world.claim("u-2", "lamp-0"))
    new.unprepare(ref)
    assert world.is_clean()
    old.unprepare(ref)
    assert len(old.prepare(ref)) == 1
    assert world.driver.prepared == ["u-1", "u-1"]


class Stuck(LampDriver):
    """Cannot put a lamp out."""

    def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
        raise OSError(16, "switch is stuck")


def test_a_claim_that_another_process_prepared_again_is_left_alone(
    world: World,
) -> None:
    """Its pod runs: the first process must answer for it, and neither undo it nor set it up again."""
    old, new = world.preparer(Stuck(world.lamps), shared=True), world.preparer(shared=True)
    ref = world.claim("u-1", "lamp-0")
    old.prepare(ref)
    with pytest.raises(HookError, match="switch is stuck"):
        old.unprepare(ref)
    answer = new.prepare(ref)
    fetched = len(world.fetched)
    assert old.prepare(ref) == answer
    assert len(world.fetched) == fetched
    assert world.shining() == {"lamp-0": "u-1"}


class NoUndo:
    """A driver whose claims have no state before they are complete."""

    dra_driver_info, dra_discover = LampDriver.dra_driver_info, LampDriver.dra_discover

    def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
        yield from (device.prepared(ContainerEdits(env={"A": "1"})) for device in claim.devices)


def test_metadata_that_one_process_has_just_written_is_not_swept_by_another(world: World) -> None:
    """The kubelet would be told of a mount whose file is gone."""
    made = []

    def start_another(step: str, path: Path) -> None:
        if step == "create" and path.parent == world.cdi:
            made.append(world.preparer(NoUndo(), shared=True, metadata=True))

    old = world.preparer(NoUndo(), shared=True, metadata=True, files=Files(start_another))
    old.prepare(world.claim("u-1", "lamp-0"))
    (spec,) = world.specs().values()
    mounts = [mount for device in spec["devices"] for mount in device["containerEdits"].get("mounts", ())]
    assert [Path(mount["hostPath"]).is_file() for mount in mounts] == [True]
    assert made
