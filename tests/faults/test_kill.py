"""A driver's process is killed at random moments, again and again: nothing is lost, nothing is left behind."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random
from threading import Event
from time import monotonic, sleep

import grpc
import pytest

from dra_sdk.node.prepare.checkpoint import decode
from dra_sdk.testing.waiting import LONG
from dra_sdk.tools.simulator import EmbeddedCluster
from dra_sdk.tools.simulator.kubelet.calls import KubeletCalls
from tests.counts import count
from tests.faults.lamps import WatchedLamps
from tests.faults.outside import Outside

SITES = 2
KILLS = count(8, 15)  # at each site
LAMPS = ("lamp-0", "lamp-1", "lamp-2")
PACE = 0.003


class SlowDriver(WatchedLamps):
    """Takes its time at each step, so that a kill hits the hook as often as the files around it."""

    def __init__(self) -> None:
        super().__init__()
        self.step = lambda _name: sleep(PACE)


class Victim(Outside):
    """A driver that is killed while it answers a call."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path, seed: int) -> None:
        super().__init__(cluster, folder, "tests.faults.test_kill:SlowDriver")
        self.random = Random(seed)
        self.ref = self.claim(*LAMPS)
        self.found: Counter[str] = Counter()

    def live_and_die(self, call: str) -> None:
        """Start, clear up what the last life left, then be killed in the middle of `call`."""
        self.start()
        try:
            with self.calls() as calls:
                self.wait_ready(calls)
                seconds = self._whole_life(calls)
                if call == "unprepare":
                    self._call("prepare", calls)
                with ThreadPoolExecutor(1) as pool:
                    dying = pool.submit(self._call, call, calls)
                    sleep(self.random.uniform(0, 1.1) * seconds[call])
                    self.kill()
                    dying.exception()
        finally:
            self.kill()
        self.found[f"{call}: {self._what_is_left()}"] += 1

    def end(self) -> None:
        """The last life, which nobody takes."""
        self.start()
        try:
            with self.calls() as calls:
                self.wait_ready(calls)
                self._whole_life(calls)
            assert self.terminate() == 0
        finally:
            self.kill()

    def wait_ready(self, calls: KubeletCalls) -> None:
        """Until somebody listens; fails where the process has ended."""
        ready = Event()
        grpc.channel_ready_future(calls.channel).add_done_callback(lambda _: ready.set())
        self.wait(ready.is_set)

    def _whole_life(self, calls: KubeletCalls) -> dict[str, float]:
        """What the kubelet does after a restart; how long each call takes once there is nothing to clear up."""
        self._call("prepare", calls)
        self.assert_held(self.ref)
        seconds = {}
        for call in ("unprepare", "prepare", "unprepare"):
            begun = monotonic()
            self._call(call, calls)
            seconds[call] = monotonic() - begun
        self.assert_held()
        return seconds

    def _call(self, call: str, calls: KubeletCalls) -> None:
        if call == "prepare":
            error, devices = calls.prepare([self.ref], timeout=LONG).claims[self.ref.uid]
            assert [device.device for device in devices] == list(LAMPS), error
        else:
            error, _ = calls.unprepare([self.ref], timeout=LONG).claims[self.ref.uid]
            assert not error

    def _what_is_left(self) -> str:
        states = [decode(path.read_bytes(), str(path)).phase.value for path in self.states.glob("[!.]*.json")]
        return f"{len(self.shining())} on, {', '.join(states) or 'no state'}"


def kill_again_and_again(folder: Path, seed: int) -> Counter[str]:
    folder.mkdir()
    with EmbeddedCluster() as cluster:
        victim = Victim(cluster, folder, seed)
        for number in range(KILLS):
            victim.live_and_die("unprepare" if number % 3 == 0 else "prepare")
        victim.end()
        return victim.found


@pytest.mark.timeout(300)
def test_killed_at_random_moments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(SITES))
        sites = [pool.submit(kill_again_and_again, tmp_path / str(seed), seed) for seed in range(SITES)]
        found: Counter[str] = sum((each.result() for each in sites), Counter())
    with capsys.disabled():
        print(f"\n{found.total()} kills: {dict(sorted(found.items()))}")
    assert found.total() == SITES * KILLS
    assert any("PrepareStarted" in each for each in found), "none of the kills hit anything"
