"""Kills processes of a driver with SIGKILL at random moments, and sees after each what the next start makes of it.

Run as a program: `kills.py DIRECTORY SEED KILLS KIND…`. One interpreter without threads forks every process, which
takes milliseconds instead of a start. Prints one line of JSON: what was found, by kind.

A kind is a driver with or without undo, in one process or in two at once. A process prepares and unprepares claims of
its own as fast as it can, and two processes fight for the same lamps. Before each call it notes in shared memory that
the claim is unclear, and after it what the kubelet was told. When it was killed, another process starts, and then

- what was held is held, whole, and answered as before: none is lost;
- no lamp shines for two, and no hook finds a lamp on: none is doubled;
- what was given back left nothing, and what is unclear leaves nothing once it is unprepared.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import signal
import sys
import traceback
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from time import sleep
from typing import Any, Final

from dra_sdk.errors import DeviceHeldError
from dra_sdk.model.claim import ClaimRef
from dra_sdk.node.prepare.engine import Preparer
from tests.lamps import LampDriver
from tests.node.prepare.crash import Plain
from tests.node.prepare.world import World

KINDS: Final = (
    "with undo, one process",
    "with undo, two processes",
    "without undo, one process",
    "without undo, two processes",
)
LAMPS: Final = 4
CLAIMS: Final = 3  # of each process
NOTHING, HELD, UNCLEAR = b"\0", b"\1", b"\2"
LONGEST: Final = 0.02  # seconds that a process lives, which is several calls
EVERY: Final = 50  # kills after which everything is given back


class Site:
    """The directory of one kind, and what the kubelet knows of its claims."""

    def __init__(self, root: Path, kind: str, seed: int) -> None:
        self.undo, self.shared = kind.startswith("with undo"), "two" in kind
        self.world = World(root)
        self.random = Random(f"{seed} {kind}")
        self.known = mmap.mmap(-1, 2 * CLAIMS)  # shared with forked processes
        self.refs: list[ClaimRef] = []
        for number in range(2 * CLAIMS):
            lamps = self.random.sample(range(LAMPS), 2)
            self.refs.append(self.world.claim(f"u-{number}", *(f"lamp-{lamp}" for lamp in lamps)))
        self.found: Counter[str] = Counter()
        self.children: dict[int, int] = {}  # the process of each half of the claims

    def preparer(self) -> Preparer:
        """A process's start."""
        plugin = LampDriver(self.world.lamps) if self.undo else Plain(self.world.lamps, lambda _step: None)
        return self.world.preparer(plugin, shared=self.shared, durable=self.undo or self.shared)

    def mine(self, half: int) -> range:
        """The claims of one of two processes; all of them for one that is alone."""
        return range(half * CLAIMS, (half + 1) * CLAIMS) if self.shared else range(2 * CLAIMS)

    def live(self, half: int, seed: float) -> None:
        """Prepare and unprepare, until somebody ends it or the test is gone."""
        chance, parent = Random(seed), os.getppid()
        preparer = self.preparer()
        while os.getppid() == parent:
            number = chance.choice(self.mine(half))
            before = self.known[number : number + 1]
            prepares = chance.random() < 0.6
            if before != HELD or not prepares:  # asked again, a claim that is held stays held
                self.known[number : number + 1] = UNCLEAR
            try:
                (preparer.prepare if prepares else preparer.unprepare)(self.refs[number])
            except DeviceHeldError:
                self.known[number : number + 1] = before if before == NOTHING else UNCLEAR
            else:
                self.known[number : number + 1] = HELD if prepares else NOTHING

    def start(self, half: int) -> None:
        """Fork a process."""
        seed = self.random.random()
        child = os.fork()
        if child == 0:
            try:
                self.live(half, seed)
            except BaseException:  # noqa: BLE001 (whatever it is, the child must not go on as its parent)
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(1)
        self.children[half] = child

    def kill(self, half: int) -> None:
        """Kill -9; AssertionError if the process had ended by itself, which it told on stderr."""
        child = self.children.pop(half)
        os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status == -signal.SIGKILL, f"the process failed: exit status {status}"
        self.found["kills"] += 1

    def check(self, half: int) -> None:
        """A process starts after the killed one and finds its claims as the kubelet knows them."""
        preparer = self.preparer()
        try:
            for number in self.mine(half):
                self._check(preparer, number)
        finally:
            self.world.close()
            self.world.locks.clear()

    def _check(self, preparer: Preparer, number: int) -> None:
        ref, known = self.refs[number], self.known[number : number + 1]
        left = self.left(ref.uid)
        if known == HELD:
            self._check_held(preparer, ref)
        elif known == NOTHING:
            assert not left, f"{ref.uid} was given back, but left {left}"
        else:
            self.found["unclear claims"] += 1
            self.found["unclear claims with something left"] += bool(left)
            if self.random.random() < 0.5:
                with suppress(DeviceHeldError):
                    preparer.prepare(ref)
                    self._check_held(preparer, ref)
            self.give_back(preparer, number)

    def _check_held(self, preparer: Preparer, ref: ClaimRef) -> None:
        devices = [result["device"] for result in self._results(ref)]
        assert {f"{ref.uid}.json", f"{self.world.driver.dra_driver_info().name}_claim-{ref.uid}.json"} <= set(
            self.left(ref.uid)
        ), f"{ref.uid} is lost, of it there is only {self.left(ref.uid)}"
        if self.undo:
            shining = {name: _text(self.world.lamps / name) for name in devices}
            assert set(shining.values()) == {ref.uid}, f"{ref.uid} is held, but the lamps shine for {shining}"
        before = len(self.world.fetched)
        assert [device.name for device in preparer.prepare(ref)] == devices
        assert len(self.world.fetched) == before, f"{ref.uid} was held, but is prepared again"
        self.found["claims held"] += 1

    def give_back(self, preparer: Preparer, number: int) -> None:
        """Unprepare a claim; then nothing is left of it."""
        ref = self.refs[number]
        preparer.unprepare(ref)
        self.known[number : number + 1] = NOTHING
        assert not self.left(ref.uid), f"{ref.uid} was unprepared, but left {self.left(ref.uid)}"

    def left(self, uid: str) -> list[str]:
        """What there is of a claim: its files, temporary ones included, and its lamps."""
        files = [name for folder in (self.world.claims, self.world.cdi) for name in _names(folder)]
        of_it = [name for name in files if name.endswith((f"{uid}.json", f"-{uid}.json"))]
        lamps = [name for name in _names(self.world.lamps) if _text(self.world.lamps / name) == uid]
        return of_it + lamps

    def end(self) -> None:
        """Kill all, start once more and give everything back: the node is as before the first start."""
        for half in list(self.children):
            self.kill(half)
        preparer = self.preparer()
        for number in range(2 * CLAIMS):
            self._check(preparer, number)
            self.give_back(preparer, number)
        assert self.world.is_clean(), (self.world.shining(), self.world.states(), self.world.specs())
        self.preparer()
        assert self.world.is_clean(), "the next start left something"
        self.world.close()
        self.world.locks.clear()

    def run(self, kills: int) -> dict[str, int]:
        """So many kills; what was found."""
        try:
            while self.found["kills"] < kills:
                for half in range(1 + self.shared):
                    if half not in self.children:
                        self.start(half)
                sleep(self.random.uniform(0, LONGEST))
                half = self.random.choice(list(self.children))
                self.kill(half)
                self.check(half)
                if self.found["kills"] % EVERY == 0:
                    self.end()
            self.end()
        finally:
            for child in self.children.values():
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        return dict(self.found)

    def _results(self, ref: ClaimRef) -> Any:
        return self.world.api[ref.uid]["status"]["allocation"]["devices"]["results"]


def _names(folder: Path) -> list[str]:
    with suppress(FileNotFoundError):
        return sorted(os.listdir(folder))
    return []


def _text(path: Path) -> str:
    with suppress(FileNotFoundError):  # another process has just put it out
        return path.read_text()
    return ""


def main(directory: Path, seed: int, kills: int, kinds: list[str]) -> None:
    """So many kills of each kind."""
    gc.freeze()  # so that forks share memory
    found = {kind: Site(directory / kind.replace(" ", "-").replace(",", ""), kind, seed).run(kills) for kind in kinds}
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
