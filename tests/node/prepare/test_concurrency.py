"""Many calls at once: what waits for what, what does not, and what is left afterwards."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import pytest

from dra_sdk import Claim, HeldClaim, Node, PreparedDevice
from dra_sdk.errors import DeviceHeldError, HookError, RetriableError
from dra_sdk.model.claim import ClaimRef, Deadline
from dra_sdk.node.files import claim_lock
from dra_sdk.node.kubelet.draplugin import VERSIONS, plugin_services
from dra_sdk.testing.waiting import wait
from dra_sdk.wire.proto import dra_v1_pb2
from tests.lamps import LampConfig, LampDriver
from tests.node.prepare.world import World

LONG = 50.0  # seconds after which something hangs; nothing waits that long unless it is broken


class Gate(LampDriver):
    """Stops inside prepare until it is opened."""

    def __init__(self, lamps: Path) -> None:
        super().__init__(lamps)
        self.entered, self.open = Event(), Event()
        self.fails = False
        self.lets_pass = ""

    def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
        if claim.uid == self.lets_pass:
            yield from super().dra_prepare(claim)
            return
        self.entered.set()
        assert self.open.wait(LONG)
        if self.fails:
            raise OSError("burnt")
        yield from super().dra_prepare(claim)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads for calls."""
    with ThreadPoolExecutor(32) as made:
        yield made


class Caller:
    """A caller of the driver, who may give up."""

    def __init__(self) -> None:
        self.gone = Event()
        self.deadline = Deadline(is_active=self.is_active)

    def is_active(self) -> bool:
        return not self.gone.is_set()

    def time_remaining(self) -> float | None:
        return None

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()


def waiting(world: World, calls: int) -> Callable[[], bool]:
    """Whether so many calls wait for a lock."""
    return lambda: sum(locks.waiting for locks in world.locks) == calls


def test_one_claim_twice_at_once_runs_the_hook_once(world: World, pool: ThreadPoolExecutor) -> None:
    gate = Gate(world.lamps)
    preparer = world.preparer(gate)
    ref = world.claim("u-1", "lamp-0")
    calls = [pool.submit(preparer.prepare, ref) for _ in range(8)]
    wait(waiting(world, 7))
    gate.open.set()
    answers = [call.result(LONG) for call in calls]
    assert answers == [answers[0]] * 8
    assert gate.prepared == ["u-1"]
    assert world.fetched == ["u-1"]


def test_claims_on_one_device_wait_for_each_other(world: World, pool: ThreadPoolExecutor) -> None:
    inside = 0
    finished: list[str] = []
    refs = [world.claim(f"u-{n}", {"request": "r", "device": "lamp-0", "shareID": f"s-{n}"}) for n in range(8)]

    class Careful(LampDriver):
        def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
            nonlocal inside
            inside += 1
            wait(waiting(world, len(refs) - 1 - len(finished)))
            assert inside == 1
            inside -= 1
            finished.append(claim.uid)
            yield from (device.prepared() for device in claim.devices)

    preparer = world.preparer(Careful(world.lamps))
    for call in [pool.submit(preparer.prepare, ref) for ref in refs]:
        assert len(call.result(LONG)) == 1
    assert sorted(finished) == [ref.uid for ref in refs]


def test_of_two_claims_that_want_one_device_the_second_is_refused(world: World, pool: ThreadPoolExecutor) -> None:
    gate = Gate(world.lamps)
    preparer = world.preparer(gate)
    calls = [pool.submit(preparer.prepare, world.claim(f"u-{n}", "lamp-0", f"lamp-{n + 1}")) for n in range(6)]
    gate.open.set()
    errors = [call.exception(LONG) for call in calls]
    assert errors.count(None) == 1
    assert sum(isinstance(error, DeviceHeldError) for error in errors) == 5
    assert len(world.states()) == 1


def test_claims_on_different_devices_run_together(world: World, pool: ThreadPoolExecutor) -> None:
    meeting = Barrier(6, timeout=LONG)

    class Meet(LampDriver):
        def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
            meeting.wait()  # breaks unless all six are here
            yield from super().dra_prepare(claim)

    preparer = world.preparer(Meet(world.lamps))
    calls = [pool.submit(preparer.prepare, world.claim(f"u-{n}", f"lamp-{n}")) for n in range(6)]
    for call in calls:
        assert len(call.result(LONG)) == 1


def test_a_claim_that_hangs_stops_no_other(world: World, pool: ThreadPoolExecutor) -> None:
    gate = Gate(world.lamps)
    gate.lets_pass = "u-2"
    preparer = world.preparer(gate)
    hanging = pool.submit(preparer.prepare, world.claim("u-1", "lamp-0"))
    assert gate.entered.wait(LONG)
    other = world.claim("u-2", "lamp-1")
    assert len(pool.submit(preparer.prepare, other).result(LONG)) == 1
    pool.submit(preparer.unprepare, other).result(LONG)
    pool.submit(preparer.unprepare, world.claim("u-3", "lamp-2")).result(LONG)
    assert not hanging.done()
    gate.open.set()
    hanging.result(LONG)


def test_an_unprepare_waits_for_the_prepare_and_undoes_it(world: World, pool: ThreadPoolExecutor) -> None:
    gate = Gate(world.lamps)
    preparer = world.preparer(gate)
    ref = world.claim("u-1", "lamp-0")
    prepare = pool.submit(preparer.prepare, ref)
    assert gate.entered.wait(LONG)
    unprepare = pool.submit(preparer.unprepare, ref)
    wait(waiting(world, 1))
    assert not unprepare.done()
    gate.open.set()
    assert len(prepare.result(LONG)) == 1
    unprepare.result(LONG)
    assert world.is_clean()


def test_a_prepare_that_nobody_waits_for_any_more_does_not_begin(world: World, pool: ThreadPoolExecutor) -> None:
    """The kubelet gave it up and unprepared the claim; nobody would ever unprepare what it prepares."""
    gate, caller = Gate(world.lamps), Caller()
    gate.fails = True
    preparer = world.preparer(gate)
    ref = world.claim("u-1", "lamp-0")
    first = pool.submit(preparer.prepare, ref)
    assert gate.entered.wait(LONG)
    late = pool.submit(preparer.prepare, ref, caller.deadline)
    wait(waiting(world, 1))
    caller.gone.set()
    unprepare = pool.submit(preparer.unprepare, ref)
    wait(waiting(world, 2))
    gate.open.set()
    assert isinstance(first.exception(LONG), HookError)
    assert isinstance(late.exception(LONG), RetriableError)
    unprepare.result(LONG)
    assert world.is_clean()
    gate.fails = False
    assert len(preparer.prepare(ref)) == 1


@pytest.mark.parametrize("moment", ["fetch", "device lock"])
def test_a_prepare_whose_caller_leaves_while_it_waits_does_not_begin(
    world: World, pool: ThreadPoolExecutor, moment: str
) -> None:
    caller, ref = Caller(), world.claim("u-1", "lamp-0")

    def fetch(found: ClaimRef, deadline: Deadline) -> dict[str, Any]:
        assert deadline is caller.deadline
        if moment == "fetch":
            caller.gone.set()
        return World.fetch(world, found)

    world.fetch = fetch  # type: ignore[method-assign]
    preparer = world.preparer()
    with world.locks[-1].hold(["device/node-a/lamp-0"] if moment == "device lock" else []):
        late = pool.submit(preparer.prepare, ref, caller.deadline)
        if moment == "device lock":
            wait(waiting(world, 1))
            caller.gone.set()
    assert isinstance(late.exception(LONG), RetriableError)
    assert world.is_clean()
    assert world.driver.prepared == []


def test_the_claims_of_a_request_that_nobody_waits_for_are_not_prepared(world: World, pool: ThreadPoolExecutor) -> None:
    """The kubelet waits 45 s for a request with all claims of a pod, however long the first of them takes."""
    gate, caller = Gate(world.lamps), Caller()
    gate.lets_pass = "u-2"
    preparer = world.preparer(gate)
    refs = [world.claim("u-1", "lamp-0"), world.claim("u-2", "lamp-1")]
    service = plugin_services(preparer.prepare, preparer.unprepare)[VERSIONS["v1.DRAPlugin"][0]]
    claims = [dra_v1_pb2.Claim(namespace=ref.namespace, uid=ref.uid, name=ref.name) for ref in refs]
    request = dra_v1_pb2.NodePrepareResourcesRequest(claims=claims)
    call = pool.submit(service["NodePrepareResources"].unary_unary, request, caller)
    assert gate.entered.wait(LONG)
    caller.gone.set()
    preparer.unprepare(refs[1])
    gate.open.set()
    answer = call.result(LONG).claims
    assert len(answer["u-1"].devices) == 1
    assert "the kubelet no longer waits for this call" in answer["u-2"].error
    assert world.shining() == {"lamp-0": "u-1"}
    assert len(preparer.prepare(refs[1])) == 1


@pytest.mark.parametrize("shared", [False, True])
def test_an_unprepare_that_nobody_waits_for_any_more_does_not_begin(
    world: World, pool: ThreadPoolExecutor, shared: bool
) -> None:
    """Another pod was given the claim since; of two instances in a rolling update either can be called."""
    ref, caller = world.claim("u-1", "lamp-0"), Caller()
    old, new = [world.preparer(shared=True) for _ in range(2)] if shared else [world.preparer()] * 2
    answer = old.prepare(ref)
    with world.locks[0].hold([claim_lock(ref.uid)]):
        late = pool.submit(old.unprepare, ref, caller.deadline)
        wait(waiting(world, 1))
        again = pool.submit(new.prepare, ref)
        caller.gone.set()
    assert isinstance(late.exception(LONG), RetriableError)
    assert again.result(LONG) == answer
    assert world.shining() == {"lamp-0": "u-1"}
    assert len(world.specs()) == 1
    old.unprepare(ref)
    assert world.is_clean()


def test_no_prepare_begins_after_another_instance_unprepared_its_claim(world: World, pool: ThreadPoolExecutor) -> None:
    old, new = [world.preparer(shared=True) for _ in range(2)]
    ref, caller = world.claim("u-1", "lamp-0"), Caller()
    with world.locks[0].hold([claim_lock(ref.uid)]):
        late = pool.submit(old.prepare, ref, caller.deadline)
        wait(waiting(world, 1))
        caller.gone.set()
    new.unprepare(ref)
    assert isinstance(late.exception(LONG), RetriableError)
    assert world.is_clean()


def test_the_hook_knows_until_when_its_caller_waits(world: World) -> None:
    seen: list[float] = []

    class Curious(LampDriver):
        def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
            seen.append(claim.deadline.remaining())
            yield from super().dra_prepare(claim)

        def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
            seen.append(claim.deadline.remaining())
            super().dra_unprepare(claim, node)

    preparer = world.preparer(Curious(world.lamps))
    ref = world.claim("u-1", "lamp-0")
    preparer.prepare(ref, Deadline(lambda: 30.0))
    preparer.unprepare(ref, Deadline(lambda: 20.0))
    assert seen == [30.0, 20.0]


def test_a_thousand_calls_at_once_leave_what_the_last_ones_left(world: World, pool: ThreadPoolExecutor) -> None:
    """Thirty claims fight for eight lamps; the driver itself refuses to put on a lamp that is on."""
    chance = random.Random(7)
    preparer = world.preparer()
    refs = [world.claim(f"u-{n}", *(f"lamp-{lamp}" for lamp in chance.sample(range(8), 2))) for n in range(30)]
    calls: list[Future[object]] = []
    for _ in range(1000):
        action = chance.choice([preparer.prepare, preparer.prepare, preparer.unprepare])
        calls.append(pool.submit(action, chance.choice(refs)))
    errors = Counter(type(error).__name__ for call in calls if (error := call.exception(60.0)))
    assert set(errors) <= {"DeviceHeldError"}
    assert sum(errors.values()) < 1000
    held = {claim.uid: {device.name for device in claim.devices} for claim in preparer.held()}
    assert world.shining() == {lamp: uid for uid, lamps in held.items() for lamp in lamps}
    assert world.states() == sorted(f"{uid}.json" for uid in held)
    assert len(world.specs()) == len(held)
    assert world.locks[0].held == frozenset()
    for ref in refs:
        preparer.unprepare(ref)
    assert world.is_clean()
