"""One attempt to set up a claim's devices with the driver's hooks, remembered on disk step by step."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from threading import RLock
from typing import Any

from dra_sdk.errors import DraError, HookError, StateError, raised_at
from dra_sdk.loader import Driver
from dra_sdk.model.claim import AllocatedDevice, Claim, HeldClaim, PreparedDevice
from dra_sdk.model.driver import Node
from dra_sdk.model.edits import ContainerEdits
from dra_sdk.node.prepare.store import ClaimStore
from dra_sdk.wire.state import ClaimState, DeviceState, plain

_Key = tuple[str, str, str, str | None]


class Attempt:
    """Runs `dra_prepare`, keeping `state` and the claim's state file in step with what was done."""

    def __init__(self, driver: Driver, store: ClaimStore, state: ClaimState) -> None:
        self._driver = driver
        self._store = store
        self.state = state
        self._written = state
        # Without an undo hook a crash leaves nothing to undo, so there is nothing to remember before the end.
        self._undoable = driver.implements("dra_unprepare")
        self._lock = RLock()  # a hook may set up its devices in threads of its own
        self._running = False

    def begin(self) -> None:
        """Write PrepareStarted; where that fails nothing was begun, and no state is left behind."""
        if not self._undoable:
            return
        try:
            self._store.put(self.state)
        except StateError:
            with suppress(StateError):  # if the disk refuses that too, the claim's next call tidies up
                self._store.delete(self.state.uid)
            raise

    def journal(self, entry: Any) -> None:
        """Record, before the hook changes it, something that cannot be read again afterwards."""
        with self._lock:
            if not self._running:
                raise HookError(f"dra_prepare of {self._name} has ended, its journal is closed")
            kept = self._plain(entry, "a journal entry")
            self.state = replace(self.state, journal=[*self.state.journal, kept])
            self.save()

    def run(self, claim: Claim[Any]) -> list[PreparedDevice]:
        """Call the hook; the prepared devices in allocation order. HookError if it does not keep its contract."""
        missing = {_key(device): device for device in claim.devices}
        done: dict[_Key, PreparedDevice] = {}
        self._running = True
        try:
            with self._driver.observe("dra_prepare"):
                self._collect(claim, missing, done)
        finally:
            with self._lock:
                self._running = False
        if missing:
            listed = ", ".join(f"{device.pool}/{device.name}" for device in missing.values())
            raise HookError(f"dra_prepare of {self._name} yielded nothing for {listed}")
        return [done[_key(device)] for device in claim.devices]

    def save(self) -> None:
        """Write what is known by now, if the file does not say so already."""
        with self._lock:
            if (self._undoable or self.state.journal) and self._written is not self.state:
                self._store.put(self.state)
                self._written = self.state

    def _collect(
        self, claim: Claim[Any], missing: dict[_Key, AllocatedDevice[Any]], done: dict[_Key, PreparedDevice]
    ) -> None:
        """Move what the hook yields from `missing` to `done`, saving each before the hook goes on."""
        answers: Iterator[Any] = iter(())
        try:
            try:
                answers = self._call(claim)
                for prepared in answers:
                    done[self._accept(prepared, missing)] = prepared
                    if missing:  # the last device is written together with PrepareCompleted
                        self.save()
            finally:
                if isinstance(answers, Generator):
                    answers.close()
        except DraError:
            raise
        except BaseException as error:
            raise _failure("dra_prepare", self._driver, error) from error

    def _accept(self, prepared: Any, missing: dict[_Key, AllocatedDevice[Any]]) -> _Key:
        """Take a device that the hook yielded out of those that are missing, and its data into the state."""
        if not isinstance(prepared, PreparedDevice):
            raise HookError(f"dra_prepare of {self._name} yielded {prepared!r}, want device.prepared(...)")
        wanted = _key(prepared)
        if missing.pop(wanted, None) is None:
            raise HookError(
                f"dra_prepare of {self._name} yielded device {prepared.pool}/{prepared.name} "
                f"for request {prepared.request} twice, or it is not among the claim's devices"
            )
        if not isinstance(prepared.edits, ContainerEdits):
            raise HookError(
                f"dra_prepare of {self._name}: edits of device {prepared.pool}/{prepared.name} must be "
                f"ContainerEdits, are {prepared.edits!r}"
            )
        if data := self._plain(prepared.data, f"data of device {prepared.pool}/{prepared.name}"):
            with self._lock:
                devices = [replace(each, data=data) if _key(each) == wanted else each for each in self.state.devices]
                self.state = replace(self.state, devices=devices)
        return wanted

    def _plain(self, value: Any, what: str) -> Any:
        """A copy of a JSON object as it will be after a restart."""
        if not isinstance(value, Mapping):
            raise HookError(f"dra_prepare of {self._name}: {what} must be a JSON object, is {value!r}")
        try:
            return plain(dict(value))
        except ValueError as error:
            raise HookError(f"dra_prepare of {self._name}: {what} {error}") from error

    def _call(self, claim: Claim[Any]) -> Iterator[Any]:
        answer = self._driver.call("dra_prepare", claim=claim)
        if isinstance(answer, str | bytes) or not isinstance(answer, Iterable):
            raise HookError(f"dra_prepare of {self._name} returned {answer!r}, want prepared devices")
        return iter(answer)

    @property
    def _name(self) -> str:
        return f"driver {self._driver.info.name}"


def undo(driver: Driver, held: HeldClaim, node: Node) -> None:
    """Call `dra_unprepare`, if only of extensions; HookError if it raises anything but an error of ours."""
    try:
        with driver.observe("dra_unprepare"):
            driver.call("dra_unprepare", claim=held, node=node)
    except DraError:
        raise
    except BaseException as error:
        raise _failure("dra_unprepare", driver, error) from error


def _failure(hook: str, driver: Driver, error: BaseException) -> HookError:
    """For whatever an author's code raises: in a thread of a server even KeyboardInterrupt is no Ctrl-C."""
    reason = f"{type(error).__name__}: {error}{raised_at(error)}"
    return HookError(f"{hook} of driver {driver.info.name} failed: {reason}")


def _key(device: AllocatedDevice[Any] | PreparedDevice | DeviceState) -> _Key:
    return device.request, device.pool, device.name, device.share_id
