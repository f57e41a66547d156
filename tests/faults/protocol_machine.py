"""What the model of the protocol knows of a node, the kubelet's calls, and what must be true after each of them."""

from __future__ import annotations

import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, Final

from hypothesis.stateful import RuleBasedStateMachine

from dra_sdk.errors import DraError, HookError, UnreachableError
from dra_sdk.model.claim import ClaimRef
from dra_sdk.node.prepare.engine import Preparer
from tests.faults.protocol_calls import TO_THE_END, Call
from tests.faults.protocol_node import Allocated, Node, Process
from tests.faults.protocol_spec import Specification

CALLS: Final = 5  # in flight at once
CLAIMS: Final = 6  # that the kubelet remembers
SHM: Final = Path("/dev/shm")

happened: Counter[str] = Counter()
"""How often each thing happened, in all runs of this process; `steps` are the steps of the machine."""


class Machine(RuleBasedStateMachine):
    """A node, the calls of its kubelet, and the specification that both must meet. The rules are in `protocol`."""

    threads: ThreadPoolExecutor  # set by whoever runs it

    def __init__(self) -> None:
        super().__init__()
        self.node: Node
        self.spec: Specification
        self.uids = count(1)
        self.refs: list[ClaimRef] = []
        self.latest: dict[str, Call] = {}
        self.originals: dict[str, bytes] = {}  # what damaged files had in them
        self.sound = True
        self.calm = 0
        self.directory = tempfile.TemporaryDirectory(dir=SHM if SHM.is_dir() else None)

    def look(self) -> None:
        """What the kubelet relies on must hold."""
        assert not self.node.wrong, self.node.wrong[0]
        self._forget_healed()
        self.spec.check()
        self.sound = True

    def teardown(self) -> None:
        """Give everything back, unless something was wrong already."""
        try:
            if self.sound and hasattr(self, "node"):
                self._give_everything_back()
        finally:
            if hasattr(self, "node"):
                self.node.close()
            self.directory.cleanup()

    def _create(self, name: str, lamps: tuple[str, ...], fate: int = 0) -> None:
        uid = f"u-{next(self.uids)}"
        self.node.api.put(name, self._allocated(uid, lamps, fate))
        self.refs.append(ClaimRef("default", name, uid))
        while len(self.refs) > CLAIMS and (old := self._forgettable()):
            self.refs.remove(old)

    def _damage(self, path: Path, kind: str) -> None:
        """Damage a state file; `other devices` leaves readable JSON whose checksum is wrong."""
        content = path.read_bytes()
        header, _, body = content.partition(b"\n")
        others = body.replace(b"lamp-0", b"lamp-x").replace(b"lamp-1", b"lamp-0").replace(b"lamp-x", b"lamp-1")
        kind = "tail" if others == body else kind
        damaged = {
            "empty": b"",
            "half": content[: len(content) // 2],
            "head": b"x" + content[1:],
            "tail": content[:-3] + b"x\n\n",
            "other devices": header + b"\n" + others,
        }
        path.write_bytes(damaged[kind])
        self.spec.damaged[path.stem] = damaged[kind]
        self.originals.setdefault(path.stem, content)

    def _change(self) -> None:
        self.calm = -1
        self.node.changes += 1

    @staticmethod
    def _allocated(uid: str, lamps: tuple[str, ...], fate: int) -> Allocated:
        if fate == 8:
            return Allocated(uid, None)
        return Allocated(uid, lamps, "node-b" if fate == 9 else "node-a", admin=fate in {5, 6, 7})

    def _forgettable(self) -> ClaimRef | None:
        busy = {call.ref.uid for _, call in self._under_way() if call.ref}
        there = busy | self.node.traces().keys() | self.spec.answers.keys() | self.spec.unclear
        return next((ref for ref in self.refs if ref.uid not in there), None)

    def _can_call(self) -> bool:
        ready = any(process.ready for process in self.node.processes)
        return bool(ready and self.refs and len(self._under_way()) < CALLS)

    def _under_way(self) -> list[tuple[Process, Call]]:
        return [(process, call) for process in self.node.processes for call in process.calls]

    def _current(self) -> list[ClaimRef]:
        """The claims that the API server has."""
        claims = self.node.api.claims.items()
        there = {(name, claim.uid) for name, claim in claims}
        return [ref for ref in self.refs if (ref.name, ref.uid) in there]

    def _preferred(self, which: int) -> ClaimRef:
        """A claim that is held or may be."""
        known = [ref for ref in self.refs if ref.uid in self.spec.answers] + self._current() or self.refs
        return known[which % len(known)]

    def _waited_for(self) -> list[Call]:
        return [call for _, call in self._under_way() if call.ref and not call.given_up]

    def _is_busy(self, uid: str) -> bool:
        return any(call.ref and call.ref.uid == uid for _, call in self._under_way())

    def _states(self) -> list[Path]:
        return sorted(self.node.states.glob("[!.]*.json")) if self.node.states.is_dir() else []

    def _decidable(self) -> list[str]:
        """The claims whose state file an operator may change: of a process of its own nobody is told."""
        if self.node.processes and not self.node.shared:
            known = {
                file.path.stem
                for process in self.node.processes
                if process.ready
                for file in process.preparer.unreadable()
            }
            return [uid for uid in self.spec.damaged if uid in known and not self._is_busy(uid)]
        return [path.stem for path in self._states() if not self._is_busy(path.stem)]

    def _remove_by_hand(self, uid: str) -> None:
        self.node.put_out_by_hand(uid)
        self.node.state(uid).unlink(missing_ok=True)
        self.spec.given_back(uid)
        self._forget_healed()

    def _forget_healed(self) -> None:
        """A file that was written again or removed is damaged no longer."""
        for uid, content in list(self.spec.damaged.items()):
            path = self.node.state(uid)
            if not path.is_file() or path.read_bytes() != content:
                del self.spec.damaged[uid]
                del self.originals[uid]

    def _start(self, effects: int = TO_THE_END) -> None:
        process = self.node.new_process()
        self._advance(process, self.node.begin(process, "start"), effects)

    def _check_memory(self, preparer: Preparer) -> None:
        """Between calls a process knows what the files say."""
        files = {path.stem for path in self._states()} - self.spec.damaged.keys()
        known = {claim.uid for claim in preparer.held()} - self.spec.damaged.keys()
        assert known == files, f"the process knows of {sorted(known)}, but there are files of {sorted(files)}"

    def _kill(self, process: Process) -> None:
        self.calm = -1
        happened["kills"] += 1
        happened["kills of calls under way"] += bool(process.calls)
        self.node.kill(process)

    def _give_up(self, call: Call, *, times_out: bool = False) -> None:
        call.timed_out |= times_out
        call.cancelled |= not times_out

    def _call(self, kind: str, ref: ClaimRef, number: int, effects: int) -> Process:
        """The kubelet makes a call; for one claim it waits for one at a time."""
        for call in self._waited_for():
            if call.ref == ref:
                self._give_up(call)
        ready = [process for process in self.node.processes if process.ready]
        process = ready[number % len(ready)]
        call = self.node.begin(process, kind, ref)
        call.fresh = ref.uid not in self.spec.unclear and ref.uid not in self.spec.answers
        self.latest[ref.uid] = call
        if kind == "unprepare":
            self.spec.given_back(ref.uid)
        elif ref.uid not in self.spec.answers:
            self.spec.unclear.add(ref.uid)
        self._advance(process, call, effects)
        return process

    def _advance(self, process: Process, call: Call, effects: int = TO_THE_END) -> None:
        at_once = effects == TO_THE_END and not call.began
        self.node.advance(call, effects)
        assert not self.node.wrong, self.node.wrong[0]
        if not call.ended:
            return
        process.calls.remove(call)
        self._forget_healed()
        for each in self.node.processes if not self._under_way() else ():
            if each.ready:
                self._check_memory(each.preparer)
        result = type(call.error).__name__ if call.error else "done"
        happened[f"{call.kind}: {result}"] += 1
        if call.error is not None and not isinstance(call.error, DraError):
            raise AssertionError(f"{call.kind} of {call.ref} failed: {call.error!r}") from call.error
        if call.kind == "start":
            self._started(process, call, at_once=at_once)
        elif self.latest[call.ref.uid] is call:
            {"prepare": self._prepared, "unprepare": self._unprepared}[call.kind](call)

    def _started(self, process: Process, call: Call, *, at_once: bool) -> None:
        if call.error is not None:
            assert call.troubled or call.changes != self.node.changes, f"the driver does not start: {call.error}"
            self.node.kill(process)
            return
        if call.troubled or not at_once or any(each.kind == "start" for _, each in self._under_way()):
            return  # another start may hold the lock of any claim
        busy = {call.ref.uid for _, call in self._under_way() if call.ref}
        for uid, what in self.node.traces().items():
            assert uid in busy or self.node.state(uid).exists() or uid in self.node.lamps.values(), (
                f"after the start, {what} of {uid} is left, which has no state"
            )
            assert uid in busy or ".tmp" not in what, f"after the start, {what} is left"
        wanted = {self.node.states.name}
        assert {path.name for path in self.node.data.glob("claims*")} == wanted, "state of another boot is left"
        self.spec.without_spec &= busy | self.spec.damaged.keys()

    def _prepared(self, call: Call) -> None:
        uid, held = call.ref.uid, call.ref.uid in self.spec.answers
        if call.given_up:
            return  # the kubelet does not read the answer
        if call.error is None:
            self.spec.prepared(uid, call.answer)
            if call.changes == self.node.changes:
                self.spec.without_spec.discard(uid)
            elif not self.node.spec(uid).exists():
                self.spec.without_spec.add(uid)
        elif held:
            lost_again = call.changes != self.node.changes and "cannot write CDI spec" in str(call.error)
            excuse = call.troubled or uid in self.spec.damaged or lost_again  # the directory, at each attempt
            assert excuse, f"{uid} is held, but prepared again it fails: {call.error}"
        elif (
            call.changes == self.node.changes
            and not call.troubled
            and not isinstance(call.error, HookError | UnreachableError)
        ):
            assert not self._must_succeed(call), f"nothing speaks against {uid}, but its prepare fails: {call.error}"
        once = call.strikes == 1 and "cannot write state file" in str(
            call.error
        )  # and the undoing met no other trouble
        sound = not call.troubled or (once and "undo" not in self.node.trouble)
        if call.error is not None and not held and call.fresh and sound and uid not in self.spec.damaged:
            assert uid not in self.node.traces(), f"{uid} was not prepared, but left {self.node.traces()[uid]}"
            self.spec.unclear.discard(uid)

    def _unprepared(self, call: Call) -> None:
        uid = call.ref.uid
        if call.error is None:
            self.spec.unprepared(uid)
            return
        excuse = call.given_up or call.troubled or self.spec.damaged or call.changes != self.node.changes
        assert excuse, f"the unprepare of {uid} fails: {call.error}"

    def _must_succeed(self, call: Call) -> bool:
        """Whether a prepare has everything it needs, so that it may not fail."""
        node, uid = self.node, call.ref.uid
        claim = node.api.claims.get(call.ref.name)
        if claim is None or claim.uid != uid or not claim.lamps or claim.node != "node-a":
            return False
        if self.spec.damaged or "hook" in node.trouble or node.unplugged & set(claim.lamps):
            return False
        others = (node.traces().keys() | self.spec.unclear | self.spec.answers.keys()) - {uid}
        theirs = {lamp for other in others for lamps in node.api.given[other] for lamp in lamps}
        return not theirs & set(claim.lamps)

    def _give_everything_back(self) -> None:
        """All calls end, all files are readable, and the kubelet unprepares every claim: then nothing is left."""
        self._change()
        self.node.trouble.clear()
        while calls := self._under_way():
            before = len(calls)
            for process, call in calls:
                if process in self.node.processes and call in process.calls:
                    self._advance(process, call)
            assert len(self._under_way()) < before, "the calls under way wait for each other"
        self._forget_healed()
        if self.spec.damaged:
            for process in list(self.node.processes):
                self.node.kill(process)
            for uid in list(self.spec.damaged):
                self._remove_by_hand(uid)
        if not self.node.processes:
            self._start()
        for uid in sorted({*self.spec.answers, *self.spec.unclear, *self.node.traces()}):
            ref = next(ref for ref in self.refs if ref.uid == uid)
            self._call("unprepare", ref, 0, TO_THE_END)
        assert not self.node.wrong, self.node.wrong[0]
        assert self.node.everything() == [], f"nothing is held, but something is left: {self.node.everything()}"
        held: Any = [process.preparer.held() for process in self.node.processes]
        assert not any(held), f"nothing is held, but the driver says {held}"
