"""Prepare and unprepare of one claim: the heart of the SDK.

```
prepare    known and complete? → same answer, CDI spec ensured
           fetch claim → check → configuration → refuse devices others hold → PrepareStarted
           → hook → CDI spec → PrepareCompleted → answer
unprepare  PrepareStarted → hook → remove CDI spec → forget
```

Everything before PrepareStarted has no effect; from there on a crash leaves a state file that the next prepare or
unprepare starts from by undoing what was begun. A driver without `dra_unprepare` has nothing to undo, so for it
PrepareStarted is left out. PrepareCompleted need not survive a power failure: after it the boot id is another, and
the claim is undone and set up again. Effects are handed in, so tests run this without a cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dra_sdk.errors import DraError, StateError
from dra_sdk.loader import Driver
from dra_sdk.model.claim import AllocatedDevice, Claim, HeldClaim
from dra_sdk.model.driver import Node
from dra_sdk.node.prepare import record
from dra_sdk.node.prepare.allocation import Published, allocated_devices
from dra_sdk.node.prepare.attempt import Attempt, undo
from dra_sdk.node.prepare.cdi import CdiDirectory
from dra_sdk.node.prepare.guard import refuse_held, refuse_taken_names
from dra_sdk.node.prepare.locks import NamedLocks
from dra_sdk.node.prepare.order import Order
from dra_sdk.node.prepare.store import ClaimStore, safe_id
from dra_sdk.node.prepare.tickets import Tickets
from dra_sdk.wire.claim import read_claim
from dra_sdk.wire.context import bound
from dra_sdk.wire.dra import AnsweredDevice, ClaimRef
from dra_sdk.wire.state import ClaimState, DeviceState, Phase

if TYPE_CHECKING:
    from dra_sdk.node.prepare.metadata import ClaimMetadata

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Effects:
    """What the engine acts on: state files, CDI directory, locks, order of calls, API server, published devices.

    `fetch` reads a ResourceClaim; `announce` takes our entries of a claim's `status.devices`, and must not block.
    `metadata` is None for drivers that want no metadata files.
    """

    store: ClaimStore
    cdi: CdiDirectory
    fetch: Callable[[ClaimRef], dict[str, Any]]
    published: Published
    boot_id: str
    locks: NamedLocks = field(default_factory=NamedLocks)
    order: Order = field(default_factory=Order)
    metadata: ClaimMetadata | None = None
    announce: Callable[[ClaimRef, Sequence[dict[str, Any]]], None] = lambda _ref, _statuses: None


class Preparer:
    """Prepares and unprepares claims for one driver on one node. Safe for threads."""

    def __init__(self, driver: Driver, node: Node, effects: Effects) -> None:
        self._driver = driver
        self._node = node
        self._effects = effects
        self._store, self._cdi, self._locks = effects.store, effects.cdi, effects.locks
        self._tickets = Tickets()
        self._undoing: set[str] = set()

    def recover(self) -> None:
        """Read the state files, restore CDI specs that were lost, remove those that belong to no claim."""
        self._store.open()
        self._cdi.open(self._store.ids, self._store.abandoned_after)
        if self._effects.metadata:
            self._effects.metadata.sweep(lambda uid: safe_id(uid) in self._store.ids(), self._store.abandoned_after)
        for state in self._store.all():
            if self._current(state):
                self._restore(state)

    def prepare(self, ref: ClaimRef) -> list[AnsweredDevice]:
        """Set up the claim's devices, or answer as before if that was done. Raises DraError with the reason if not."""
        with self._tickets.take() as ticket, self._locks.hold([_claim_lock(ref)]):
            state = self._store.get(ref.uid)
            if state and self._current(state):
                self._ensure(state)
            else:
                self._effects.order.check_prepare(ref.uid, ticket.arrived)
                state = self._prepare_anew(ref, state)
            self._effects.order.prepared(ref.uid, ticket.arrived)
            return record.answer(state)

    def unprepare(self, ref: ClaimRef) -> None:
        """Undo a prepare, from the state file alone; nothing to do for a claim that is not known."""
        with self._tickets.take() as ticket:
            self._effects.order.unprepare(ref.uid, ticket.arrived)
            with self._locks.hold([_claim_lock(ref)]):
                self._unprepare(ref, ticket.arrived)

    def drain(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for calls under way; whether all have ended."""
        return self._tickets.drain(timeout)

    def held(self, *, but: str = "") -> list[HeldClaim]:
        """The claims that hold devices, without the one whose UID is `but`."""
        return [each.held(self._effects.boot_id) for each in self._store.all() if each.uid != but]

    def _restore(self, state: ClaimState) -> None:
        """Restore a CDI spec at the start; a failure is this claim's alone, its next prepare tells."""
        try:
            self._ensure(state)
            if self._store.get(state.uid) is None:  # another process unprepared it meanwhile
                self._forget_files(state)
        except DraError as error:
            log.warning("claim %s/%s (%s): %s", state.namespace, state.name, state.uid, error)

    def _current(self, state: ClaimState) -> bool:
        kept = state.phase is Phase.COMPLETED and state.uid not in self._undoing
        return kept and state.boot_id == self._effects.boot_id

    def _prepare_anew(self, ref: ClaimRef, left: ClaimState | None) -> ClaimState:
        raw = self._effects.fetch(ref)
        claim = read_claim(raw)
        with bound(pod=",".join(claim.consumers)):
            devices = allocated_devices(self._driver.info, ref, claim, self._effects.published)
            with self._locks.hold(_device_locks(devices, left.devices if left else ())):
                return self._prepare_devices(ref, raw, devices, left)

    def _prepare_devices(
        self, ref: ClaimRef, raw: dict[str, Any], devices: Sequence[AllocatedDevice[Any]], left: ClaimState | None
    ) -> ClaimState:
        refuse_held(devices, self._store.others(ref.uid))
        if left:
            log.info("%s: undoing what an earlier attempt or boot left", ref)
            self._release(left)
        attempt = Attempt(self._driver, self._store, record.started(ref, devices, self._effects.boot_id))
        attempt.begin()
        claim = Claim(
            ref.namespace,
            ref.name,
            ref.uid,
            self._node,
            tuple(devices),
            raw,
            lambda: self.held(but=ref.uid),
            attempt.journal,
        )
        try:
            state = self._completed(attempt, claim)
            self._cdi.write(ref.uid, state.cdi_spec)
            self._store.put(state, survive_power_loss=False)
        except BaseException as error:
            self._give_up(attempt, error)
            raise
        if state.statuses:
            self._effects.announce(ref, state.statuses)
        return state

    def _unprepare(self, ref: ClaimRef, arrived: int) -> None:
        state = self._store.get(ref.uid)
        if state is None:
            self._forget_files(ref)
            self._store.delete(ref.uid)  # nothing to remove, but that it is gone may not have reached the disk yet
            return
        if self._current(state):
            self._effects.order.check_unprepare(ref.uid, arrived)
        with self._locks.hold(_device_locks(state.devices)):
            self._release(state)

    def _completed(self, attempt: Attempt, claim: Claim[Any]) -> ClaimState:
        """Run the hook, and gather what it gave."""
        prepared, metadata = attempt.run(claim), self._effects.metadata
        name, kind = self._driver.info.name, self._cdi.kind
        files = metadata.build(claim, prepared) if metadata else ()
        mounts = metadata.mounts(files) if metadata else None
        state = record.completed(attempt.state, prepared, kind, name, metadata=files, mounts=mounts)
        if any(device.cdi_name for device in prepared):
            refuse_taken_names(state, self._store.others(claim.uid))
        if metadata:
            metadata.write(files)
        return state

    def _ensure(self, state: ClaimState) -> None:
        """Restore what lies outside the state file and may be lost."""
        if self._effects.metadata:
            self._effects.metadata.ensure(state)
        self._cdi.ensure(state.uid, state.cdi_spec)
        if state.statuses:
            self._effects.announce(ClaimRef(state.namespace, state.name, state.uid), state.statuses)

    def _forget_files(self, ref: ClaimRef | ClaimState) -> None:
        self._cdi.remove(ref.uid)
        if self._effects.metadata:
            self._effects.metadata.remove(ref)

    def _give_up(self, attempt: Attempt, error: BaseException) -> None:
        """Undo a failed attempt; if even that fails the state file stays, and the next call tries again."""
        try:
            with suppress(StateError):  # undoing matters more than remembering, should only one be possible
                attempt.save()
            self._release(attempt.state)
        except Exception as second:
            error.add_note(f"undoing it failed as well: {second}")
            log.exception("%s/%s: undoing a failed prepare failed", attempt.state.namespace, attempt.state.name)

    def _release(self, state: ClaimState) -> None:
        """Undo a claim and forget it. PrepareCompleted goes first: half undone, it must not be answered from again."""
        kept = self._store.get(state.uid)
        if kept and kept.phase is Phase.COMPLETED and self._driver.implements("dra_unprepare"):
            self._undoing.add(state.uid)
            with suppress(StateError):  # a full disk must not keep devices held
                self._store.put(replace(state, phase=Phase.STARTED), survive_power_loss=False)
        undo(self._driver, state.held(self._effects.boot_id), self._node)
        self._forget_files(state)
        self._store.delete(state.uid)
        self._undoing.discard(state.uid)
        if state.statuses:
            self._effects.announce(ClaimRef(state.namespace, state.name, state.uid), ())


def _claim_lock(ref: ClaimRef) -> str:
    return f"claim/{ref.uid}"


def _device_locks(*groups: Sequence[AllocatedDevice[Any] | DeviceState]) -> set[str]:
    return {f"device/{each.pool}/{each.name}" for group in groups for each in group}
