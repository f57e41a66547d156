"""A node whose parts all fail: API server, hardware, disk, processes, power. Everything between them is the real SDK.

Each part announces its effects with `Node.effect`, where the call under way may stand still, be killed, or fail.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from errno import EIO, ENOSPC
from itertools import count
from pathlib import Path
from typing import Any, Final

from dra_sdk import Claim, ContainerEdits, Device, DriverInfo, HeldClaim, PreparedDevice
from dra_sdk import Node as DriverNode
from dra_sdk.errors import NotFoundError, UnreachableError
from dra_sdk.loader import Driver
from dra_sdk.model.claim import ClaimRef, Deadline
from dra_sdk.node.files import END, PREFIX, sync_directory
from dra_sdk.node.locks import NamedLocks
from dra_sdk.node.prepare.cdi_specs import CdiSpecs
from dra_sdk.node.prepare.checkpoint_store import CheckpointStore
from dra_sdk.node.prepare.dependencies import Dependencies
from dra_sdk.node.prepare.engine import Preparer
from tests.faults.protocol_calls import TO_THE_END, Call
from tests.faults.protocol_disk import Disk, Locks, Trouble

DRIVER: Final = "lamps.example.com"
POOL: Final = "node-a"
LAMPS: Final = ("lamp-0", "lamp-1", "lamp-2")
PERMANENT: Final = {"lamp-0"}  # shines on over a reboot
NAMES: Final = ("claim-0", "claim-1", "claim-2")
_SPEC: Final = f"{DRIVER}_claim-"


@dataclass
class Allocated:
    """A ResourceClaim as the API server has it.

    lamps: its devices, None if it is not allocated.
    node: the node that it is allocated for.
    admin: whether it looks at lamps that others own.
    """

    uid: str
    lamps: tuple[str, ...] | None
    node: str = POOL
    admin: bool = False


class ApiServer:
    """Claims by name, what each UID was ever given on this node, and how many more requests are not answered."""

    def __init__(self) -> None:
        self.claims: dict[str, Allocated] = {}
        self.given: dict[str, set[tuple[str, ...]]] = {}
        self.fails = 0

    def put(self, name: str, claim: Allocated) -> None:
        """Create a claim, or replace it."""
        self.claims[name] = claim
        given = self.given.setdefault(claim.uid, set())
        if claim.lamps and claim.node == POOL:
            given.add(claim.lamps)

    def read(self, ref: ClaimRef) -> dict[str, Any]:
        """GET a claim."""
        if self.fails:
            self.fails -= 1
            raise UnreachableError("the API server does not answer")
        found = self.claims.get(ref.name)
        if found is None:
            raise NotFoundError(f"resourceclaims {ref.name} not found", status=404)
        status: dict[str, Any] = {}
        if found.lamps is not None:
            about = {"request": "r", "driver": DRIVER, "pool": POOL, "adminAccess": found.admin}
            results = [{**about, "device": each} for each in found.lamps]
            field = {"key": "metadata.name", "operator": "In", "values": [found.node]}
            selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
            status = {"allocation": {"devices": {"results": results}, "nodeSelector": selector}}
        return {"metadata": {"namespace": "default", "name": ref.name, "uid": found.uid}, "status": status}


class Lamps:
    """The hooks of a driver whose lamps shine until somebody puts them out."""

    node: Node

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo(DRIVER)

    def dra_discover(self, node: DriverNode) -> list[Device]:
        return []

    def dra_prepare(self, claim: Claim[None]) -> Iterator[PreparedDevice]:
        here, last = self.node, claim.devices[-1]
        with here.at_work(claim.devices):
            here.hook_effect("hook", "begin")
            for device in claim.devices:
                claim.deadline.check()
                if not device.admin_access:
                    if device.name not in PERMANENT:
                        claim.journal({"lamp": device.name})
                    here.hook_effect("hook", f"before {device.name}")
                    here.put_on(device.name, claim.uid)
                here.hook_effect("hook", f"after {device.name}")
                yield device.prepared(ContainerEdits(env={"LAMP": device.name}), data={"lamp": device.name})
                if device is not last and not device.admin_access:  # the last is remembered together with the end
                    here.told.add((claim.uid, device.name))
            here.hook_effect("hook", "end")

    def dra_unprepare(self, claim: HeldClaim, node: DriverNode) -> None:
        here = self.node
        with here.at_work(claim.devices):
            here.hook_effect("undo", "begin")
            for device in claim.devices:
                claim.deadline.check()
                here.hook_effect("undo", f"out {device.name}")
                here.put_out(device.name, claim)
            here.hook_effect("undo", "end")


class PlainLamps:
    """The hooks of a driver that tells containers about lamps, and has nothing to undo."""

    node: Node
    dra_driver_info, dra_discover = Lamps.dra_driver_info, Lamps.dra_discover

    def dra_prepare(self, claim: Claim[None]) -> Iterator[PreparedDevice]:
        here = self.node
        with here.at_work(claim.devices):
            here.hook_effect("hook", "begin")
            for device in claim.devices:
                claim.deadline.check()
                here.hook_effect("hook", device.name)
                yield device.prepared(ContainerEdits(env={"LAMP": device.name}), data={"lamp": device.name})


PLUGINS: Final = {True: Lamps(), False: PlainLamps()}
DRIVERS: Final = {undo: Driver.of(plugin) for undo, plugin in PLUGINS.items()}


@dataclass(eq=False)
class Process:
    """One process of the driver.

    ready: whether its start has ended, so that it takes calls.
    """

    locks: Locks
    calls: list[Call] = field(default_factory=list)
    ready: bool = False
    preparer: Preparer | None = None


class Node:
    """One machine.

    undo: whether its driver has `dra_unprepare`.
    shared: whether two processes may run at once, as in a rolling update.
    running: the call that has the floor.
    lamps: the lamps that are on, and the claims they shine for.
    told: the devices that the hook has yielded, with its claim, and that it was asked for another one after.
    volatile: what a power failure may bring back, by path; None for a file that was not there.
    torn: the files whose content a power failure may destroy.
    wrong: what the hardware found wrong.
    changes: how often something happened to the node itself.
    """

    def __init__(self, root: Path, threads: ThreadPoolExecutor, *, undo: bool, shared: bool) -> None:
        self.root, self.undo, self.shared = root, undo, shared
        self.data, self.cdi = root / "data", root / "cdi"
        self.data.mkdir(mode=0o700, parents=True)
        self.locks = self.data / "locks" if shared else None
        self.probe = NamedLocks(self.locks)
        self.api = ApiServer()
        self.processes: list[Process] = []
        self.lamps: dict[str, str] = {}
        self.unplugged: set[str] = set()
        self.told: set[tuple[str, str]] = set()
        self.trouble: dict[str, Trouble] = {}
        self.volatile: dict[Path, bytes | None] = {}
        self.torn: set[Path] = set()
        self.wrong: list[str] = []
        self.changes = 0
        self.running: Call
        self._threads = threads
        self._boots = count(1)
        self._busy: dict[str, Call] = {}
        self.boot_id = f"boot-{next(self._boots)}"
        self.is_held: Callable[[str], bool] = lambda _uid: False
        PLUGINS[undo].node = self

    # Effects

    def effect(self, name: str, *, changes: bool = True) -> None:
        """Before every effect of a call: it may stand still here, or be killed."""
        call = self.running
        if changes and not call.began:
            call.began, call.late = True, call.given_up  # before it stands still here: later is too late to notice
        call.pause()
        if call.late and not name.endswith(" cdi"):  # a spec may be restored at any time
            self.wrong.append(f"{call.kind} of {call.ref} began when nobody waited for it: {name}")

    def disk_effect(self, step: str, path: Path) -> None:
        """Before every step of a file. OSError if the disk is in trouble."""
        kind = "cdi" if path.parent == self.cdi else "state"
        self.effect(f"{step} {kind}")
        trouble = self.trouble.get(kind)
        if trouble and trouble.strikes(step):
            self.running.troubled = True
            self.running.strikes += 1
            raise OSError(*((EIO, "Input/output error") if trouble.broken else (ENOSPC, "No space left on device")))

    def hook_effect(self, kind: str, name: str) -> None:
        """Before every effect of a hook. OSError if it fails."""
        self.effect(f"{kind}: {name}")
        trouble = self.trouble.get(kind)
        if trouble and trouble.strikes("write"):
            self.running.troubled |= kind == "undo"
            self.running.strikes += kind == "undo"
            raise OSError(EIO, f"{name} failed")

    # Hardware

    @contextmanager
    def at_work(self, devices: Sequence[Any]) -> Iterator[None]:
        """While a hook has these devices: no other may."""
        call, names = self.running, [each.name for each in devices]
        for name in names:
            if self._busy.get(name, call) is not call:
                self.wrong.append(f"two hooks work on {name} at once")
            self._busy[name] = call
        try:
            yield
        finally:
            for name in names:
                self._busy.pop(name, None)

    def put_on(self, name: str, uid: str) -> None:
        """Put a lamp on for a claim."""
        if name in self.lamps:
            self.wrong.append(f"{name} is put on for {uid}, but shines for {self.lamps[name]}")
        if name in self.unplugged and not self.unplugged_late:
            self.wrong.append(f"{name} is put on for {uid}, but nobody publishes it")
        self.lamps[name] = uid

    def put_out(self, name: str, claim: HeldClaim) -> None:
        """Put out a lamp that shines for this claim; needs what the hook remembered."""
        if self.is_held(claim.uid):
            self.wrong.append(f"{name} is put out while {claim.uid} holds it")
        if self.lamps.get(name) != claim.uid:
            return
        if name not in PERMANENT and {"lamp": name} not in claim.journal:
            self.wrong.append(f"{name} is put out for {claim.uid}, but the journal does not tell that it was put on")
        data = [each.data for each in claim.devices if each.name == name]
        if (claim.uid, name) in self.told and data != [{"lamp": name}]:
            self.wrong.append(f"{name} is put out for {claim.uid} without what the hook remembered of it")
        self._out(name)

    def put_out_by_hand(self, uid: str) -> None:
        """As an operator does it."""
        for name in [name for name, owner in self.lamps.items() if owner == uid]:
            self._out(name)

    def _out(self, name: str) -> None:
        self.told.discard((self.lamps.pop(name), name))

    @property
    def unplugged_late(self) -> bool:
        """Whether something happened to the node since the call under way began."""
        return self.running.changes != self.changes

    # API server

    def fetch(self, ref: ClaimRef, _deadline: Deadline) -> dict[str, Any]:
        """Read a claim, slowly: what is answered may be old."""
        if self.running.given_up:
            self.wrong.append(f"{ref} is fetched when nobody waits for it")
        self.effect("ask", changes=False)
        found = self.api.read(ref)
        self.effect("answer", changes=False)
        return found

    def fetch_pod(self, namespace: str, name: str, _deadline: Deadline) -> dict[str, Any]:
        """There are no pods, and no claim is reserved for a PodGroup."""
        raise AssertionError(f"pod {namespace}/{name} is read")

    def find_device(self, pool: str, name: str) -> Device | None:
        """What was discovered."""
        return Device(name) if pool == POOL and name in LAMPS and name not in self.unplugged else None

    # Processes

    def begin(self, process: Process, kind: str, ref: ClaimRef | None = None) -> Call:
        """A call that has not done anything yet."""
        call = Call(self._threads, kind, ref)
        call.changes = self.changes
        call.work = {
            "start": lambda: self._start(process),
            "prepare": lambda: process.preparer.prepare(ref, call.deadline),
            "unprepare": lambda: process.preparer.unprepare(ref, call.deadline),
        }[kind]
        process.calls.append(call)
        return call

    def advance(self, call: Call, effects: int = TO_THE_END) -> None:
        """Let a call go on."""
        self.running = call
        call.advance(effects)

    def new_process(self) -> Process:
        """A process that has not started yet."""
        self.processes.append(process := Process(Locks(self)))
        return process

    def _start(self, process: Process) -> None:
        driver, disk = DRIVERS[self.undo], Disk(self)
        store = CheckpointStore.of(self.data, self.boot_id, disk, undoable=self.undo, shared=self.shared)
        store.migrate(self.data, self.boot_id)
        dependencies = Dependencies(
            store=store,
            cdi=CdiSpecs(self.cdi, driver.info.cdi_kind, DRIVER, disk),
            fetch=self.fetch,
            fetch_pod=self.fetch_pod,
            find_device=self.find_device,
            boot_id=self.boot_id,
            locks=process.locks,
        )
        process.preparer = Preparer(driver, DriverNode(POOL, self.root), dependencies)
        process.preparer.recover()
        process.ready = True

    def kill(self, process: Process) -> None:
        """SIGKILL: what is on disk and in the hardware stays as it is at this moment."""
        self.processes.remove(process)
        before = self._files(), dict(self.lamps), set(self.told), list(self.wrong)
        volatile, torn = dict(self.volatile), set(self.torn)
        for call in process.calls:
            self.running = call
            call.kill()
        process.locks.close()
        self._restore(before[0])
        self.lamps, self.told, self.wrong = before[1:]
        self.volatile, self.torn = volatile, torn

    def close(self) -> None:
        """End everything."""
        for process in list(self.processes):
            self.kill(process)
        self.probe.close()
        shutil.rmtree(self.root)

    def fail_power(self, fates: Sequence[int]) -> None:
        """Kill everything and boot again; `fates` tells what becomes of each write that had not reached the disk."""
        for process in list(self.processes):
            self.kill(process)
        for (path, before), fate in zip(sorted(self.volatile.items()), fates, strict=False):
            if fate == 1:
                _put(path, before)
            elif fate == 2 and path in self.torn and path.is_file():
                _put(path, path.read_bytes()[:40])
        self.volatile.clear()
        self.torn.clear()
        for name in [name for name in self.lamps if name not in PERMANENT]:
            self._out(name)
        shutil.rmtree(self.cdi, ignore_errors=True)
        self.trouble.clear()
        self.boot_id = f"boot-{next(self._boots)}"

    # What lies on the disk

    @property
    def states(self) -> Path:
        """Where the state files of this boot lie."""
        return self.data / ("claims" if self.undo or self.shared else f"claims-{self.boot_id}")

    def state(self, uid: str) -> Path:
        """The state file of a claim."""
        return self.states / f"{uid}.json"

    def spec(self, uid: str) -> Path:
        """The CDI spec of a claim."""
        return self.cdi / f"{_SPEC}{uid}.json"

    def traces(self) -> dict[str, str]:
        """The claims that something is left of, each with what that is."""
        found = {uid: name for name, uid in self.lamps.items()}
        for folder, prefix in ((self.states, ""), (self.cdi, _SPEC)):
            for name in _names(folder):
                found[name.removeprefix(PREFIX).removesuffix(END).removeprefix(prefix).removesuffix(".json")] = (
                    f"{folder.name}/{name}"
                )
        return found

    def everything(self) -> list[str]:
        """What lies in any state directory or in the CDI directory, and the lamps that are on."""
        folders = [*self.data.glob("claims*"), self.cdi]
        return [f"{folder.name}/{name}" for folder in folders for name in _names(folder)] + sorted(self.lamps)

    def _files(self) -> dict[Path, bytes]:
        folders = [*self.data.glob("claims*"), self.cdi]
        return {folder / name: (folder / name).read_bytes() for folder in folders for name in _names(folder)}

    def _restore(self, files: dict[Path, bytes]) -> None:
        now = self._files()
        for path in now.keys() | files.keys():
            if now.get(path) != files.get(path):
                _put(path, files.get(path))


def _names(folder: Path) -> list[str]:
    with suppress(FileNotFoundError):
        return sorted(os.listdir(folder))
    return []


def _put(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(content)
    sync_directory(path.parent)
