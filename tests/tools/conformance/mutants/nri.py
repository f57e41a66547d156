"""The NRI plugin of the driver: it pins containers by the variable `DRA_CPUSET_<claim uid>=0-1` that CDI adds.

Containers without claims get the CPUs that no prepared claim holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from dra_sdk.errors import NriError
from dra_sdk.hardware.cpuset import CpuSet, format_cpuset, parse_cpuset
from dra_sdk.node.nri.events import Event
from dra_sdk.node.nri.plugin import ConnectOptions, NriPlugin
from dra_sdk.node.nri.session import SessionLimits, Subscription
from dra_sdk.testing.waiting import LONG
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb
from tests.tools.conformance.mutants import Faults
from tests.tools.conformance.mutants.nri_session import WIRE_FAULTS, RawPlugin

PREFIX = "DRA_CPUSET_"
ONLINE = parse_cpuset("0-7")
CPUS = {"dev-0": "0-1", "dev-1": "2", "dev-2": "3", "dev-3": "4", "part-0": "5", "shared-0": "6"}
"""The CPUs of each device."""
SLOW = 1.0
"""Seconds that a slow plugin takes for many containers."""
MANY = 100


def cpus_of(devices: Sequence[Mapping[str, Any]]) -> str:
    """The CPUs of a claim's devices."""
    return format_cpuset(frozenset().union(*(parse_cpuset(CPUS[device["name"]]) for device in devices)))


class Pinning:
    """What the plugin answers. `prepared` returns the CPUs of all prepared claims by UID."""

    def __init__(self, prepared: Callable[[], dict[str, CpuSet]], faults: Faults) -> None:
        self._prepared, self._faults = prepared, faults
        self._lock = Lock()
        self._containers: dict[str, tuple[str, ...]] = {}  # the claims of each container
        self._seen: dict[str, CpuSet] = {}  # claims of containers that were created here
        self._owners: dict[str, str] = {}
        self._pools: dict[str, str] = {}  # the last CPUs of containers without claims
        self._connections = 0

    @property
    def subscriptions(self) -> dict[Event, Subscription]:
        handlers = {
            Event.CREATE_CONTAINER: self.create,
            Event.STOP_CONTAINER: self.stop,
            Event.REMOVE_CONTAINER: self.remove,
        }
        return {event: Subscription(handler) for event, handler in handlers.items()}

    def synchronize(
        self, _pods: Sequence[pb.PodSandbox], containers: Sequence[pb.Container]
    ) -> list[pb.ContainerUpdate]:
        with self._lock:
            self._connections += 1
            if "sync-error" in self._faults and containers:
                raise ValueError("cannot read the containers")
            if "slow-with-many" in self._faults and len(containers) > MANY:
                time.sleep(SLOW)
            self._pools.clear()
            self._containers = {container.id: _claims(container) for container in containers}
            if "ignores-synchronize" in self._faults:
                return []
            if "forgets-on-reconnect" in self._faults and self._connections > 1:
                self._seen.clear()
                return []
            prepared = self._prepared()
            updates = [
                self._update(name, format_cpuset(frozenset().union(*(prepared.get(uid, set()) for uid in uids))))
                for name, uids in self._containers.items()
                if uids
            ]
            return [] if "leaves-unpinned" in self._faults else [*updates, *self._widen()]

    def create(self, request: pb.CreateContainerRequest) -> pb.CreateContainerResponse:
        container = request.container
        uids = _claims(container)
        answer = pb.CreateContainerResponse()
        with self._lock:
            prepared = self._prepared()
            for uid in uids:
                if uid not in prepared and "trusts-env" not in self._faults:
                    raise ValueError(f"claim {uid} is not prepared")
                if "owner-stays" in self._faults and self._owners.setdefault(uid, container.id) != container.id:
                    raise ValueError(f"claim {uid} belongs to another container")
                self._seen[uid] = parse_cpuset(_variables(container)[uid])
            cpus = format_cpuset(frozenset().union(*(self._seen[uid] for uid in uids))) if uids else self._pool()
            answer.adjust.linux.resources.cpu.cpus = cpus
            if "absent-cpu" in self._faults and not uids:
                answer.adjust.linux.resources.cpu.cpus = "0-99"
            if "annotates" in self._faults:
                answer.adjust.annotations["pinned.example.com/by"] = "mutant"
            if "no-pool-updates" not in self._faults:
                answer.update.extend(self._widen())
            self._containers[container.id] = uids
            if not uids:
                self._pools[container.id] = cpus
        return answer

    def stop(self, request: pb.StopContainerRequest) -> pb.StopContainerResponse:
        with self._lock:
            known = self._containers.pop(request.container.id, None)
            if known is None and "unknown-container-error" in self._faults:
                raise ValueError(f"there is no container {request.container.id}")
            return pb.StopContainerResponse(update=self._widen())

    def remove(self, request: pb.ContainerEvent) -> None:
        with self._lock:
            self._containers.pop(request.container.id, None)

    def _pool(self) -> str:
        held = self._seen if {"ignores-synchronize", "forgets-on-reconnect"} & self._faults else self._prepared()
        return format_cpuset(ONLINE - frozenset().union(*held.values()))

    def _widen(self) -> list[pb.ContainerUpdate]:
        """Updates of the containers without claims that have other CPUs than now remain."""
        pool = self._pool()
        names = [name for name, uids in self._containers.items() if not uids and self._pools.get(name) != pool]
        self._pools |= dict.fromkeys(names, pool)
        return [self._update(name, pool) for name in names]

    def _update(self, container: str, cpus: str) -> pb.ContainerUpdate:
        update = pb.ContainerUpdate(container_id=container, ignore_failure="strict-updates" not in self._faults)
        update.linux.resources.cpu.cpus = "" if "empty-cpuset" in self._faults else cpus
        if "updates-shares" in self._faults:
            update.linux.resources.cpu.shares.value = 2
        return update


def _variables(container: pb.Container) -> dict[str, str]:
    pairs = [variable.partition("=") for variable in container.env if variable.startswith(PREFIX)]
    return {name.removeprefix(PREFIX): value for name, _, value in pairs}


def _claims(container: pb.Container) -> tuple[str, ...]:
    return tuple(_variables(container))


class Plugin:
    """The plugin of one instance of the driver: that of the SDK, or bare bytes for faults of the protocol."""

    def __init__(
        self, path: Path, prepared: Callable[[], dict[str, CpuSet]], faults: Faults, die: Callable[[str], None]
    ) -> None:
        pinning = Pinning(prepared, faults)
        self._raw = RawPlugin(path, pinning.synchronize, pinning.subscriptions, faults, die)
        limits = SessionLimits(register=LONG, synchronize=LONG)
        self._plugin = NriPlugin("mutant", pinning.synchronize, pinning.subscriptions, ConnectOptions(10, path, limits))
        self._bare = bool(WIRE_FAULTS & faults)

    def start(self) -> None:
        if self._bare:
            self._raw.start()
        else:
            self._plugin.start()

    def stop(self) -> None:
        ended = self._raw.stop(LONG) if self._bare else self._plugin.stop(LONG)
        if not ended:
            raise NriError("the plugin has not stopped")
