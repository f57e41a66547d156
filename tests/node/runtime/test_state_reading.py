"""A driver with many state files: it serves what it can before it has read them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from threading import Event

import pytest

from dra_sdk.errors import RetriableError
from dra_sdk.loader import Driver
from dra_sdk.node.prepare import checkpoint_store
from dra_sdk.node.prepare.checkpoint import decode, encode
from dra_sdk.node.runtime import state_reading
from dra_sdk.node.runtime.events import EventWriter, NodeEvent
from dra_sdk.node.runtime.process import DriverProcess
from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.tools.simulator import EmbeddedCluster
from tests.embedded import settings_for
from tests.lamps import NAME, LampDriver
from tests.node.prepare.world import World
from tests.node.runtime.conftest import ANY_PORT, Web

HELD = 8


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def after(files: int) -> Callable[[], bool]:
    """Return when a reader ends: as soon as it has read so many files."""
    calls = count()
    return lambda: next(calls) == files


@pytest.mark.parametrize("shared", [False, True])
def test_while_files_are_unread_known_claims_are_served_and_new_ones_wait(world: World, shared: bool) -> None:
    refs = [world.claim(f"u-{number}", f"lamp-{number}") for number in range(HELD)]
    first = world.preparer(shared=shared)
    answers = [first.prepare(ref) for ref in refs]
    second = world.preparer(shared=shared, ended=after(2))
    with pytest.raises(RetriableError, match=f"^2 of {HELD} state files are read; a new claim waits for all of them$"):
        second.prepare(world.claim("u-new", "lamp-20"))
    world.fetched.clear()
    assert [second.prepare(ref) for ref in refs[:4]] == answers[:4]
    second.unprepare(refs[6])
    assert world.fetched == []
    assert sorted(world.shining()) == [f"lamp-{number}" for number in range(HELD) if number != 6]
    with pytest.raises(RetriableError, match=f"^[4-7] of {HELD - 1} state files are read"):
        second.check()
    assert second.read_state()
    second.check()
    assert {claim.uid for claim in second.held()} == {ref.uid for ref in refs if ref != refs[6]}
    second.prepare(world.claim("u-new", "lamp-6"))


def test_a_claim_that_an_earlier_attempt_left_waits_for_all_files(world: World) -> None:
    """Its own file says that it was begun, so it goes on, once it is known that no other claim has its device."""
    ref, other = world.claim("u-0", "lamp-0"), world.claim("u-1", "lamp-1")
    first = world.preparer()
    for claim in (ref, other):
        first.prepare(claim)
    path = world.claims / "u-0.json"
    path.write_bytes(encode(decode(path.read_bytes(), str(path)).undoing()))
    world.preparer(ended=lambda: True).prepare(ref)
    assert world.shining() == {"lamp-0": "u-0", "lamp-1": "u-1"}


def test_who_needs_all_claims_waits_for_all(world: World) -> None:
    refs = [world.claim(f"u-{number}", f"lamp-{number}") for number in range(HELD)]
    first = world.preparer()
    for ref in refs:
        first.prepare(ref)
    assert len(world.preparer(ended=lambda: True).held()) == HELD


def test_a_spec_that_is_lost_comes_back_when_all_files_are_read(world: World) -> None:
    world.preparer().prepare(world.claim("u-0", "lamp-0"))
    (spec,) = world.cdi.iterdir()
    spec.unlink()
    preparer = world.preparer(ended=lambda: True)
    assert not spec.exists()
    preparer.read_state()
    assert spec.exists()


def test_above_the_limit_no_new_claim_is_prepared_and_held_ones_are_served(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = [world.claim(f"u-{number}", f"lamp-{number}") for number in range(3)]
    preparer = world.preparer()
    for ref in refs:
        preparer.prepare(ref)
    monkeypatch.setattr(checkpoint_store, "STATE_FILES", 3)
    assert len(preparer.prepare(world.claim("u-at-the-limit", "lamp-9"))) == 1
    with pytest.raises(RetriableError) as refused:
        preparer.prepare(world.claim("u-new", "lamp-10"))
    assert str(refused.value) == (
        f"{world.claims} has 4 state files, and above 3 no further claim is prepared: "
        f"look with `dra-sdk state {world.root.name}` for claims that nobody uses"
    )
    assert len(preparer.prepare(refs[0])) == 1
    preparer.unprepare(refs[1])
    preparer.prepare(world.claim("u-new", "lamp-10"))


def test_files_that_come_and_go_while_others_are_unread(world: World) -> None:
    """Another process of a rolling update unprepares one claim and prepares another."""
    refs = [world.claim(f"u-{number}", f"lamp-{number}") for number in range(4)]
    old = world.preparer(shared=True)
    for ref in refs:
        old.prepare(ref)
    new = world.preparer(shared=True, ended=after(1))
    for ref in refs:
        old.unprepare(ref)
    late = world.claim("u-late", "lamp-3")
    old.prepare(late)
    assert [claim.uid for claim in new.held()] == ["u-late"]
    new.unprepare(late)
    assert world.is_clean()


@pytest.mark.parametrize("is_many", [False, True])
def test_a_process_serves_before_all_files_are_read(web: Web, monkeypatch: pytest.MonkeyPatch, is_many: bool) -> None:
    """Until then it is not ready; afterwards it is, unless there are more files than it may have."""
    events: list[NodeEvent] = []
    monkeypatch.setattr(EventWriter, "put", lambda _self, event: events.append(event))
    monkeypatch.setattr(state_reading, "READ_SECONDS", -1)
    may_read = Event()
    read_checkpoint = checkpoint_store.read_checkpoint

    def slow(path: Path) -> object:
        may_read.wait(LONG)
        return read_checkpoint(path)

    with EmbeddedCluster() as cluster:
        settings = settings_for(cluster, http_address=ANY_PORT)
        with DriverProcess(Driver.of(LampDriver(count=3)), settings):
            cluster.kubelet.wait_for_driver(NAME)
            cluster.wait_slices(NAME)
            cluster.create_class("lamp")
            cluster.create_claim("one", {"lamp": "lamp"})
            cluster.create_pod("one-pod", ["one"])
            cluster.schedule()
            cluster.run_pod("one-pod")
        monkeypatch.setattr(checkpoint_store, "read_checkpoint", slow)
        monkeypatch.setattr(checkpoint_store, "STATE_FILES", 0 if is_many else 1)
        with DriverProcess(Driver.of(LampDriver(count=3)), settings) as process:
            cluster.kubelet.wait_for_driver(NAME)
            status, said = web.read("/readyz", 1)
            sentence = (
                "has 1 state files, and above 0 no further claim is prepared" if is_many else "0 of 1 state files"
            )
            may_read.set()
            assert (status, sentence in said) == (503, True), said
            wait(lambda: process.publisher.slices.synced)
            wait(lambda: web.read("/readyz", 1)[0] == (503 if is_many else 200))
            noted = [(event.reason, sentence in event.note) for event in events]
            assert noted == ([("TooManyStateFiles", True)] if is_many else [])
            cluster.stop_pod("one-pod")
