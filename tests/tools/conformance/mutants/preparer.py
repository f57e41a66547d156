"""What NodePrepareResources and NodeUnprepareResources do for one claim."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from dra_sdk.errors import NotFoundError
from dra_sdk.hardware.cpuset import CpuSet, parse_cpuset
from dra_sdk.kube import paths
from dra_sdk.kube.client import KubeClient
from tests.tools.conformance.mutants import Faults
from tests.tools.conformance.mutants.cdi import Specs
from tests.tools.conformance.mutants.nri import cpus_of
from tests.tools.conformance.mutants.publisher import devices
from tests.tools.conformance.mutants.state import State

JSON = dict[str, Any]
_names = count(1)
MAX_CALLS = 4
SOON = 5.0
"""Seconds: longer than the longest deadline and delay of the checks."""
LATER = 30.0
"""Seconds: long enough for another call on any machine, but less than the deadline of a call."""


class RefusedError(Exception):
    """The claim is not prepared."""


def _wait_for(happens: Callable[[], bool]) -> bool:
    """Wait up to SOON seconds for the end of the call or of the process; whether it came."""
    end = time.monotonic() + SOON
    while not happens() and time.monotonic() < end:
        time.sleep(0.01)
    return happens()


class Preparer:
    def __init__(
        self, driver: str, client: Callable[[], KubeClient], state: State, specs: Specs, faults: Faults, host: Path
    ) -> None:
        self._host = host
        self._driver, self._client, self._state, self._specs, self.faults = driver, client, state, specs, faults
        self._in_progress: set[str] = set()
        self._refused = False
        self._gone: set[str] = set()
        self._held_by: dict[str, str] = {}
        self._calls = 0
        self._changed = threading.Condition()
        self._overloaded = self._collided = False
        self.dead = False
        self.streaming = 0
        self.leaked = 0

    # -- the calls

    def prepare(self, namespace: str, name: str, uid: str, active: Callable[[], bool]) -> list[JSON]:
        with self._changed:
            self._calls += 1
            self._overloaded = self._overloaded or self._calls > MAX_CALLS
            self._changed.notify_all()
        try:
            if "few-at-once" in self.faults and self._wait(lambda: self._overloaded):
                raise RefusedError("too many claims at once")
            if "no-lock" in self.faults:
                return self._without_lock(namespace, name, uid, active)
            with self._state.locked():
                return self._prepare(namespace, name, uid, active)
        finally:
            with self._changed:
                self._calls -= 1

    def unprepare(self, namespace: str, name: str, uid: str) -> None:
        if "unprepare-reads-claim" in self.faults:
            self._get(namespace, name)
        if "path-from-uid" in self.faults:
            path = self._specs.directory / f"{uid}.json"
            if path.exists():
                path.unlink()
        with self._state.locked():
            known = self._state.get(uid)
            wrong = "unknown-is-error" in self.faults or ("second-unprepare-error" in self.faults and uid in self._gone)
            if known is None and wrong:
                raise RefusedError("the claim is not prepared")
            if known is not None and not ("leaks-specs" in self.faults and next(_names) % 10 == 0):
                self._specs.remove(uid)
            self._state.remove(uid)
            self._gone.add(uid)
            self.leaked += "leaks-files" in self.faults

    def prepared_cpus(self) -> dict[str, CpuSet]:
        """The CPUs of all prepared claims, by UID."""
        return {uid: parse_cpuset(cpus_of(entry["devices"])) for uid, entry in self._state.all().items()}

    @property
    def busy(self) -> bool:
        return self._calls > 0

    # -- inside

    def _wait(self, happens: Callable[[], bool]) -> bool:
        """Wait up to LATER seconds for what another call does; whether it did."""
        with self._changed:
            return self._changed.wait_for(happens, LATER)

    def _without_lock(self, namespace: str, name: str, uid: str, active: Callable[[], bool]) -> list[JSON]:
        with self._changed:
            if uid in self._in_progress:
                self._collided = True
                self._changed.notify_all()
                raise RefusedError("the claim is being prepared")
            self._in_progress.add(uid)
        try:
            self._wait(lambda: self._collided)
            return self._prepare(namespace, name, uid, active)
        finally:
            self._in_progress.discard(uid)

    def _prepare(self, namespace: str, name: str, uid: str, active: Callable[[], bool]) -> list[JSON]:
        if "stuck-after-failure" in self.faults and self._refused:
            raise RefusedError("an earlier claim failed")
        if "blocked-by-stream" in self.faults and self.streaming:
            raise RefusedError("busy with health")
        if "slow" in self.faults:
            time.sleep(0.15)
        try:
            return self._prepared(namespace, name, uid, active)
        except (RefusedError, NotFoundError):
            self._refused = True
            raise

    def _prepared(self, namespace: str, name: str, uid: str, active: Callable[[], bool]) -> list[JSON]:
        if "once-only" in self.faults and uid in self._gone:
            raise RefusedError("the claim was unprepared")
        held = self._state.get(uid)
        if held and not held["complete"] and {"half-done", "trips-over-half"} & self.faults:
            raise RefusedError("the claim is half prepared")
        if held and held["complete"] and not {"new-names", "names-by-process"} & self.faults:
            if not self._specs.exists(uid) and "no-restore" not in self.faults:
                self._specs.write(uid, held["devices"])
            return list(held["devices"])
        claim = self._claim(namespace, name, uid)
        if claim is None:
            return []
        if "spec-before-checks" in self.faults:
            self._specs.write(uid, [{"cdi": f"{uid}-0", "request": "any", "name": "any"}])
        devices = self._devices(claim, uid)
        if "forgets-undo" in self.faults:
            (self._host / "sys/lamp").write_text("on")
        return self._commit(uid, devices, active)

    def _commit(self, uid: str, devices: list[JSON], active: Callable[[], bool]) -> list[JSON]:
        self._state.put(uid, {"complete": False, "devices": devices})
        if "half-done" in self.faults and _wait_for(lambda: not active()):
            raise RefusedError("the kubelet has gone")
        if "trips-over-half" in self.faults:
            _wait_for(lambda: self.dead)
        if self.dead:
            raise RefusedError("the process is dead")
        self._specs.write(uid, devices)
        self._state.put(uid, {"complete": True, "devices": devices})
        for device in devices:
            self._held_by[f"{device['pool']}/{device['name']}"] = uid
        return devices

    def _claim(self, namespace: str, name: str, uid: str) -> JSON | None:
        try:
            claim = self._get(namespace, name)
        except NotFoundError:
            if "prepares-missing" in self.faults:
                return None
            raise
        if claim["metadata"]["uid"] != uid and "ignores-uid" not in self.faults:
            raise RefusedError("the claim was replaced")
        if "allocation" not in claim.get("status", {}):
            if "prepares-unallocated" in self.faults:
                return None
            raise RefusedError("the claim is not allocated")
        return claim

    def _get(self, namespace: str, name: str) -> JSON:
        return self._client().get(paths.resource_claim(namespace or "-", name or "-"))

    def _devices(self, claim: JSON, uid: str) -> list[JSON]:
        allocation = claim["status"]["allocation"]["devices"]
        for entry in allocation.get("config", []):
            opaque = entry["opaque"]
            mine = opaque["driver"] == self._driver or "reads-others-config" in self.faults
            if mine and opaque["parameters"].get("kind") != "MutantConfig" and "ignores-config" not in self.faults:
                raise RefusedError("the configuration is of an unknown kind")
        everything = "takes-all-results" in self.faults
        results = [result for result in allocation["results"] if everything or result["driver"] == self._driver]
        if "four-at-most" in self.faults and len(results) > 4:
            raise RefusedError("too many devices")
        return [self._device(index, result, uid) for index, result in enumerate(results)]

    def _device(self, index: int, result: JSON, uid: str) -> JSON:
        names = {device["name"]: device for device in devices(self._driver, self.faults)}
        known = names.get(result["device"])
        if known is None and not {"any-device", "takes-all-results"} & self.faults:
            raise RefusedError(f"there is no device {result['device']}")
        shared = bool(known and known.get("allowMultipleAllocations"))
        admin = result.get("adminAccess") and "guards-against-admins" not in self.faults
        if not shared and not admin and "no-guard" not in self.faults:
            self._guard(f"{result['pool']}/{result['device']}", uid)
        return {
            "request": result["request"].replace("/", "_"),
            "answered": result["request"] if "subrequests" in self.faults else result["request"].partition("/")[0],
            "pool": result["pool"],
            "name": result["device"],
            "share": result.get("shareID"),
            "cdi": self._cdi_name(uid, index),
        }

    def _cdi_name(self, uid: str, index: int) -> str:
        if "static-names" in self.faults:
            return f"device-{index}"
        if "one-cdi-device" in self.faults:
            return uid
        if {"new-names", "names-by-process"} & self.faults:
            number = next(_names) if "new-names" in self.faults else id(self)
            return f"{uid}-{index}-{number}"
        return f"{uid}-{index}"

    def _guard(self, device: str, uid: str) -> None:
        if "guard-in-memory" in self.faults:
            holder = self._held_by.get(device)
            taken = holder not in {None, uid} and holder not in self._gone
        elif "guard-never-forgets" in self.faults:
            taken = self._held_by.get(device) not in {None, uid}
        else:
            taken = any(
                other != uid and device == f"{held['pool']}/{held['name']}"
                for other, entry in self._state.all().items()
                for held in entry["devices"]
            )
        if taken:
            raise RefusedError(f"device {device} is held by another claim")
