"""A kubelet as far as DRA drivers see one, over the real unix sockets.

    with KubeletEmulator("node-1", LocalClient(store), directory) as kubelet:
        kubelet.wait_for_driver("gpu.example.com")
        pod = kubelet.run_pod(pod_object)

`kubelet_dir` is laid out like /var/lib/kubelet. What the emulator asks drivers is in `calls`, what it found odd in
`findings`.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Literal, TypeVar

from dra_sdk.tools.simulator.kubelet import wire
from dra_sdk.tools.simulator.kubelet.calls import Caller
from dra_sdk.tools.simulator.kubelet.claims import ClaimCache
from dra_sdk.tools.simulator.kubelet.errors import KubeletError, NotRegisteredError, StoppedError
from dra_sdk.tools.simulator.kubelet.health import HealthCache, HealthMonitor
from dra_sdk.tools.simulator.kubelet.manager import ClaimManager
from dra_sdk.tools.simulator.kubelet.plugins import Plugin, PluginInfo, Plugins
from dra_sdk.tools.simulator.kubelet.records import Records
from dra_sdk.tools.simulator.kubelet.registration import Registrar
from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming
from dra_sdk.tools.simulator.kubelet.watcher import RegistryWatcher
from dra_sdk.tools.simulator.kubelet.wipes import SliceWiper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from dra_sdk.model import JSON
    from dra_sdk.tools.simulator.kubelet.claims import ClaimInfo
    from dra_sdk.tools.simulator.kubelet.errors import RegistrationError
    from dra_sdk.tools.simulator.kubelet.health import DeviceHealth
    from dra_sdk.tools.simulator.kubelet.pods import RunningPod
    from dra_sdk.tools.simulator.kubelet.records import Call, ClaimRef, Finding, PreparedDevice
    from dra_sdk.tools.simulator.local import LocalClient

HealthMode = Literal["negotiate", "always", "off"]
"""Whom the kubelet asks for health: drivers that advertise it (1.37), all (1.36), or none (gate off, so 1.34, 1.35)."""

T = TypeVar("T")
STATE_FILE = "dra_manager_state"
WAIT_SECONDS = 30.0  # what is waited for takes milliseconds, seconds on a busy machine


class KubeletEmulator:
    """One node's kubelet. It may be stopped and started again: then it has forgotten what a real one forgets."""

    def __init__(
        self,
        node: str,
        api: LocalClient,
        kubelet_dir: Path,
        *,
        timing: KubeletTiming | None = None,
        health: HealthMode = "negotiate",
    ) -> None:
        self.node = node
        self.api = api
        self.kubelet_dir = kubelet_dir
        self.registry_dir = kubelet_dir / "plugins_registry"
        self.plugins_dir = kubelet_dir / "plugins"
        self.state_file = kubelet_dir / STATE_FILE
        self.timing = timing or KubeletTiming()
        self.health_mode: HealthMode = health
        self.records = Records()
        self._active: set[str] = set()
        self._session: _Session | None = None

    # -- life

    def start(self) -> Self:
        """Deletes the node's ResourceSlices, reads the state file and starts to look for drivers.

        `CheckpointError` where the state file is damaged.
        """
        if self._session is not None:
            raise RuntimeError(f"the kubelet of {self.node} runs already")
        self.registry_dir.mkdir(parents=True, exist_ok=True)
        self.plugins_dir.mkdir(parents=True, exist_ok=True)
        self._session = _Session(self, self._active)
        self._session.start()
        return self

    def stop(self) -> None:
        """Stops without telling drivers anything; calls in flight are cut off. Slices and the state file stay."""
        session, self._session = self._session, None
        if session is not None:
            session.stop()

    def restart(self) -> None:
        """Stops and starts: registrations and what is prepared are forgotten, the state file is read again."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # -- drivers

    @property
    def plugins(self) -> list[PluginInfo]:
        """Every registered instance."""
        return self._running.plugins.all()

    @property
    def registration_errors(self) -> list[RegistrationError]:
        """The attempts to register that failed since the start."""
        return self._running.watcher.errors

    def wait_for_driver(
        self, driver: str, *, instances: int = 1, connected: bool = True, timeout: float = WAIT_SECONDS
    ) -> list[PluginInfo]:
        """Waits until so many instances of a driver are registered (and connected); else `NotRegisteredError`."""

        def fit(infos: list[PluginInfo]) -> list[PluginInfo]:
            own = [info for info in infos if info.driver == driver and info.told]
            return [info for info in own if info.connected or not connected]

        session = self._running
        if not session.plugins.wait(lambda infos: len(fit(infos)) >= instances, timeout):
            attempts = "; ".join(map(str, session.watcher.errors[-3:])) or "no attempt failed"
            why = f"{driver}: {instances} instance(s) not registered within {timeout:g} s ({attempts})"
            raise NotRegisteredError("registered", why, driver=driver)
        return fit(session.plugins.all())

    def wait_for_no_driver(self, driver: str, timeout: float = WAIT_SECONDS) -> bool:
        """Waits until no instance of a driver is connected; False after `timeout` seconds."""
        return self._running.plugins.wait(
            lambda infos: not any(info.connected for info in infos if info.driver == driver), timeout
        )

    def retry(self, attempt: Callable[[], T], timeout: float = WAIT_SECONDS) -> T:
        """Repeats `attempt` until it raises no `KubeletError`, as a pod worker repeats the sync of its pod.

        The kubelet makes one attempt per sync, whatever the error, and syncs again 10 to 15 s later; here the pause is
        `timing.pod_retry`. After `timeout` seconds the last error is raised.
        Source: Kubernetes 1.36 pkg/kubelet/pod_workers.go (completeWork), kubelet.go (backOffPeriod).
        """
        ends = time.monotonic() + timeout
        while True:
            session = self._running
            try:
                return attempt()
            except KubeletError:
                if session.pause(self.timing.pod_retry) or time.monotonic() > ends:
                    raise

    def prepare(self, driver: str, claims: Sequence[ClaimRef]) -> dict[str, tuple[PreparedDevice, ...]]:
        """One bare NodePrepareResources with the kubelet's deadline and checks; nothing is remembered."""
        session = self._running
        return session.caller.prepare(session.plugins.get(driver), claims)

    def unprepare(self, driver: str, claims: Sequence[ClaimRef]) -> None:
        """One bare NodeUnprepareResources with the kubelet's deadline and checks; nothing is remembered."""
        session = self._running
        session.caller.unprepare(session.plugins.get(driver), claims)

    # -- pods

    def run_pod(self, pod: JSON) -> RunningPod:
        """Prepares a pod's claims, as before its sandbox is made. After an error the same pod may be tried again."""
        session = self._running
        self._active.add(pod["metadata"]["uid"])
        return session.manager.prepare(pod)

    def stop_pod(self, pod_uid: str) -> None:
        """The pod is gone: unprepares what no other pod holds. On an error `reconcile` tries again, as does this."""
        session = self._running
        self._active.discard(pod_uid)
        session.manager.unprepare(pod_uid)

    def reconcile(self) -> list[KubeletError]:
        """Unprepares for pods that are gone and still hold claims, as the kubelet does every minute; returns errors."""
        return self._running.manager.reconcile(self._active)

    @property
    def claims(self) -> list[ClaimInfo]:
        """The claims that the kubelet remembers."""
        return self._running.manager.cache.all()

    # -- health

    def health(self, driver: str, pool: str, device: str) -> DeviceHealth:
        """The health of a device now."""
        return self._running.health.get(driver, pool, device)

    def wait_for_health(self, driver: str, pool: str, device: str, health: str, timeout: float = WAIT_SECONDS) -> bool:
        """Waits until a device is `Healthy`, `Unhealthy` or `Unknown`; False after `timeout` seconds."""
        return self._running.health.wait(driver, pool, device, health, timeout)

    def resource_status(self, pod: RunningPod, container: str) -> list[JSON]:
        """`allocatedResourcesStatus` of a container, as the kubelet writes it into the pod's status."""
        statuses: list[JSON] = []
        for wanted in pod.containers[container]:
            resources: dict[str, JSON] = {}
            for device in pod.devices[wanted.claim]:
                if device.serves(wanted.request):
                    key = device.cdi_ids[0] if device.cdi_ids else f"{device.driver}/{device.pool}/{device.device}"
                    health = self.health(device.driver, device.pool, device.device)
                    entry = {"resourceID": key, "health": health.health}
                    resources.setdefault(key, entry | ({"message": health.message} if health.message else {}))
            name = f"claim:{wanted.claim}" + (f"/{wanted.request}" if wanted.request else "")
            if resources:
                statuses.append({"name": name, "resources": list(resources.values())})
        return statuses

    # -- records

    def calls(self, kind: str = "", driver: str = "") -> list[Call]:
        """The calls made so far, over all restarts; `kind` and `driver` "" for any."""
        return self.records.calls(kind, driver)

    @property
    def findings(self) -> list[Finding]:
        """What was wrong with answers that the kubelet accepted."""
        return self.records.findings

    @property
    def _running(self) -> _Session:
        if self._session is None:
            raise StoppedError("running", f"the kubelet of {self.node} is not running")
        return self._session


class _Session:
    """One life of the kubelet process, from start to stop."""

    def __init__(self, kubelet: KubeletEmulator, active: set[str]) -> None:
        timing, records = kubelet.timing, kubelet.records
        self._timing = timing
        self._records = records
        self._health_mode = kubelet.health_mode
        self._active = active
        self._stopping = threading.Event()
        self.health = HealthCache(timing.health_timeout)
        self.caller = Caller(timing, records)
        cache = ClaimCache(kubelet.state_file)
        self.wiper = SliceWiper(kubelet.api, kubelet.node, timing)
        self.plugins = Plugins(timing, self.wiper, self._watch_health)
        registrar = Registrar(self.plugins, timing, records, self._stopping)
        self.watcher = RegistryWatcher(kubelet.registry_dir, self.plugins, registrar, timing, self._stopping)
        self.manager = ClaimManager(kubelet.api, self.plugins, cache, self.caller, records)
        self._reconciler = threading.Thread(target=self._reconcile, name="kubelet-reconciler")

    def pause(self, seconds: float) -> bool:
        """Waits so many seconds, less where the kubelet stops; whether it stops."""
        return self._stopping.wait(seconds)

    def start(self) -> None:
        self.wiper.start()
        self.watcher.start()
        self._reconciler.start()

    def stop(self) -> None:
        self._stopping.set()
        # First of all, or losing the drivers below would count as their disappearance.
        self.wiper.stop()
        self.watcher.stop()
        self._reconciler.join()

    def _reconcile(self) -> None:
        while not self._stopping.wait(self._timing.reconcile):
            self.manager.reconcile(self._active)

    def _watch_health(self, plugin: Plugin) -> Callable[[], None]:
        service = next((s for s in (wire.HEALTH_V1, wire.HEALTH_V1ALPHA1) if s in plugin.info.versions), "")
        if self._health_mode == "always":
            service = wire.HEALTH_V1ALPHA1
        if not service or self._health_mode == "off":
            return _nothing
        return HealthMonitor(plugin, service, self.health, self._timing, self._records).stop


def _nothing() -> None:
    return
