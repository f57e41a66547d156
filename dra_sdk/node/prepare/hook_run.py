"""One run of `dra_prepare` for a claim, recorded on disk step by step."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import replace
from threading import RLock
from typing import Any

from dra_sdk.errors import HookError, StateError
from dra_sdk.loader import Driver
from dra_sdk.model.claim import AllocatedDevice, Claim, HeldDevice, PreparedDevice
from dra_sdk.model.config import OpaqueConfig
from dra_sdk.node.prepare.checkpoint import Checkpoint, json_copy
from dra_sdk.node.prepare.checkpoint_store import CheckpointStore

_Key = tuple[str, str, str, str | None]


class HookRun:
    """Runs `dra_prepare` and records each device, in `state` and in the claim's checkpoint on disk.

    state: the current checkpoint, PrepareStarted until the hook has ended.
    """

    def __init__(self, driver: Driver, store: CheckpointStore, state: Checkpoint) -> None:
        self.state = state
        self._driver = driver
        self._store = store
        self._written = state
        # Without an undo hook a crash leaves nothing to undo, so there is nothing to remember before the end.
        self._undoable = driver.implements("dra_unprepare")
        self._lock = RLock()  # a hook may set up its devices in threads of its own
        self._running = False

    def begin(self) -> None:
        """Write PrepareStarted. StateError if that fails; then no checkpoint is left behind."""
        if not self._undoable:
            return
        try:
            with self._driver.step("write state file"):
                self._store.put(self.state)
        except StateError:
            with suppress(StateError):  # if that fails too, the claim's next call removes it
                self._store.delete(self.state.uid)
            raise

    def journal(self, entry: Mapping[str, Any]) -> None:
        """Record what the hook is about to change, such as an old value that it needs to undo the change."""
        with self._lock:
            if not self._running:
                raise HookError(f"dra_prepare of {self._name} has ended, its journal is closed")
            kept = self._json(entry, "a journal entry")
            self.state = replace(self.state, journal=(*self.state.journal, kept))
            self.save()

    def run(self, claim: Claim[OpaqueConfig | None]) -> list[PreparedDevice]:
        """Call the hook; returns the prepared devices in allocation order. HookError if it breaks its contract."""
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

    def save(self) -> None:
        """Write `state`, unless the file already has it."""
        with self._lock:
            if (self._undoable or self.state.journal) and self._written is not self.state:
                with self._driver.step("write state file"):
                    self._store.put(self.state)
                self._written = self.state

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
                devices = (replace(each, data=data) if _key(each) == key else each for each in self.state.devices)
                self.state = replace(self.state, devices=tuple(devices))
        return key

    def _json(self, value: Any, what: str) -> Any:
        """A copy of a JSON object, as it is read after a restart."""
        if not isinstance(value, Mapping):
            raise HookError(f"dra_prepare of {self._name}: {what} must be a JSON object, is {value!r}")
        try:
            return json_copy(dict(value))
        except ValueError as error:
            raise HookError(f"dra_prepare of {self._name}: {what} {error}") from error

    @property
    def _name(self) -> str:
        return f"driver {self._driver.info.name}"


def _key(device: AllocatedDevice[Any] | PreparedDevice | HeldDevice) -> _Key:
    return device.request, device.pool, device.name, device.share_id
