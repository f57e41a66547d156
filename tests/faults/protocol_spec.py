"""What the kubelet may rely on, whatever happens to a node: ten lines, and how they are seen on the node.

One owner per device; one answer per claim while it is held; nothing left when nothing is held.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from dra_sdk.model.claim import HeldDevice
from tests.faults.protocol_node import Node

Answer = Sequence[HeldDevice]


class Specification:
    """The claims of a node as the kubelet knows them.

    answers: the claims that are held, each with the answer that the kubelet has.
    unclear: the claims that may hold something: a call is under way, or the last one failed or was killed.
    damaged: the claims whose state file is damaged, each with the damaged content.
    without_spec: the claims whose CDI spec was lost, until their next prepare or the driver's next start.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self.answers: dict[str, Answer] = {}
        self.unclear: set[str] = set()
        self.damaged: dict[str, bytes] = {}
        self.without_spec: set[str] = set()

    def prepared(self, uid: str, answer: Answer) -> None:
        """The kubelet has an answer: the claim is held."""
        mine = _owned(answer)
        assert tuple(device.name for device in answer) in self.node.api.given[uid], f"{uid} was never given {answer}"
        assert self.answers.setdefault(uid, answer) == answer, f"{uid} has two answers"
        for other, theirs in self.answers.items():
            both = mine & _owned(theirs)
            assert other == uid or not both, f"{uid} and {other} both own {both}"
        self.unclear.discard(uid)

    def unprepared(self, uid: str) -> None:
        """The kubelet was told that a claim is unprepared."""
        assert uid not in self.node.traces(), f"{uid} is unprepared, but left {self.node.traces()[uid]}"
        self.unclear.discard(uid)

    def given_back(self, uid: str) -> None:
        """The kubelet wants a claim to be unprepared, or it was lost: nothing is promised from here on."""
        self.answers.pop(uid, None)
        self.unclear.add(uid)

    def check(self) -> None:
        """What is held is whole, and what is not held is not there."""
        for uid, answer in self.answers.items():
            self._check_held(uid, answer)
        for uid, what in self.node.traces().items():
            assert uid in self.answers or uid in self.unclear, f"nobody holds {uid}, but it left {what}"

    def _check_held(self, uid: str, answer: Answer) -> None:
        node = self.node
        dark = [name for name in _owned(answer) if node.lamps.get(name) != uid] if node.undo else []
        assert not dark, f"{uid} holds {dark}, which are not on for it: {node.lamps}"
        assert node.state(uid).is_file(), f"{uid} is held, but has no state"
        if uid not in self.without_spec:
            assert node.spec(uid).is_file(), f"{uid} is held, but has no CDI spec"
            spec = json.loads(node.spec(uid).read_bytes())
            told = {cdi_id for device in answer for cdi_id in device.cdi_ids}
            there = {f"{spec['kind']}={device['name']}" for device in spec["devices"]}
            assert told == there, f"the kubelet was told {told} of {uid}, its CDI spec has {there}"


def _owned(answer: Answer) -> set[str]:
    """The devices that a claim does not only look at."""
    return {device.name for device in answer if not device.admin_access}
