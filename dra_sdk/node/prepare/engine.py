"""Prepare and unprepare of one claim.

```
prepare    already prepared: restore the CDI spec if it is missing, same answer as before
           otherwise: fetch claim → check it → decode configuration → refuse devices that other claims hold
                      → PrepareStarted → hook → CDI spec → PrepareCompleted → answer
unprepare  PrepareStarted → hook → remove CDI spec → remove checkpoint
```

Before PrepareStarted nothing has an effect. A crash after it leaves a checkpoint, and the next prepare or unprepare
first undoes what was started. A driver without `dra_unprepare` has nothing to undo, so it gets no PrepareStarted.
PrepareCompleted need not survive a power failure: after the reboot the boot id differs, and the claim is undone and
prepared again.

A call may wait for its claim's lock or for the API server. If its caller stops waiting in the meantime, it changes
nothing: the kubelet may have called again, so a late prepare could set up a claim that was unprepared since, and a late
unprepare could undo a claim that a pod uses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from functools import partial
from threading import RLock
from time import monotonic
from typing import Any, Protocol

from dra_sdk.errors import DraError, HookError, RetriableError, StateError
from dra_sdk.loader import Driver
from dra_sdk.model.claim import (
    NO_DEADLINE,
    AllocatedDevice,
    Claim,
    ClaimRef,
    Deadline,
    HeldClaim,
    HeldDevice,
    PreparedDevice,
)
from dra_sdk.model.config import OpaqueConfig
from dra_sdk.model.container import PodSandbox
from dra_sdk.model.driver import Node
from dra_sdk.model.status import DeviceStatus
from dra_sdk.model.undo import Undo
from dra_sdk.node.files import claim_lock
from dra_sdk.node.logs import LogFields
from dra_sdk.node.metadata import MetadataFile
from dra_sdk.node.prepare import allocation, env_lists
from dra_sdk.node.prepare.checkpoint import Checkpoint, json_copy, refuse_taken_names
from dra_sdk.node.prepare.claim_users import ClaimUsers, reserved_pods
from dra_sdk.node.prepare.counters import refuse_exhausted, rivals
from dra_sdk.node.prepare.dependencies import Dependencies
from dra_sdk.node.prepare.shares import refuse_overfull
from dra_sdk.node.prepare.state_files import Unreadable

log = logging.getLogger(__name__)
_Key = tuple[str, str, str, str | None]


class Preparer:
    """Prepares and unprepares claims for one driver on one node. Safe for threads."""

    def __init__(self, driver: Driver, node: Node, dependencies: Dependencies) -> None:
        self._driver, self._node = driver, node
        self._dependencies = dependencies
        self._store, self._cdi, self._locks = dependencies.store, dependencies.cdi, dependencies.locks
        # Without an undo hook a crash leaves nothing to undo, so there is nothing to remember before the end.
        self._undoable = driver.implements("dra_unprepare")
        around = driver.steps.around
        self._fetch = around("read claim", dependencies.fetch)
        self._users = ClaimUsers(self._fetch, around("read pod", dependencies.fetch_pod))
        self._write_state = around("write state file", self._store.put)
        self._write_spec = around("write CDI spec", self._cdi.write)
        self._remove_state = around("remove state file", self._store.delete)
        self._remove_spec = around("remove CDI spec", self._remove_files)

    def recover(self, ended: Callable[[], bool] = lambda: False) -> bool:
        """Find the checkpoints, remove the CDI specs and metadata of no claim, and begin to `read_state`."""
        self._store.open(self._locks)
        self._cdi.open(self._store.has, self._locks)
        if self._dependencies.metadata:
            self._dependencies.metadata.sweep(self._store.has, self._locks)
        return self.read_state(ended)

    def read_state(self, ended: Callable[[], bool] = lambda: False) -> bool:
        """Read the checkpoints until `ended`, and restore missing CDI specs; return whether all are read.

        Before that, claims are served whose own checkpoint is on disk, and no others.
        """
        if not self._store.read(ended):
            return False
        for state in self._store.all():
            if self._is_current(state):
                self._restore(state)
        return True

    def check(self) -> None:
        """Raise RetriableError with the reason while no new claim can be prepared because of the state files."""
        self._store.refuse_new()

    def prepare(self, ref: ClaimRef, deadline: Deadline = NO_DEADLINE) -> Sequence[HeldDevice]:
        """Set up the claim's devices, or return the earlier answer. DraError with the reason if that fails."""
        begun = monotonic()
        with self._locks.hold([claim_lock(ref.uid)]):
            state = self._store.get(ref.uid)
            if state and self._is_current(state):
                self._ensure(state)
                log.debug("%s: was prepared before", ref)
            else:
                deadline.check()
                state = self._prepare_new(ref, state, deadline)
                _log_done("prepared", state.claim, begun)
            return state.claim.devices

    def unprepare(self, ref: ClaimRef, deadline: Deadline = NO_DEADLINE) -> None:
        """Undo a prepare. Needs only the checkpoint; succeeds for an unknown claim."""
        begun = monotonic()
        with self._locks.hold([claim_lock(ref.uid)]):
            deadline.check()
            state = self._store.get(ref.uid)
            if state is None:
                self._remove_files(ref)
                self._store.delete(ref.uid)  # an earlier removal may not have reached the disk
                return
            with self._locks.hold(state.device_locks):
                deadline.check()
                self._release(state, deadline)
            _log_done("unprepared", state.claim, begun)

    def held(self, *, except_uid: str = "") -> list[HeldClaim]:
        """Return the claims that hold devices, except one; also those whose state file is damaged."""
        held = [state.held(self._dependencies.boot_id) for state in self._store.others(except_uid)]
        damaged = self._store.unreadable(look=False).values()  # `others` has looked
        held += [file.claim for file in damaged if file.claim.uid != except_uid]
        return [claim if claim.complete else self._with_variables(claim) for claim in held]

    def held_by_undo(self) -> list[ClaimRef]:
        """Return the claims that a refused step of their undo holds."""
        return [state.ref for state in self._store.all() if state.refused]

    def report(self, claim: HeldClaim, device: HeldDevice, status: DeviceStatus) -> None:
        """Replace what `status.devices` of a prepared claim says about a device. A failure is logged.

        Never waits for a call of the kubelet. If a call for the claim is in flight, the status is written to
        the API server but not recorded, so that a restart would write the earlier one. A claim that is no longer
        prepared gets none.
        """
        try:
            with self._locks.try_hold(claim_lock(claim.uid)) as is_free:
                state = self._store.get(claim.uid)
                if state is None or not self._is_current(state):
                    return
                changed = state.reported(self._driver.info.name, device, status)
                if changed.statuses == state.statuses:
                    return
                self._dependencies.announce(changed.ref, changed.statuses)
                if is_free:
                    self._store.put(changed, survive_power_loss=False)
        except StateError as error:
            log.warning("%s: the status of device %s/%s is not recorded: %s", claim, device.pool, device.name, error)

    def admit(self, claim: HeldClaim, pod: PodSandbox, running: Collection[str]) -> None:
        """Read again who uses a prepared claim, and record it. ClaimError if a pod does not, DraError if not known.

        Never waits for a call of the kubelet. Pods of PodGroups that joined before stay if they are `running`.
        """
        pods = self._users.read(claim, pod)
        with self._locks.try_hold(claim_lock(claim.uid)) as is_free:
            state = self._store.get(claim.uid) if is_free else None
            if state is None or not self._is_current(state):
                raise RetriableError(f"{claim} is being prepared or unprepared")
            users = dict.fromkeys([*pods, *(uid for uid in state.claim.pods if uid in running)])
            self._store.put(state.used_by(users), survive_power_loss=False)

    def unreadable(self) -> list[Unreadable]:
        """Return the state files that cannot be read: their claims hold their devices."""
        return list(self._store.unreadable().values())

    def _with_variables(self, claim: HeldClaim) -> HeldClaim:
        return replace(claim, variables=self._cdi.variables(claim.uid))

    def _restore(self, state: Checkpoint) -> None:
        """Restore a CDI spec at the start. A failure is logged; the claim's next prepare raises it."""
        try:
            with self._locks.try_hold(claim_lock(state.claim.uid)) as is_ours:  # else another process handles the claim
                if is_ours and self._store.get(state.claim.uid) is not None:
                    self._ensure(state)
        except DraError as error:
            log.warning("%s: %s", state, error)

    def _is_current(self, state: Checkpoint) -> bool:
        return state.claim.complete and state.boot_id == self._dependencies.boot_id

    def _prepare_new(self, ref: ClaimRef, previous: Checkpoint | None, deadline: Deadline) -> Checkpoint:
        """Prepare a claim of which nothing but an earlier attempt or boot may be left (`previous`)."""
        raw = self._fetch(ref, deadline)
        status = allocation.read_status(raw, ref)
        with LogFields(pod=",".join(consumer.name for consumer in status.reserved_for or ())):
            wanted = allocation.read(
                self._driver.info, self._node.name, ref, raw, status, find_device=self._dependencies.find_device
            )
            started = Checkpoint.started(ref, wanted.devices, self._dependencies.boot_id, reserved_pods(status))
            names, counters = started.device_locks, started.counter_locks
            if previous:
                names |= previous.device_locks
            if not self._undoable:
                names |= counters
            with self._locks.hold(names):
                # Once PrepareStarted is on disk, others see what the claim takes, and need not wait for its hook.
                with self._locks.hold(counters) if counters and self._undoable else nullcontext():
                    deadline.check()
                    self._begin(wanted, started, previous, deadline)
                return self._run_hook(wanted, started, deadline)

    def _begin(
        self, wanted: allocation.Wanted, started: Checkpoint, previous: Checkpoint | None, deadline: Deadline
    ) -> None:
        """Refuse a claim whose hardware others hold, undo what is left of an earlier attempt, write PrepareStarted."""
        find_counters = self._dependencies.find_counters
        counted = any(device.consumes for device in started.claim.devices)
        rivaling = rivals(started, find_counters) if counted else ()
        holders = self._store.holders(started, rivaling, is_new=previous is None)
        unreadable = self._store.unreadable().values()
        allocation.refuse_taken(wanted.devices, unreadable, holders)
        refuse_overfull(wanted.devices, holders, unreadable)
        if counted:
            refuse_exhausted(started, holders, find_counters)
        if previous:
            log.info("%s: undoing what an earlier attempt or boot left", started)
            self._release(previous, deadline)
        if self._undoable:
            self._start(started)

    def _run_hook(self, wanted: allocation.Wanted, started: Checkpoint, deadline: Deadline) -> Checkpoint:
        """Run `dra_prepare` between PrepareStarted and PrepareCompleted. What it has done is undone if a step fails."""
        ref = wanted.ref
        run = HookRun(self._driver, self._write_state, started, undoable=self._undoable)
        names, others = (ref.namespace, ref.name, ref.uid), partial(self.held, except_uid=ref.uid)
        claimed = wanted.devices, wanted.raw
        claim = Claim(*names, self._node, *claimed, others, run.journal, deadline, wanted.configs, run.reserve)
        try:
            prepared = run.call_hook(claim)
            state = self._completed(run.checkpoint, claim, prepared)
            self._write_spec(ref.uid, state.cdi_spec)
            self._write_state(state, survive_power_loss=False)
        except BaseException as error:
            self._give_up(run, error)
            raise
        if state.statuses:
            self._dependencies.announce(ref, state.statuses)
        return state

    def _start(self, state: Checkpoint) -> None:
        """Write PrepareStarted. StateError if that fails; then no checkpoint is left behind."""
        try:
            self._write_state(state)
        except StateError:
            with suppress(StateError):  # if that fails too, the claim's next call removes it
                self._store.delete(state.claim.uid)
            raise

    def _completed(
        self, state: Checkpoint, claim: Claim[OpaqueConfig | None], prepared: Sequence[PreparedDevice]
    ) -> Checkpoint:
        """Return PrepareCompleted, and write the metadata files of the claim. DraError if its edits cannot be used."""
        kind, metadata, variables = self._cdi.kind, self._dependencies.metadata, self._dependencies.variables
        files = metadata.build(claim, prepared) if metadata else ()
        state = state.completed(
            prepared,
            kind,
            self._driver.info.name,
            metadata=files,
            mounts=metadata.mounts(files) if metadata else None,
            variables=variables(claim) if variables else None,
        )
        fills = not variables and any(map(env_lists.FILLS, prepared))
        if fills and (split := env_lists.split_variables(state.claim.devices)):
            log.warning("%s: %s", claim, split)
        if any(device.cdi_name for device in prepared):
            refuse_taken_names(state, kind, self._store.others(claim.uid))
        if metadata:
            metadata.write(files)
        return state

    def _ensure(self, state: Checkpoint) -> None:
        """Restore what is outside the checkpoint and may be missing."""
        if self._dependencies.metadata:
            self._dependencies.metadata.ensure(state.claim.uid, state.metadata)
        self._cdi.ensure(state.claim.uid, state.cdi_spec)
        if state.statuses:
            self._dependencies.announce(state.ref, state.statuses)

    def _remove_files(self, ref: ClaimRef, metadata: Sequence[MetadataFile] = ()) -> None:
        self._cdi.remove(ref.uid)
        if self._dependencies.metadata:
            self._dependencies.metadata.remove(ref, metadata)

    def _give_up(self, run: HookRun, error: BaseException) -> None:
        """Undo a failed attempt. If that fails too, the checkpoint stays and the next call tries again."""
        try:
            with suppress(StateError):  # undo even if the record cannot be written
                run.save()
            self._release(run.checkpoint, NO_DEADLINE)
        except Exception as second:
            error.add_note(f"undoing it failed as well: {second}")
            log.exception("%s: undoing a failed prepare failed", run.checkpoint)

    def _release(self, state: Checkpoint, deadline: Deadline) -> None:
        """Undo a claim and remove its checkpoint, which first becomes PrepareStarted (see `begin_undo`)."""
        kept, skipped = self._store.get(state.claim.uid), frozenset[str]()
        if kept and kept.claim.complete and self._undoable:
            self._store.begin_undo(state)
        elif kept and self._undoable:  # only after a refusal an operator can know a step
            skipped = self._store.skipped(state.claim.uid)
        undo = Undo(skipped)
        try:
            self._driver.unprepare(replace(state.held(self._dependencies.boot_id, deadline), undo=undo), self._node)
        except DraError:
            self._keep_refused(state, undo)
            raise
        finally:
            self._dependencies.undone(state.ref, undo.steps)
        self._remove_spec(state.ref, state.metadata)
        self._remove_state(state.claim.uid, aside=undo.has_skipped)
        self._users.forget(state.claim.uid)
        if state.statuses:
            self._dependencies.announce(state.ref, ())

    def _keep_refused(self, state: Checkpoint, undo: Undo) -> None:
        """Write down what holds the claim, for `dra-sdk state`. A failure is logged: the claim stays held anyway."""
        kept = self._store.get(state.claim.uid)
        refused = tuple((step.name, step.reason) for step in undo.refused)
        if kept is None or kept.refused == refused:
            return
        try:
            self._store.put(replace(kept.undoing(), refused=refused), survive_power_loss=False)
        except StateError as error:
            log.warning("%s: what holds it is not recorded: %s", state, error)


class _Write(Protocol):
    def __call__(self, state: Checkpoint, /, *, survive_power_loss: bool = True) -> None: ...


class HookRun:
    """One run of `dra_prepare` for a claim; what it yields and records goes to disk as it comes.

    checkpoint: the claim with what the hook has done so far, PrepareStarted.

    `write` writes a checkpoint. Without `undoable` nothing is written before the hook has ended.
    """

    def __init__(self, driver: Driver, write: _Write, checkpoint: Checkpoint, *, undoable: bool) -> None:
        self.checkpoint = self._written = checkpoint
        self._driver = driver
        self._name = f"driver {driver.info.name}"
        self._write = write
        self._undoable = undoable
        self._lock = RLock()  # a hook may set up its devices in threads of its own
        self._running = False

    def call_hook(self, claim: Claim[OpaqueConfig | None]) -> list[PreparedDevice]:
        """Return the prepared devices in allocation order. HookError if the hook breaks its contract."""
        missing = {_key(device): device for device in claim.devices}
        done: dict[_Key, PreparedDevice] = {}
        self._running = True
        try:
            with closing(self._driver.prepare(claim)) as answers:
                for prepared in answers:
                    done[self._accept(prepared, missing)] = prepared
                    if missing:  # the last device is written together with PrepareCompleted
                        self.save()
        finally:
            with self._lock:
                self._running = False
        if missing:
            listed = ", ".join(f"{device.pool}/{device.name}" for device in missing.values())
            raise HookError(f"dra_prepare of {self._name} yielded nothing for {listed}")
        return [done[_key(device)] for device in claim.devices]

    def journal(self, entry: Mapping[str, Any]) -> None:
        """Record what the hook is about to change, such as an old value that it needs to undo the change."""
        if not self._undoable:
            raise HookError(
                f"dra_prepare of {self._name} calls claim.journal, but the driver has no dra_unprepare: "
                "nothing would undo what the journal records"
            )
        self.reserve(entry)

    def reserve(self, entry: Mapping[str, Any]) -> None:
        """Record what the claim will take, which needs no undo; other claims see it from then on."""
        with self._lock:
            if not self._running:
                raise HookError(f"dra_prepare of {self._name} has ended, its journal is closed")
            kept = self._json(entry, "a journal entry")
            self._change(journal=(*self.checkpoint.claim.journal, kept))
            self.save()

    def save(self) -> None:
        """Write `checkpoint`, unless the file already has it."""
        with self._lock:
            if (self._undoable or self.checkpoint.claim.journal) and self._written is not self.checkpoint:
                self._write(self.checkpoint)
                self._written = self.checkpoint

    def _accept(self, prepared: PreparedDevice, missing: dict[_Key, AllocatedDevice[OpaqueConfig | None]]) -> _Key:
        """Remove a yielded device from the missing ones, and record its data in the checkpoint."""
        key = _key(prepared)
        if missing.pop(key, None) is None:
            raise HookError(
                f"dra_prepare of {self._name} yielded device {prepared.pool}/{prepared.name} "
                f"for request {prepared.request} twice, or it is not among the claim's devices"
            )
        if data := self._json(prepared.data, f"data of device {prepared.pool}/{prepared.name}"):
            with self._lock:
                devices = self.checkpoint.claim.devices
                self._change(
                    devices=tuple(replace(device, data=data) if _key(device) == key else device for device in devices)
                )
        return key

    def _change(self, **fields: Any) -> None:
        self.checkpoint = replace(self.checkpoint, claim=replace(self.checkpoint.claim, **fields))

    def _json(self, value: Any, what: str) -> Any:
        """Return a copy of a JSON object, as it is read after a restart."""
        if not isinstance(value, Mapping):
            raise HookError(f"dra_prepare of {self._name}: {what} must be a JSON object, is {value!r}")
        try:
            return json_copy(dict(value)) if value else {}
        except ValueError as error:
            raise HookError(f"dra_prepare of {self._name}: {what} {error}") from error


def _log_done(what: str, claim: HeldClaim, begun: float) -> None:
    devices = ", ".join(dict.fromkeys(f"{device.pool}/{device.name}" for device in claim.devices))
    log.info("%s: %s %s in %.0f ms", claim, what, devices, 1000 * (monotonic() - begun))


def _key(device: AllocatedDevice[Any] | PreparedDevice | HeldDevice) -> _Key:
    return device.request, device.pool, device.name, device.share_id
