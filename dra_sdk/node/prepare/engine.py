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
unprepare could undo a claim that a pod uses. All effects are passed in, so tests need no cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dra_sdk.errors import DraError, StateError
from dra_sdk.loader import Driver
from dra_sdk.model import JSON
from dra_sdk.model.claim import NO_DEADLINE, Claim, ClaimConfig, ClaimRef, Deadline, HeldClaim, HeldDevice
from dra_sdk.model.config import OpaqueConfig
from dra_sdk.model.driver import Node
from dra_sdk.model.edits import ContainerEdits
from dra_sdk.model.status import DeviceStatus
from dra_sdk.node.files import safe_id
from dra_sdk.node.locks import NamedLocks
from dra_sdk.node.logs import LogFields
from dra_sdk.node.metadata import MetadataFile
from dra_sdk.node.prepare.allocation import (
    Allocated,
    Published,
    allocated_devices,
    claim_configs,
    read_status,
    refuse_held,
    refuse_unreadable,
    reserved_pods,
)
from dra_sdk.node.prepare.cdi_specs import CdiSpecs
from dra_sdk.node.prepare.checkpoint import Checkpoint, Phase, refuse_taken_names
from dra_sdk.node.prepare.checkpoint_store import CheckpointStore, claim_lock
from dra_sdk.node.prepare.hook_run import HookRun

if TYPE_CHECKING:
    from dra_sdk.node.metadata.directory import MetadataDirectory

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Effects:
    """What the engine acts on.

    store: the checkpoints.
    cdi: the CDI specs.
    fetch: reads a ResourceClaim from the API server before the deadline.
    published: returns a published device by pool and name.
    boot_id: the kernel's boot id.
    locks: locks of claims and devices.
    metadata: the device metadata files; None for drivers without `DriverInfo.metadata`.
    announce: takes the driver's entries of a claim's `status.devices`; must not block.
    variables: returns, for the containers of each request, the variable by which the driver's NRI plugin finds the
        claim; None for drivers without hooks about containers.
    """

    store: CheckpointStore
    cdi: CdiSpecs
    fetch: Callable[[ClaimRef, Deadline], JSON]
    published: Published
    boot_id: str
    locks: NamedLocks = field(default_factory=NamedLocks)
    metadata: MetadataDirectory | None = None
    announce: Callable[[ClaimRef, Sequence[JSON]], None] = lambda _ref, _statuses: None
    variables: Callable[[Claim[Any]], Mapping[str, ContainerEdits]] | None = None


class Preparer:
    """Prepares and unprepares claims for one driver on one node. Safe for threads."""

    def __init__(self, driver: Driver, node: Node, effects: Effects) -> None:
        self._driver = driver
        self._node = node
        self._effects = effects
        self._store, self._cdi, self._locks = effects.store, effects.cdi, effects.locks

    def recover(self) -> None:
        """Read the checkpoints, restore missing CDI specs, remove CDI specs that belong to no claim."""
        self._store.open(self._locks)
        self._cdi.open(self._store.ids, self._locks)
        if self._effects.metadata:
            self._effects.metadata.sweep(lambda uid: safe_id(uid) in self._store.ids(), self._locks)
        for state in self._store.all():
            if self._is_current(state):
                self._restore(state)

    def prepare(self, ref: ClaimRef, deadline: Deadline = NO_DEADLINE) -> Sequence[HeldDevice]:
        """Set up the claim's devices, or return the earlier answer. DraError with the reason if that fails."""
        with self._locks.hold([claim_lock(ref.uid)]):
            state = self._store.get(ref.uid)
            if state and self._is_current(state):
                self._ensure(state)
            else:
                deadline.check()
                state = self._prepare_new(ref, state, deadline)
            return state.devices

    def unprepare(self, ref: ClaimRef, deadline: Deadline = NO_DEADLINE) -> None:
        """Undo a prepare. Needs only the checkpoint; succeeds for an unknown claim."""
        with self._locks.hold([claim_lock(ref.uid)]):
            deadline.check()
            state = self._store.get(ref.uid)
            if state is None:
                self._remove_files(ref)
                self._store.delete(ref.uid)  # an earlier removal may not have reached the disk
                return
            with self._locks.hold(_device_locks(state.devices)):
                deadline.check()
                self._release(state, deadline)

    def held(self, *, but: str = "") -> list[HeldClaim]:
        """The claims that hold devices, except the one with UID `but`."""
        return [each.held(self._effects.boot_id, NO_DEADLINE) for each in self._store.others(but)]

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
                self._effects.announce(changed.ref, changed.statuses)
                if is_free:
                    self._store.put(changed, survive_power_loss=False)
        except StateError as error:
            log.warning("%s: the status of device %s/%s is not recorded: %s", claim, device.pool, device.name, error)

    def unreadable(self) -> list[str]:
        """The state files that cannot be read, each with its reason: their claims hold their devices."""
        return [each.reason for each in self._store.unreadable().values()]

    def _restore(self, state: Checkpoint) -> None:
        """Restore a CDI spec at the start. A failure is logged; the claim's next prepare raises it."""
        try:
            with self._locks.try_hold(claim_lock(state.uid)) as is_ours:  # otherwise another process handles the claim
                if is_ours and self._store.get(state.uid) is not None:
                    self._ensure(state)
        except DraError as error:
            log.warning("%s: %s", state, error)

    def _is_current(self, state: Checkpoint) -> bool:
        return state.phase is Phase.COMPLETED and state.boot_id == self._effects.boot_id

    def _prepare_new(self, ref: ClaimRef, left: Checkpoint | None, deadline: Deadline) -> Checkpoint:
        with self._driver.step("read claim"):
            raw = self._effects.fetch(ref, deadline)
        status = read_status(raw, ref)
        with LogFields(pod=",".join(each.name for each in status.reserved_for or ())):
            devices = allocated_devices(self._driver.info, self._node.name, ref, status, self._effects.published)
            with self._locks.hold(_device_locks(devices, left.devices if left else ())):
                deadline.check()
                configs = claim_configs(self._driver.info, status)
                started = Checkpoint.started(ref, devices, self._effects.boot_id, reserved_pods(status))
                return self._prepare_devices(started, raw, devices, configs, left=left, deadline=deadline)

    def _prepare_devices(
        self,
        started: Checkpoint,
        raw: JSON,
        devices: Sequence[Allocated],
        configs: Sequence[ClaimConfig],
        *,
        left: Checkpoint | None,
        deadline: Deadline,
    ) -> Checkpoint:
        ref = started.ref
        refuse_unreadable(devices, self._store.unreadable().values())
        refuse_held(devices, self._store.holders(devices, ref.uid))
        if left:
            log.info("%s: undoing what an earlier attempt or boot left", ref)
            self._release(left, deadline)
        run = HookRun(self._driver, self._store, started)
        run.begin()
        claim = Claim(
            ref.namespace,
            ref.name,
            ref.uid,
            self._node,
            tuple(devices),
            raw,
            lambda: self.held(but=ref.uid),
            run.journal,
            deadline,
            configs,
        )
        try:
            state = self._completed(run, claim)
            with self._driver.step("write CDI spec"):
                self._cdi.write(ref.uid, state.cdi_spec)
            with self._driver.step("write state file"):
                self._store.put(state, survive_power_loss=False)
        except BaseException as error:
            self._give_up(run, error)
            raise
        if state.statuses:
            self._effects.announce(ref, state.statuses)
        return state

    def _completed(self, run: HookRun, claim: Claim[OpaqueConfig | None]) -> Checkpoint:
        """Run the hook and build the checkpoint of its result."""
        prepared, metadata = run.run(claim), self._effects.metadata
        files = metadata.build(claim, prepared) if metadata else ()
        mounts = metadata.mounts(files) if metadata else None
        variables = self._effects.variables(claim) if self._effects.variables else None
        state = run.state.completed(
            prepared, self._cdi.kind, self._driver.info.name, metadata=files, mounts=mounts, variables=variables
        )
        if any(device.cdi_name for device in prepared):
            refuse_taken_names(state, self._cdi.kind, self._store.others(claim.uid))
        if metadata:
            metadata.write(files)
        return state

    def _ensure(self, state: Checkpoint) -> None:
        """Restore what is outside the checkpoint and may be missing."""
        if self._effects.metadata:
            self._effects.metadata.ensure(state.uid, state.metadata)
        self._cdi.ensure(state.uid, state.cdi_spec)
        if state.statuses:
            self._effects.announce(state.ref, state.statuses)

    def _remove_files(self, ref: ClaimRef, metadata: Sequence[MetadataFile] = ()) -> None:
        self._cdi.remove(ref.uid)
        if self._effects.metadata:
            self._effects.metadata.remove(ref, metadata)

    def _give_up(self, run: HookRun, error: BaseException) -> None:
        """Undo a failed attempt. If that fails too, the checkpoint stays and the next call tries again."""
        try:
            with suppress(StateError):  # undo even if the record cannot be written
                run.save()
            self._release(run.state, NO_DEADLINE)
        except Exception as second:
            error.add_note(f"undoing it failed as well: {second}")
            log.exception("%s: undoing a failed prepare failed", run.state)

    def _release(self, state: Checkpoint, deadline: Deadline) -> None:
        """Undo a claim and remove its checkpoint, which first becomes PrepareStarted (see `begin_undo`)."""
        kept = self._store.get(state.uid)
        if kept and kept.phase is Phase.COMPLETED and self._driver.implements("dra_unprepare"):
            self._store.begin_undo(state)
        self._driver.unprepare(state.held(self._effects.boot_id, deadline), self._node)
        with self._driver.step("remove CDI spec"):
            self._remove_files(state.ref, state.metadata)
        with self._driver.step("remove state file"):
            self._store.delete(state.uid)
        if state.statuses:
            self._effects.announce(state.ref, ())


def _device_locks(*groups: Sequence[Allocated | HeldDevice]) -> set[str]:
    return {f"device/{each.pool}/{each.name}" for group in groups for each in group}
