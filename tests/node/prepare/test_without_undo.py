"""A driver without `dra_unprepare` has nothing to undo: fewer writes, the same promises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_sdk import Claim, ContainerEdits, Device, DriverInfo, Node, PreparedDevice
from dra_sdk.errors import ClaimError, HookError, StateError
from dra_sdk.loader import Driver
from dra_sdk.model.claim import ClaimRef
from dra_sdk.node.files import Files
from dra_sdk.node.prepare.cdi_specs import CdiSpecs
from dra_sdk.node.prepare.checkpoint_store import CheckpointStore
from dra_sdk.node.prepare.dependencies import Dependencies
from dra_sdk.node.prepare.engine import Preparer
from tests.lamps import NAME
from tests.node.prepare.world import POOL, World


class PlainDriver:
    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo(NAME)

    def dra_discover(self, node: Node) -> list[Device]:
        return []

    def dra_prepare(self, claim: Claim[None]) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            yield device.prepared(ContainerEdits(env={"LAMP": device.name}), data={"lamp": device.name})


class Disk:
    """Counts the steps; the one that is `bad` fails."""

    def __init__(self, bad: int = 0) -> None:
        self.steps: list[str] = []
        self.bad = bad

    def __call__(self, step: str, path: Path) -> None:
        self.steps.append(step)
        if len(self.steps) == self.bad:
            raise OSError(28, "No space left on device")


def preparer(world: World, disk: Disk) -> Preparer:
    files = Files(disk)
    store = CheckpointStore(world.root / "claims", files, durable=False)
    dependencies = Dependencies(
        store=store,
        cdi=CdiSpecs(world.cdi, f"{NAME}/device", NAME, files),
        fetch=world.fetch,
        fetch_pod=world.fetch_pod,
        find_device=world.find_device,
        boot_id="boot",
    )
    made = Preparer(Driver.of(PlainDriver()), Node(POOL), dependencies)
    made.recover()
    disk.steps.clear()
    return made


def test_state_is_written_once(tmp_path: Path) -> None:
    world, disk = World(tmp_path), Disk()
    ref = world.claim("u-1", "lamp-0", "lamp-1")
    held = preparer(world, disk)
    held.prepare(ref)
    written = ["create", "write", "rename"]
    assert disk.steps == [*written, *written], "the CDI spec, then the state"
    (claim,) = held.held()
    assert claim.complete
    assert [device.data for device in claim.devices] == [{"lamp": "lamp-0"}, {"lamp": "lamp-1"}]


@pytest.mark.parametrize("bad", range(1, 7))
def test_a_disk_that_fails_at_any_step_leaves_nothing(tmp_path: Path, bad: int) -> None:
    world = World(tmp_path)
    ref: ClaimRef = world.claim("u-1", "lamp-0", "lamp-1")
    with pytest.raises((StateError, ClaimError), match="No space left"):
        preparer(world, Disk(bad)).prepare(ref)
    again = preparer(world, Disk())
    assert again.held() == []
    assert not list(world.cdi.iterdir())
    assert len(again.prepare(ref)) == 2
    again.unprepare(ref)
    assert not list(world.cdi.iterdir())


def test_a_journal_that_nothing_would_undo_is_an_error_of_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(_self: PlainDriver, claim: Claim[None]) -> Iterator[PreparedDevice]:
        note(claim)
        yield from (device.prepared() for device in claim.devices)

    def note(asked: Claim[None]) -> None:
        asked.journal({"before": "off"})

    monkeypatch.setattr(PlainDriver, "dra_prepare", prepare)
    world = World(tmp_path)
    held = preparer(world, Disk())
    with pytest.raises(HookError, match=r"calls claim\.journal, but the driver has no dra_unprepare"):
        held.prepare(world.claim("u-1", "lamp-0"))
    assert held.held() == []
