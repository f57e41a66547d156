"""A kubelet emulator: the part of a kubelet that DRA drivers see, over real unix sockets.

    with KubeletEmulator("node-1", LocalClient(store), directory) as kubelet:
        kubelet.wait_for_driver("gpu.example.com")
        pod = kubelet.run_pod(pod_object)

`kubelet_dir` is laid out like /var/lib/kubelet. `records` has the calls to drivers, and the mistakes in answers that
the kubelet accepted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Self, TypeVar

from dra_sdk.model import JSON
from dra_sdk.model.claim import ClaimRef
from dra_sdk.node.kubelet.health import HEALTH_VERSIONS
from dra_sdk.tools.simulator.kubelet.calls import HEALTH_V1ALPHA1
from dra_sdk.tools.simulator.kubelet.claims import ClaimCache, ClaimInfo
from dra_sdk.tools.simulator.kubelet.health import HealthCache, HealthWatch, ResourceHealth
from dra_sdk.tools.simulator.kubelet.manager import ClaimManager
from dra_sdk.tools.simulator.kubelet.plugins import PluginInfo, Plugins, RegisteredPlugin
from dra_sdk.tools.simulator.kubelet.pods import RunningPod
from dra_sdk.tools.simulator.kubelet.records import (
    AnsweredDevice,
    CallRecords,
    KubeletError,
    NotRegisteredError,
    RegistrationError,
    StoppedError,
)
from dra_sdk.tools.simulator.kubelet.registration import Registrar, RegistryWatcher
from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming
from dra_sdk.tools.simulator.kubelet.wipes import SliceWiper
from dra_sdk.tools.simulator.local import LocalClient

HealthMode = Literal["negotiate", "always", "off"]
"""Which drivers are asked for health: those that advertise it (1.37), all (1.36), none (gate off: 1.34, 1.35)."""

T = TypeVar("T")
STATE_FILE = "dra_manager_state"
WAIT_SECONDS = 30.0  # events take milliseconds, on a busy machine seconds


class KubeletEmulator:
    """The kubelet of one node. It can be stopped and started again, and forgets then what a real kubelet forgets.

    `api` is its client of the API server. `timing` has its deadlines and pauses. `health` says which drivers it asks
    for health. `clock` gives the seconds by which health reports expire.
    """

    def __init__(
        self,
        node: str,
        api: LocalClient,
        kubelet_dir: Path,
        *,
        timing: KubeletTiming | None = None,
        health: HealthMode = "negotiate",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.node = node
        self.api = api
        self.kubelet_dir = kubelet_dir
        self.registry_dir = kubelet_dir / "plugins_registry"
        self.plugins_dir = kubelet_dir / "plugins"
        self.state_file = kubelet_dir / STATE_FILE
        self.timing = timing or KubeletTiming()
        self.health_mode: HealthMode = health
        self.clock = clock
        self.records = CallRecords()
        self._active: set[str] = set()
        self._process: _Process | None = None

    # -- start and stop

    def start(self) -> Self:
        """Delete the node's ResourceSlices, read the state file and start to watch for drivers.

        `CheckpointError` if the state file is damaged.
        """
        if self._process is not None:
            raise RuntimeError(f"the kubelet of {self.node} runs already")
        self.registry_dir.mkdir(parents=True, exist_ok=True)
        self.plugins_dir.mkdir(parents=True, exist_ok=True)
        self._process = _Process(self, self._active)
        self._process.start()
        return self

    def stop(self) -> None:
        """Stop without notice to the drivers; calls in flight are cancelled. Slices and the state file stay.

        It returns when all calls of `run_pod`, `stop_pod` and `reconcile` have ended, so none changes the state file
        later.
        """
        process, self._process = self._process, None
        if process is not None:
            process.stop()

    def restart(self) -> None:
        """Stop and start: drivers register again, and claims are known from the state file only."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- drivers

    @property
    def plugins(self) -> list[PluginInfo]:
        """Every registered plugin."""
        return self._running.plugins.infos()

    @property
    def registration_errors(self) -> list[RegistrationError]:
        """The failed attempts to register since the start."""
        return self._running.watcher.errors

    def wait_for_driver(
        self, driver: str, *, instances: int = 1, connected: bool = True, timeout: float = WAIT_SECONDS
    ) -> list[PluginInfo]:
        """Wait until `instances` plugins of a driver are registered (and connected); `NotRegisteredError` if not."""

        def fit(infos: list[PluginInfo]) -> list[PluginInfo]:
            own = [info for info in infos if info.driver == driver and info.notified]
            return [info for info in own if info.connected or not connected]

        process = self._running
        if not process.plugins.wait(lambda infos: len(fit(infos)) >= instances, timeout):
            attempts = "; ".join(map(str, process.watcher.errors[-3:])) or "no attempt failed"
            why = f"{driver}: {instances} instance(s) not registered within {timeout:g} s ({attempts})"
            raise NotRegisteredError("registered", why, driver=driver)
        return fit(process.plugins.infos())

    def wait_for_no_driver(self, driver: str, timeout: float = WAIT_SECONDS) -> bool:
        """Wait until no plugin of a driver is connected; False after `timeout` seconds."""
        return self.wait_for_plugins(
            lambda infos: not any(info.connected for info in infos if info.driver == driver), timeout
        )

    def wait_for_plugins(self, predicate: Callable[[list[PluginInfo]], bool], timeout: float = WAIT_SECONDS) -> bool:
        """Wait until `predicate` is true for the registered plugins; False after `timeout` seconds."""
        return self._running.plugins.wait(predicate, timeout)

    @property
    def pending_wipes(self) -> set[str]:
        """The lost drivers whose ResourceSlices will be deleted."""
        return self._running.wiper.pending

    def retry(self, attempt: Callable[[], T], timeout: float = WAIT_SECONDS) -> T:
        """Call `attempt` until it raises no `KubeletError`, as a pod worker repeats the sync of its pod.

        The kubelet calls a driver once per sync of a pod and repeats a failed sync after 10 to 15 s; here the pause is
        `timing.pod_retry`. After `timeout` seconds the last error is raised.
        Source: Kubernetes 1.36 pkg/kubelet/pod_workers.go (completeWork), kubelet.go (backOffPeriod).
        """
        ends = time.monotonic() + timeout
        while True:
            process = self._running
            try:
                return attempt()
            except KubeletError:
                if time.monotonic() > ends or process.stopping.wait(self.timing.pod_retry):
                    raise

    def prepare(self, driver: str, claims: Sequence[ClaimRef]) -> dict[str, tuple[AnsweredDevice, ...]]:
        """Call NodePrepareResources once, with the kubelet's deadline and checks; the claims are not remembered."""
        return self._running.plugins.get(driver).prepare(claims)

    def unprepare(self, driver: str, claims: Sequence[ClaimRef]) -> None:
        """Call NodeUnprepareResources once, with the kubelet's deadline and checks."""
        self._running.plugins.get(driver).unprepare(claims)

    # -- pods

    def run_pod(self, pod: JSON) -> RunningPod:
        """Prepare a pod's claims, as before its sandbox is created. After an error the same pod may be run again."""
        process = self._running
        self._active.add(pod["metadata"]["uid"])
        return process.pod_call(lambda: process.manager.prepare(pod))

    def stop_pod(self, pod_uid: str) -> None:
        """End a pod: unprepare the claims that no other pod uses. After an error call it or `reconcile`."""
        process = self._running
        self._active.discard(pod_uid)
        process.pod_call(lambda: process.manager.unprepare(pod_uid))

    def reconcile(self) -> list[KubeletError]:
        """Unprepare for pods that no longer exist, as the kubelet does every minute; return the errors."""
        process = self._running
        return process.pod_call(lambda: process.manager.reconcile(self._active))

    @property
    def claims(self) -> list[ClaimInfo]:
        """The claims that the kubelet remembers."""
        return self._running.manager.cache.all()

    # -- health

    def health(self, driver: str, pool: str, device: str) -> ResourceHealth:
        """Return the health of a device now."""
        return self._running.health.get(driver, pool, device)

    def wait_for_health(self, driver: str, pool: str, device: str, health: str, timeout: float = WAIT_SECONDS) -> bool:
        """Wait until a device is `Healthy`, `Unhealthy` or `Unknown`; False after `timeout` seconds."""
        return self._running.health.wait(driver, pool, device, health, timeout)

    @property
    def _running(self) -> _Process:
        if self._process is None:
            raise _stopped(self.node)
        return self._process


class _Process:
    """The kubelet from a start to the next stop, and all that a restart forgets."""

    def __init__(self, kubelet: KubeletEmulator, active: set[str]) -> None:
        timing, records = kubelet.timing, kubelet.records
        self._kubelet = kubelet
        self._active = active
        self.stopping = threading.Event()
        self._pod_calls = 0
        self._changed = threading.Condition()  # guards _pod_calls, and that none begins when the kubelet stops
        self.health = HealthCache(timing.health_timeout, kubelet.clock)
        self.wiper = SliceWiper(kubelet.api, kubelet.node, timing)
        self.plugins = Plugins(timing, records, self.wiper, self._watch_health)
        self.watcher = RegistryWatcher(kubelet.registry_dir, Registrar(self.plugins, self.stopping))
        self.manager = ClaimManager(kubelet.api, self.plugins, ClaimCache(kubelet.state_file))
        self._reconciler = threading.Thread(target=self._reconcile, name="kubelet-reconciler")

    def pod_call(self, action: Callable[[], T]) -> T:
        """Call `action`, which changes the state file; `stop` waits for its end, and `StoppedError` after it."""
        with self._changed:
            if self.stopping.is_set():
                raise _stopped(self._kubelet.node)
            self._pod_calls += 1
        try:
            return action()
        finally:
            with self._changed:
                self._pod_calls -= 1
                self._changed.notify_all()

    def start(self) -> None:
        self.wiper.start()
        self.watcher.start()
        self._reconciler.start()

    def stop(self) -> None:
        with self._changed:
            self.stopping.set()
        # First, because the drivers are about to be deregistered, which must not delete their slices.
        self.wiper.stop()
        self.watcher.stop()
        self._reconciler.join()
        with self._changed:  # calls that have just lost their connection
            self._changed.wait_for(lambda: not self._pod_calls)

    def _reconcile(self) -> None:
        while not self.stopping.wait(self._kubelet.timing.reconcile):
            self.manager.reconcile(self._active)

    def _watch_health(self, plugin: RegisteredPlugin) -> Callable[[], None]:
        mode = self._kubelet.health_mode
        service = next((version for version in HEALTH_VERSIONS if version in plugin.info.versions), "")
        if mode == "always":
            service = HEALTH_V1ALPHA1
        if not service or mode == "off":
            return lambda: None
        return HealthWatch(plugin, service, self.health).stop


def _stopped(node: str) -> StoppedError:
    return StoppedError("running", f"the kubelet of {node} is not running")
