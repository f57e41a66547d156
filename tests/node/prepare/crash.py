"""Kills a process with SIGKILL at every step of prepare, unprepare, repair and forget; a fresh one goes on from there.

Run as a program: `crash.py DIRECTORY SCENARIO…`. One interpreter forks every process, which takes a millisecond instead
of a start. Prints one line of JSON: the number of kill points by scenario, and what went wrong.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from dra_sdk import Claim, ContainerEdits, HeldClaim, HeldDevice, PreparedDevice
from dra_sdk.errors import HookError
from dra_sdk.model.claim import ClaimRef
from dra_sdk.node.files import Files
from dra_sdk.node.prepare.cdi_specs import spec_path
from dra_sdk.node.prepare.checkpoint import Checkpoint, encode
from dra_sdk.node.prepare.state_files import Unreadable, forget, read_checkpoint, repair
from tests.lamps import NAME, LampConfig, LampDriver
from tests.node.prepare.world import POOL, World

UID = "0a1b2c3d-0000-4000-8000-000000000001"
REF = ClaimRef("default", f"claim-{UID}", UID)
LAMPS = ("lamp-0", "lamp-1")
_HELD = tuple(HeldDevice("r", POOL, lamp) for lamp in LAMPS)
DAMAGED = encode(Checkpoint(HeldClaim("default", f"claim-{UID}", UID, _HELD), "boot-1"))[:-40]


class Stuck(LampDriver):
    """Fails after its last lamp, so that prepare undoes it all."""

    def put_on(self, name: str, uid: str) -> None:
        super().put_on(name, uid)
        if name == LAMPS[-1]:
            raise OSError("burnt")


class Plain:
    """Tells containers about lamps that always shine, so it has nothing to undo."""

    dra_driver_info, dra_discover = LampDriver.dra_driver_info, LampDriver.dra_discover

    def __init__(self, _lamps: Path, step: Callable[[str], None]) -> None:
        self.step = step

    def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            self.step("prepare: device")
            yield device.prepared(ContainerEdits(env={"LAMP": device.name}), data={"lamp": device.name})
        self.step("prepare: end")


class Node:
    """The directory of one scenario as one process has it: a World whose steps are counted."""

    def __init__(self, name: str, root: Path, step: Callable[[str], None] = lambda _name: None) -> None:
        self.name = name
        self.driver = Plain if "without undo" in name else LampDriver
        self.world = World(root)
        self.world.claim(UID, *LAMPS)
        self.step = step
        self.files = Files(lambda name, path: step(f"{name} {path.parent.name}"))

    def prepare(self, *, boot_id: str = "boot-1") -> None:
        plugin = self.driver(self.world.lamps, self.step)
        answer = self.world.preparer(plugin, boot_id=boot_id, files=self.files).prepare(REF)
        assert [device.name for device in answer] == list(LAMPS), answer

    def prepare_stuck(self) -> None:
        plugin = Stuck(self.world.lamps, self.step)
        with suppress(HookError):
            self.world.preparer(plugin, files=self.files).prepare(REF)
            raise AssertionError("it was not stuck")

    def unprepare(self) -> None:
        plugin = self.driver(self.world.lamps, self.step)
        self.world.preparer(plugin, files=self.files).unprepare(REF)

    def reboot(self) -> None:
        """Without power no lamp shines, and what is on tmpfs is gone."""
        for directory in (self.world.lamps, self.world.cdi):
            shutil.rmtree(directory)
        self.world.lamps.mkdir()

    def half(self) -> None:
        """A prepare that was killed when its second lamp was on."""
        seen: list[str] = []

        def kill(name: str) -> None:
            seen.append(name)
            if seen.count("prepare: on") == len(LAMPS):
                os.kill(os.getpid(), signal.SIGKILL)

        fork(lambda: Node(self.name, self.world.root, kill).prepare())

    @property
    def state(self) -> Path:
        """The state file of the claim."""
        return self.world.claims / f"{UID}.json"

    def is_damaged(self) -> bool:
        """Whether its state file is there and cannot be read."""
        return self.state.exists() and isinstance(read_checkpoint(self.state), Unreadable)

    def repair(self) -> None:
        """As an operator does, who sees that it is damaged."""
        if self.is_damaged():
            repair(self.state, self.files)

    def forget(self) -> None:
        """As an operator does, who then puts the lamps out by hand."""
        if self.is_damaged():
            forget(self.state, spec_path(self.world.cdi, NAME, UID), self.files)

    def finish(self) -> None:
        """What an operator does after a command that was killed: type it again, and tidy up."""
        if self.name not in OPERATED:
            return
        OPERATED[self.name](self)
        if not self.state.exists():
            assert self.world.specs() == {}, "the devices are free while containers may be started with them"
            for lamp in self.world.lamps.iterdir():
                lamp.unlink()
        kept = [each for each in self.world.claims.iterdir() if each.name.startswith((".damaged-", ".forgotten-"))]
        assert [each.read_bytes() for each in kept] == [DAMAGED], kept
        kept[0].unlink()

    def check_prepared(self) -> None:
        """One claim holds both lamps, and everything says so."""
        shining = {} if self.driver is Plain else dict.fromkeys(LAMPS, UID)
        assert self.world.shining() == shining, self.world.shining()
        assert self.world.states() == [f"{UID}.json"], self.world.states()
        (spec,) = self.world.specs().values()
        assert len(spec["devices"]) == len(LAMPS)

    def check_clean(self) -> None:
        """No device is held by anybody, and no file is nobody's."""
        assert self.world.is_clean(), (self.world.shining(), self.world.states(), self.world.specs())
        assert self.world.preparer().held() == []


def nothing(_node: Node) -> None:
    """A fresh node."""


def prepared(node: Node) -> None:
    """A claim that is prepared."""
    node.prepare()


def without_spec(node: Node) -> None:
    """A claim whose CDI spec was lost."""
    node.prepare()
    shutil.rmtree(node.world.cdi)


def rebooted(node: Node) -> None:
    """A claim that was prepared before the last boot."""
    node.prepare()
    node.reboot()


def damaged(node: Node) -> None:
    """A claim whose state file has lost its journal and its data; its header still tells the devices."""
    node.prepare()
    node.state.write_bytes(DAMAGED)


OPERATED: dict[str, Callable[[Node], None]] = {"repair": Node.repair, "forget": Node.forget}
SCENARIOS: dict[str, tuple[Callable[[Node], None], Callable[[Node], None]]] = {
    "prepare": (nothing, Node.prepare),
    "prepare that fails": (nothing, Node.prepare_stuck),
    "prepare without undo": (nothing, Node.prepare),
    "prepare again": (without_spec, Node.prepare),
    "prepare after a reboot": (rebooted, lambda node: node.prepare(boot_id="boot-2")),
    "prepare after a crash": (Node.half, Node.prepare),
    "unprepare": (prepared, Node.unprepare),
    "unprepare without undo": (prepared, Node.unprepare),
    "unprepare after a crash": (Node.half, Node.unprepare),
    "repair": (damaged, Node.repair),
    "forget": (damaged, Node.forget),
}


def fork(work: Callable[[], None]) -> int:
    """Run `work` in a process of its own; its exit status, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:  # noqa: BLE001 (whatever it is, the child must not go on as its parent)
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed(name: str, root: Path, point: int) -> bool:
    """Run a scenario until its step number `point`; False if it has fewer."""
    steps = 0

    def kill(_step: str) -> None:
        nonlocal steps
        steps += 1
        if steps == point:
            os.kill(os.getpid(), signal.SIGKILL)

    status = fork(lambda: SCENARIOS[name][1](Node(name, root, kill)))
    assert status in {0, -signal.SIGKILL}, f"{name}: exit status {status}"
    return status != 0


def recover(name: str, root: Path) -> None:
    """What the kubelet does next, each on a copy of what the killed process left: prepare again, or unprepare."""
    Node(name, root).finish()
    shutil.copytree(root, again := root.with_name(f"{root.name}-prepare"))
    node = Node(name, again)
    node.prepare(boot_id="boot-2" if "reboot" in name else "boot-1")
    node.check_prepared()
    node.unprepare()
    node.check_clean()
    node = Node(name, root)
    node.unprepare()
    node.check_clean()


def try_every_step(name: str, directory: Path) -> tuple[int, list[str]]:
    """How many steps the scenario has, and after the kill at which of them something was wrong."""
    directory.mkdir()
    SCENARIOS[name][0](Node(name, start := directory / "start"))
    failures = []
    for point in range(1, 1000):
        root = directory / str(point)
        shutil.copytree(start, root)
        if not killed(name, root, point):
            return point - 1, failures
        if fork(lambda root=root: recover(name, root)):  # type: ignore[misc]
            failures.append(f"{name}: killed at step {point}")
    raise AssertionError(f"{name} has no end")


def main(directory: Path, scenarios: list[str]) -> None:
    """Every step of these scenarios."""
    gc.freeze()  # so that forks share memory
    os.fsync = lambda _handle: None  # type: ignore[assignment]  # a killed process leaves the kernel's memory as it is
    found = {name: try_every_step(name, directory / name.replace(" ", "-")) for name in scenarios}
    points = {name: steps for name, (steps, _) in found.items()}
    print(json.dumps({"points": points, "failures": [each for _, wrong in found.values() for each in wrong]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
