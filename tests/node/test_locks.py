"""Named locks: one holder among threads and among processes, no deadlock, nothing left behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from threading import Barrier, Event, Thread

import pytest

from dra_sdk.node.locks import NamedLocks
from dra_sdk.testing.waiting import LONG
from dra_sdk.testing.waiting import wait as wait_for
from tests.open_files import times_open


@pytest.fixture(params=["threads", "processes"])
def locks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NamedLocks]:
    """Locks of either kind."""
    made = NamedLocks(tmp_path / "locks" if request.param == "processes" else None)
    yield made
    made.close()


def test_one_holder_at_a_time(locks: NamedLocks) -> None:
    inside = 0
    most = 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(50):
            with locks.hold(["claim/a"]):
                inside += 1
                os.sched_yield()  # lets another thread in, were it not for the lock
                most = max(most, inside)
                inside -= 1

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work) for _ in range(8)]:
            done.result()
    assert most == 1
    assert inside == 0


def test_different_names_are_held_together(locks: NamedLocks) -> None:
    meeting = Barrier(2, timeout=LONG)

    def work(name: str) -> None:
        with locks.hold([name]):
            meeting.wait()  # breaks unless both hold

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(work, name) for name in ("device/a", "device/b")]:
            done.result()


def test_overlapping_sets_do_not_deadlock(locks: NamedLocks) -> None:
    names = [f"device/{index}" for index in range(5)]

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(30):
            with locks.hold(chance.sample(names, 3)):
                pass

    with ThreadPoolExecutor(12) as pool:
        done, waiting = wait([pool.submit(work, seed) for seed in range(12)], timeout=LONG)
    assert not waiting
    assert [each.exception() for each in done] == [None] * 12


def test_the_same_name_twice_in_a_set_is_one_lock(locks: NamedLocks) -> None:
    inside = Event()

    def work() -> None:
        with locks.hold(["device/a"]):
            inside.set()

    with ThreadPoolExecutor(1) as pool:
        with locks.hold(["device/a", "device/a"]):
            other = pool.submit(work)
            assert not inside.wait(0.01)
        other.result(LONG)
    assert inside.is_set()


def test_a_raise_inside_lets_go(locks: NamedLocks) -> None:
    with pytest.raises(RuntimeError, match="inside"), locks.hold(["a", "b"]):
        raise RuntimeError("inside")
    with locks.hold(["a", "b"]):
        pass


def test_nothing_is_kept_of_names_that_nobody_holds(locks: NamedLocks) -> None:
    for index in range(200):
        with locks.hold([f"claim/{index}", "device/a"]):
            pass
    assert locks.held == set()


def test_who_waits_gets_the_lock_when_the_holder_ends(locks: NamedLocks) -> None:
    order: list[str] = []
    held, go = Event(), Event()

    def first() -> None:
        with locks.hold(["a"]):
            held.set()
            go.wait(LONG)
            order.append("first")

    def second() -> None:
        held.wait(LONG)
        with locks.hold(["a"]):
            order.append("second")

    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(work) for work in (first, second)]
        held.wait(LONG)
        go.set()
        for job in jobs:
            job.result()
    assert order == ["first", "second"]
    assert locks.held == set()


def queued(locks: NamedLocks, *sets: list[str], order: list[str]) -> list[Thread]:
    """Starts a thread for each set of names, one after the other waits for it; each writes its names to `order`."""

    def work(names: list[str]) -> None:
        with locks.hold(names):
            order.append("+".join(names))

    started: list[Thread] = []
    for names in sets:
        started.append(Thread(target=work, args=(names,)))
        started[-1].start()
        wait_for(lambda: locks.waiting == len(started))
    return started


def join(threads: list[Thread]) -> None:
    for each in threads:
        each.join(LONG)
        assert not each.is_alive()


def test_the_first_is_served_first_and_the_holder_again_after_all_others(locks: NamedLocks) -> None:
    order: list[str] = []
    with locks.hold(["a"]):
        threads = queued(locks, ["a"], ["a", "1"], ["a", "2"], order=order)
    with locks.hold(["a"]):  # it has just had the lock, and runs, while those who wait have to wake up first
        order.append("again")
    join(threads)
    assert order == ["a", "a+1", "a+2", "again"]


def test_who_waits_for_two_names_is_not_passed_by_who_wants_one(locks: NamedLocks) -> None:
    order: list[str] = []
    with locks.hold(["a"]):
        threads = queued(locks, ["a", "b"], ["b"], order=order)
        with locks.try_hold("b") as held:
            assert not held, "nobody holds it, but two threads wait for it"
        with locks.hold(["c"]):
            assert order == []
    join(threads)
    assert order == ["a+b", "b"]


@pytest.mark.parametrize("given", [False, True])
def test_an_interrupted_wait_lets_the_next_one_in(
    locks: NamedLocks, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    """Ctrl-C comes while the main thread waits, or when it was just given the names."""
    order: list[str] = []
    held, go = Event(), Event()

    def hold() -> None:
        with locks.hold(["a"]):
            held.set()
            go.wait(LONG)

    def work() -> None:
        with locks.hold(["b"]):
            order.append("behind")

    holder, behind = Thread(target=hold), Thread(target=work)

    def interrupted(_: Event, _timeout: float | None = None) -> bool:
        monkeypatch.undo()
        behind.start()
        wait_for(lambda: locks.waiting == 2)
        if given:
            go.set()
            wait_for(lambda: locks.waiting == 1)
        raise KeyboardInterrupt

    holder.start()
    held.wait(LONG)
    monkeypatch.setattr(Event, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt), locks.hold(["a", "b"]):
        pass
    join([behind])
    assert order == ["behind"]
    go.set()
    join([holder])
    assert locks.held == set()


COUNTING = """
import sys
from pathlib import Path
from dra_sdk.node.locks import NamedLocks
locks, counter = NamedLocks(Path(sys.argv[1])), Path(sys.argv[2])
for _ in range(60):
    with locks.hold(["claim/a", "device/" + sys.argv[3]]):
        counter.write_text(str(int(counter.read_text()) + 1))
"""
TAKING = """
import sys
from pathlib import Path
from dra_sdk.node.locks import NamedLocks
with NamedLocks(Path(sys.argv[1])).hold(["claim/a"]):
    Path(sys.argv[2]).write_text("taken")
"""
HOLDING = """
import sys
from pathlib import Path
from dra_sdk.node.locks import NamedLocks
with NamedLocks(Path(sys.argv[1])).hold(["claim/a"]):
    print("held", flush=True)
    sys.stdin.read()
"""
LETTING_GO = """
import sys
from pathlib import Path
from dra_sdk.node.locks import NamedLocks
locks = NamedLocks(Path(sys.argv[1]))
with locks.hold(["claim/a"]):
    pass
print("released", flush=True)
sys.stdin.read()
"""

Spawn = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def spawn(request: pytest.FixtureRequest) -> Spawn:
    """Starts a Python child that ends with the test."""

    def start(code: str, *arguments: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

        def end() -> None:
            child.kill()
            child.communicate()

        request.addfinalizer(end)
        return child

    return start


def test_processes_exclude_each_other(tmp_path: Path, spawn: Spawn) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    children = [spawn(COUNTING, str(tmp_path / "locks"), str(counter), str(index)) for index in range(3)]
    assert [child.wait(LONG) for child in children] == [0, 0, 0]
    assert counter.read_text() == "180"


def test_a_process_that_runs_does_not_pass_one_that_waits(tmp_path: Path, spawn: Spawn) -> None:
    """The other process waits, and has no CPU when the lock is free."""
    path, taken = tmp_path / "locks", tmp_path / "taken"
    locks = NamedLocks(path)
    with locks.hold(["claim/a"]):
        child = spawn(TAKING, str(path), str(taken))
        waits = f":{path.stat().st_ino} "
        wait_for(lambda: any("->" in each and waits in each for each in Path("/proc/locks").read_text().splitlines()))
        child.send_signal(signal.SIGSTOP)
        wait_for(lambda: "\nState:\tT" in Path(f"/proc/{child.pid}/status").read_text())

    def take() -> bool:
        with locks.hold(["claim/a"]):
            return taken.exists()

    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(take)
        wait([second], timeout=0.5)
        child.send_signal(signal.SIGCONT)
        assert second.result(timeout=LONG), "a process that came later had the lock before it"
    locks.close()


def test_a_killed_holder_lets_go(tmp_path: Path, spawn: Spawn) -> None:
    child = spawn(HOLDING, str(tmp_path / "locks"))
    assert child.stdout
    assert child.stdout.readline() == "held\n"
    locks = NamedLocks(tmp_path / "locks")
    with locks.hold(["claim/b"]):
        pass
    with ThreadPoolExecutor(1) as pool:

        def take() -> None:
            with locks.hold(["claim/a"]):
                pass

        waiting = pool.submit(take)
        assert not wait([waiting], timeout=0.2).done, "held by the other process, and yet taken"
        child.kill()
        waiting.result(timeout=LONG)
    locks.close()
    assert (tmp_path / "locks").stat().st_size == 0


def test_a_holder_that_lives_on_lets_go(tmp_path: Path, spawn: Spawn) -> None:
    child = spawn(LETTING_GO, str(tmp_path / "locks"))
    assert child.stdout
    assert child.stdout.readline() == "released\n"
    locks = NamedLocks(tmp_path / "locks")
    with ThreadPoolExecutor(1) as pool:

        def take() -> bool:
            with locks.hold(["claim/a", "claim/b"]):
                return child.poll() is None

        taken = pool.submit(take)
        assert wait([taken], timeout=LONG).done, "the other process ended its block, and yet holds the lock"
        assert taken.result()
        child.kill()
    locks.close()


def test_closing_closes_the_file_and_twice_is_harmless(tmp_path: Path) -> None:
    path = tmp_path / "locks"
    locks = NamedLocks(path)
    assert times_open(path) == 1
    locks.close()
    locks.close()
    assert times_open(path) == 0
