"""The protocol as a model: kubelet, processes, API server, hardware, disk and power do anything in any order.

A hypothesis state machine draws what happens next; after every step the `Specification` must hold, and in the end
everything is given back and nothing may be left.

Run as a program: `python -m tests.faults.protocol SEED STEPS [GUARD]`. What hypothesis draws depends on the modules
that are loaded and on the hashes of texts, so only a fresh interpreter with PYTHONHASHSEED=0 draws the same for a seed.
Prints one line of JSON: how often each thing happened. With the name of a guard that guard is taken out, and the first
thing that is wrong is not made smaller before it is told.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from itertools import count
from pathlib import Path
from typing import Any, Final

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from tests.faults.protocol_calls import TO_THE_END
from tests.faults.protocol_disk import Trouble
from tests.faults.protocol_guards import GUARDS
from tests.faults.protocol_machine import CLAIMS, Machine, happened
from tests.faults.protocol_node import LAMPS, NAMES, Node
from tests.faults.protocol_spec import Specification

THREADS: Final = 16  # more than there are calls at any time
EXAMPLES: Final = 200  # nodes of one run of hypothesis
LENGTH: Final = 60  # steps in the life of one node
ROOT: Final = Path(__file__).parents[2]
EFFECTS: Final = st.one_of(st.just(TO_THE_END), st.integers(0, 12), st.integers(6, 30))
TROUBLES: Final = st.sampled_from(["state", "cdi", "hook", "undo"])
KINDS: Final = st.sampled_from(["prepare", "prepare", "unprepare"])
DAMAGES: Final = st.sampled_from(["empty", "half", "head", "tail", "other devices"])
ANY: Final = st.integers(0, CLAIMS - 1)
DEVICES: Final = st.lists(st.sampled_from(LAMPS), min_size=1, max_size=2, unique=True).map(tuple)


def step(when: Callable[[Protocol], object] = lambda _: True, *, calm: int = 0, **drawn: Any) -> Any:
    """A rule of the machine that is counted, and followed by a look at everything.

    It may be drawn while `when` is true and after so many others that were no mishaps, so that calls get somewhere.
    """

    def decorate(function: Callable[..., None]) -> Any:
        @wraps(function)
        def wrapped(self: Protocol, **values: Any) -> None:
            self.sound = False
            function(self, **values)
            self.look()
            self.calm += 1
            happened["steps"] += 1

        return precondition(lambda self: self.calm >= calm and when(self))(rule(**drawn)(wrapped))

    return decorate


mishap = partial(step, calm=1)
"""What happens to a node by itself."""


class Protocol(Machine):
    """One node from its first boot until everything is given back."""

    @initialize(undo=st.booleans(), shared=st.booleans())
    def boot(self, undo: bool, shared: bool) -> None:
        """A driver of one of four kinds starts, and somebody has made a claim."""
        self.node = Node(Path(self.directory.name) / "node", self.threads, undo=undo, shared=shared)
        self.spec = Specification(self.node)
        self.node.is_held = lambda uid: uid in self.spec.answers
        self._create(NAMES[0], LAMPS[:2])
        self._start()

    # The API server

    @mishap(name=st.sampled_from(NAMES), lamps=DEVICES, fate=st.integers(0, 9))
    def create_or_replace(self, name: str, lamps: tuple[str, ...], fate: int) -> None:
        """A claim appears, in place of another of its name if there is one."""
        self._change()
        self._create(name, lamps, fate)

    @step(lambda self: len(self.node.api.claims) < len(NAMES), lamps=DEVICES, fate=st.integers(0, 7))
    def create(self, lamps: tuple[str, ...], fate: int) -> None:
        """A claim appears that the node can prepare."""
        self._change()
        self._create(next(name for name in NAMES if name not in self.node.api.claims), lamps, fate)

    @mishap(lambda self: self.node.api.claims, which=ANY)
    def delete(self, which: int) -> None:
        self._change()
        claims = self.node.api.claims
        del claims[sorted(claims)[which % len(claims)]]

    @mishap(lambda self: self.node.api.claims, which=ANY, lamps=DEVICES, fate=st.integers(0, 9))
    def reallocate(self, which: int, lamps: tuple[str, ...], fate: int) -> None:
        self._change()
        claims = self.node.api.claims
        name = sorted(claims)[which % len(claims)]
        self.node.api.put(name, self._allocated(claims[name].uid, lamps, fate))

    @mishap(times=st.integers(1, 2))
    def lose_the_api_server(self, times: int) -> None:
        """It does not answer for a while."""
        self._change()
        self.node.api.fails = times

    # The kubelet

    @step(lambda self: self._can_call() and self._current(), which=ANY, process=st.integers(0, 1), effects=EFFECTS)
    def prepare(self, which: int, process: int, effects: int) -> None:
        refs = self._current()
        self._call("prepare", refs[which % len(refs)], process, effects)

    @step(lambda self: self._can_call() and self._current(), which=ANY, process=st.integers(0, 1))
    def prepare_at_once(self, which: int, process: int) -> None:
        refs = self._current()
        self._call("prepare", refs[which % len(refs)], process, TO_THE_END)

    @step(lambda self: self._can_call(), which=ANY, process=st.integers(0, 1), effects=EFFECTS)
    def prepare_what_may_be_gone(self, which: int, process: int, effects: int) -> None:
        self._call("prepare", self.refs[which % len(self.refs)], process, effects)

    @step(lambda self: self._can_call(), which=ANY, process=st.integers(0, 1), effects=EFFECTS)
    def unprepare(self, which: int, process: int, effects: int) -> None:
        self._call("unprepare", self.refs[which % len(self.refs)], process, effects)

    @step(lambda self: self._can_call() and self.spec.answers, which=ANY, process=st.integers(0, 1), effects=EFFECTS)
    def prepare_again(self, which: int, process: int, effects: int) -> None:
        """The kubelet asks for what it has."""
        refs = [ref for ref in self.refs if ref.uid in self.spec.answers]
        self._call("prepare", refs[which % len(refs)], process, effects)

    @step(lambda self: self._under_way(), which=ANY, effects=EFFECTS)
    def go_on(self, which: int, effects: int) -> None:
        """A call that stood still goes on."""
        calls = self._under_way()
        self._advance(*calls[which % len(calls)], effects)

    @step(lambda self: self._waited_for(), which=ANY, times_out=st.booleans())
    def give_up(self, which: int, times_out: bool) -> None:
        """The kubelet cancels a call, or its deadline passes."""
        calls = self._waited_for()
        self._give_up(calls[which % len(calls)], times_out=times_out)

    @step(
        lambda self: self._can_call(),
        kinds=st.tuples(KINDS, KINDS),
        refs=st.tuples(ANY, ANY),
        effects=st.integers(0, 25),
        process=st.integers(0, 1),
    )
    def overtake(self, kinds: tuple[str, str], refs: tuple[int, int], effects: int, process: int) -> None:
        """While a call stands still, another is made and comes first: for the same claim, or for one beside it."""
        known = self._current() or self.refs
        first, second = (known[which % len(known)] for which in refs)
        process_of_first = self._call(kinds[0], first, process, effects)
        slow = self.latest[first.uid]
        self._call(kinds[1], second, 1 - process, TO_THE_END)
        if not slow.ended and process_of_first in self.node.processes:
            self._advance(process_of_first, slow)

    @step(
        lambda self: self._can_call() and self.node.shared,
        kind=KINDS,
        which=ANY,
        effects=st.integers(0, 25),
        starts_first=st.booleans(),
        lost=st.booleans(),
    )
    def start_beside(self, kind: str, which: int, effects: int, starts_first: bool, lost: bool) -> None:
        """In a rolling update a process starts in the middle of a call, or a call is made in the middle of a start."""
        old = next(process for process in self.node.processes if process.ready)
        for process in [each for each in self.node.processes if each is not old]:
            self._kill(process)
        if lost:
            self._change()
            self._lose_specs(sorted(self.node.cdi.glob("[!.]*")))
        known = self._current() or self.refs
        ref = known[which % len(known)]
        if starts_first:
            self._start(effects // 4)
            self._call(kind, ref, 0, TO_THE_END)
        else:
            self._call(kind, ref, 0, effects)
            self._start()
        for process, call in self._under_way()[:]:
            if call in process.calls and (process is not old) == starts_first:
                self._advance(process, call)

    # Processes

    @step(lambda self: len(self.node.processes) < 1 + self.node.shared, effects=EFFECTS)
    def start(self, effects: int) -> None:
        """A process starts; in a rolling update beside another."""
        self._start(effects)

    @step(
        lambda self: self.node.processes and (self.calm >= 3 or self._under_way()),
        process=st.integers(0, 1),
        again=st.booleans(),
    )
    def kill(self, process: int, again: bool) -> None:
        self._kill(self.node.processes[process % len(self.node.processes)])
        if again:
            self._start()

    @step(lambda self: self._under_way(), which=ANY, effects=st.integers(1, 12))
    def kill_a_little_later(self, which: int, effects: int) -> None:
        """A process is killed while one of its calls is at work, and starts again."""
        calls = self._under_way()
        process, call = calls[which % len(calls)]
        self._advance(process, call, effects)
        if process in self.node.processes:
            self._kill(process)
        if not self.node.processes:
            self._start()

    @mishap(calm=3, fates=st.lists(st.integers(0, 2), min_size=8, max_size=8))
    def fail_power(self, fates: list[int]) -> None:
        self._fail_power(fates)

    @mishap(
        lambda self: self._can_call(),
        fates=st.lists(st.integers(0, 2), min_size=8, max_size=8),
        calls=st.tuples(KINDS, KINDS),
        which=ANY,
        effects=st.integers(0, 30),
    )
    def fail_power_in_a_call(self, fates: list[int], calls: tuple[str, str], which: int, effects: int) -> None:
        """The power fails in the middle of a call, which the kubelet makes again after the boot, or takes back."""
        ref = self._preferred(which)
        self._call(calls[0], ref, which, effects)
        self._fail_power(fates)
        if self._can_call():
            self._call(calls[1], ref, 0, TO_THE_END)

    def _fail_power(self, fates: list[int]) -> None:
        self._change()
        happened["power failures"] += 1
        self.node.fail_power(fates)
        self.spec.without_spec.clear()
        for uid in list(self.spec.answers):
            self.spec.given_back(uid)
        self._start()

    # The disk and the hooks

    @mishap(
        kind=TROUBLES,
        after=st.integers(0, 8),
        for_good=st.booleans(),
        broken=st.booleans(),
    )
    def get_into_trouble(self, kind: str, after: int, for_good: bool, broken: bool) -> None:
        self._change()
        self.node.trouble[kind] = Trouble(after, for_good, broken)

    @mishap(
        lambda self: self._can_call(),
        troubles=st.lists(st.tuples(TROUBLES, st.integers(0, 6), st.booleans()), min_size=1, max_size=2),
        calls=st.tuples(KINDS, KINDS),
        which=ANY,
        effects=EFFECTS,
        then=st.sampled_from(["mended", "killed", "as it is"]),
    )
    def call_in_trouble(
        self, troubles: list[tuple[str, int, bool]], calls: tuple[str, str], which: int, effects: int, then: str
    ) -> None:
        """Something fails in the middle of a call; then that is over, or its process is killed; then comes the next."""
        self._change()
        for kind, after, broken in troubles:
            self.node.trouble[kind] = Trouble(after, for_good=True, broken=broken)
        ref = self._preferred(which)
        process = self._call(calls[0], ref, which, effects)
        if then != "as it is":
            self._change()
            self.node.trouble.clear()
        if then == "killed" and process in self.node.processes:
            self._kill(process)
            self._start()
        if self._can_call():
            self._call(calls[1], ref, which, TO_THE_END)

    @mishap(
        lambda self: self._can_call() and self.spec.answers,
        disk=st.tuples(st.integers(0, 6), st.booleans()),
        undo=st.integers(0, 4),
        which=ANY,
        killed=st.booleans(),
    )
    def undo_by_halves(self, disk: tuple[int, bool], undo: int, which: int, killed: bool) -> None:
        """The disk fails, and the undoing of a claim too; that is over, and the kubelet wants the claim once more."""
        self._change()
        self.node.trouble["state"] = Trouble(disk[0], for_good=True, broken=disk[1])
        self.node.trouble["undo"] = Trouble(undo)
        held = [ref for ref in self.refs if ref.uid in self.spec.answers]
        ref = held[which % len(held)]
        process = self._call("unprepare", ref, which, TO_THE_END)
        self._change()
        self.node.trouble.clear()
        if killed and process in self.node.processes:
            self._kill(process)
            self._start()
        if self._can_call():
            self._call("prepare", ref, which + 1, TO_THE_END)

    @mishap(
        lambda self: self._can_call() and not self._under_way(),
        after=st.integers(0, 6),
        kind=KINDS,
        lamps=DEVICES,
        which=ANY,
    )
    def call_on_a_broken_disk(self, after: int, kind: str, lamps: tuple[str, ...], which: int) -> None:
        """The disk fails from some step of a call on, to its end; no other call is in flight."""
        self._change()
        held = [ref for ref in self.refs if ref.uid in self.spec.answers]
        if kind == "prepare" or not held:
            self._create(NAMES[which % len(NAMES)], lamps)
        ref = self.refs[-1] if kind == "prepare" or not held else held[which % len(held)]
        self.node.trouble["state"] = Trouble(after, for_good=True, broken=True)
        self._call(kind, ref, which, TO_THE_END)
        self._change()
        self.node.trouble.clear()

    @mishap(lambda self: self.node.trouble)
    def mend(self) -> None:
        self._change()
        self.node.trouble.clear()

    @mishap(lamp=st.sampled_from(LAMPS))
    def plug_in_or_out(self, lamp: str) -> None:
        self._change()
        self.node.unplugged = set() if self.node.unplugged else {lamp}

    @mishap(lambda self: self.node.cdi.is_dir(), which=st.none() | ANY)
    def lose_specs(self, which: int | None) -> None:
        """One CDI spec is lost, or the whole directory."""
        self._change()
        specs = sorted(self.node.cdi.glob("[!.]*"))
        self._lose_specs(specs if which is None else specs[which : which + 1])
        if which is None:
            shutil.rmtree(self.node.cdi)

    def _lose_specs(self, specs: list[Path]) -> None:
        for path in specs:
            path.unlink()
        self.spec.without_spec |= {uid for uid in self.spec.answers if not self.node.spec(uid).exists()}

    @mishap(lambda self: self._states(), calm=4, which=ANY, kind=DAMAGES)
    def damage(self, which: int, kind: str) -> None:
        self._change()
        self._damage(self._states()[which % len(self._states())], kind)

    @mishap(lambda self: self._states(), which=ANY, kind=DAMAGES, calls=st.tuples(KINDS, KINDS), lamp=st.integers(0, 1))
    def start_with_damage(self, which: int, kind: str, calls: tuple[str, str], lamp: int) -> None:
        """The driver starts with a damaged state file; then come calls for a new claim with its device, and for it."""
        self._change()
        path = self._states()[which % len(self._states())]
        self._damage(path, kind)
        for process in list(self.node.processes):
            self._kill(process)
        self._start()
        damaged = next((ref for ref in self.refs if ref.uid == path.stem), None)
        if damaged is None or not self.node.api.given[damaged.uid]:
            return
        lamps = min(self.node.api.given[damaged.uid])
        self._create(next(name for name in NAMES if name != damaged.name), lamps[lamp % len(lamps) :][:1])
        for call, ref in zip(calls, (self.refs[-1], damaged), strict=True):
            if self._can_call():
                self._call(call, ref, which, TO_THE_END)

    @mishap(lambda self: self._decidable(), which=ANY, repair=st.booleans())
    def decide(self, which: int, repair: bool) -> None:
        """An operator restores a damaged state file, or puts everything out by hand and removes it."""
        self._change()
        uids = self._decidable()
        uid = uids[which % len(uids)]
        if repair and uid in self.spec.damaged:
            self.node.state(uid).write_bytes(self.originals.pop(uid))
            del self.spec.damaged[uid]
        else:
            self._remove_by_hand(uid)


def program(seed_number: int, steps: int, guard: str = "") -> subprocess.Popen[str]:
    """This module as a program."""
    command = [sys.executable, "-m", __name__, str(seed_number), str(steps), *([guard] if guard else [])]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, cwd=ROOT, stdout=pipe, stderr=pipe, text=True)


def run(seed_number: int, steps: int, *, shrink: bool = True) -> None:
    """Run the machine until it has done so many steps; AssertionError with the steps that led to what is wrong.

    `happened` is counted from nothing. Without `shrink` the first failure is raised as it was found.
    """
    happened.clear()
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]
    drawn = settings(
        max_examples=min(EXAMPLES, steps // LENGTH + 1),
        stateful_step_count=LENGTH,
        deadline=None,
        database=None,
        phases=phases,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),  # a run is as long as it is, and steps depend on what went before
    )
    level = logging.root.manager.disable
    logging.disable()  # a hundred thousand errors are expected
    with ThreadPoolExecutor(THREADS) as threads:
        Protocol.threads = threads
        try:
            for number in count():
                if happened["steps"] >= steps:
                    return
                machine = seed(seed_number + number)(type("Machine", (Protocol,), {}))
                run_state_machine_as_test(machine, settings=drawn)
        finally:
            logging.disable(level)


def main(seed_number: int, steps: int, guard: str = "") -> None:
    """So many steps, of the code as it is or without a guard."""
    with pytest.MonkeyPatch.context() as patch:
        for each in GUARDS:
            if each.name == guard:
                each.take_out(patch)
        try:
            run(seed_number, steps, shrink=not guard)
        finally:
            print(json.dumps(happened))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
