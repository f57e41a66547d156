"""The registered plugins, which are instances of drivers: their connections and the calls to them.

Each plugin has one channel. It connects at once and again after each loss, and the newest connected plugin of a driver
is called. Source: Kubernetes 1.36 pkg/kubelet/cm/dra/plugin; manager.go for the checks of answers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dra_sdk.model.claim import ClaimRef
from dra_sdk.node.kubelet.draplugin import VERSIONS
from dra_sdk.tools.simulator.kubelet.calls import ClaimsResponse, Connectivity, KubeletCalls
from dra_sdk.tools.simulator.kubelet.records import (
    PREPARE,
    UNPREPARE,
    AnsweredDevice,
    CallRecords,
    DriverCall,
    DriverCallError,
    KubeletError,
    NotRegisteredError,
    RegistrationError,
    ResponseError,
    claim_name,
)
from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming
from dra_sdk.tools.simulator.kubelet.wipes import SliceWiper


@dataclass(frozen=True)
class PluginInfo:
    """What the kubelet knows of one plugin.

    driver: the name of the driver.
    socket: the path of the registration socket.
    endpoint: the path of the service socket.
    service: the version of the DRAPlugin service that the kubelet chose.
    versions: the services that the plugin advertised.
    notified: whether the plugin was notified that it is registered.
    connected: whether the channel is connected.
    """

    driver: str
    socket: str
    endpoint: str
    service: str
    versions: tuple[str, ...]
    notified: bool = False
    connected: bool = False


class RegisteredPlugin:
    """One registered plugin. Calls to it have the kubelet's deadline and checks, and are recorded."""

    def __init__(self, info: PluginInfo, timing: KubeletTiming, records: CallRecords) -> None:
        self.info = info
        self.calls = KubeletCalls(info.endpoint, timing, info.driver)
        self.connectivity: Connectivity | None = None
        self.timing = timing
        self.records = records

    def prepare(self, claims: Sequence[ClaimRef]) -> dict[str, tuple[AnsweredDevice, ...]]:
        """Call NodePrepareResources; return the devices by claim UID. `DriverCallError`, `ResponseError`."""
        return self._call(PREPARE, claims, self.calls.prepare)

    def unprepare(self, claims: Sequence[ClaimRef]) -> None:
        """Call NodeUnprepareResources. `DriverCallError`, `ResponseError`."""
        self._call(UNPREPARE, claims, self.calls.unprepare)

    def disconnect(self) -> None:
        """Close the channel; calls in flight fail."""
        if self.connectivity:
            self.connectivity.stop()
        self.calls.close()

    def _call(
        self, kind: str, claims: Sequence[ClaimRef], send: Callable[[Sequence[ClaimRef], str], ClaimsResponse]
    ) -> dict[str, tuple[AnsweredDevice, ...]]:
        started, info = time.monotonic(), self.info
        response = send(claims, info.service)
        devices = {uid: answer.devices for uid, answer in response.claims.items()}
        error = ""
        try:
            self._check(claims, response)
        except KubeletError as failure:
            error = str(failure)
            raise
        finally:
            call = DriverCall(
                kind, info.driver, info.endpoint, started, response.seconds, error, tuple(claims), devices
            )
            self.records.add_call(call)
        return devices

    def _check(self, claims: Sequence[ClaimRef], response: ClaimsResponse) -> None:
        """Raise `DriverCallError`, or `ResponseError` unless each claim has exactly one entry, without an error."""
        method, answers = response.method, response.claims
        if not response.ok:
            late = f"the driver has not answered within {self.timing.call:g} s; the kubelet gives up and calls again"
            is_late = response.code.name == "DEADLINE_EXCEEDED"
            why, info = f"{method}: {late if is_late else response.status}", self.info
            raise DriverCallError(why, code=response.code.name, driver=info.driver, socket=info.endpoint)
        asked = {claim.uid: claim for claim in claims}
        for uid in answers:
            if uid not in asked:
                raise self._response_error(
                    "unknown-claim", f"{method} returned result for unknown claim UID {uid}", uid
                )
        for uid, claim in asked.items():
            if uid in answers and answers[uid].error:
                why = f"{method} failed for ResourceClaim {claim.name}: {answers[uid].error}"
                raise self._response_error("claim-error", why, claim_name(claim))
        missing = [claim for uid, claim in asked.items() if uid not in answers]
        if missing:
            why = f"{method} skipped {len(missing)} ResourceClaims"
            raise self._response_error("missing-claim", why, ", ".join(map(claim_name, missing)))

    def _response_error(self, rule: str, why: str, claim: str) -> ResponseError:
        return ResponseError(rule, why, driver=self.info.driver, socket=self.info.endpoint, claim=claim)


def choose_service(socket: str, driver: str, versions: tuple[str, ...]) -> str:
    """Return the first of the driver's versions that the kubelet supports; `RegistrationError` if there is none."""
    if version := next((version for version in versions if version in VERSIONS), ""):
        return version
    why = (
        f"none of services supported by the plugin ({list(versions)}) are supported by the kubelet ({list(VERSIONS)})"
        if versions
        else "empty list of supported gRPC services (aka supported versions)"
    )
    raise RegistrationError("supported-versions", why, driver=driver, socket=socket)


WatchHealth = Callable[[RegisteredPlugin], Callable[[], None]]
"""Watches the health of a plugin's devices; returns what stops it."""


class Plugins:
    """The registered plugins. `watch_health` is called with each new one."""

    def __init__(
        self, timing: KubeletTiming, records: CallRecords, wiper: SliceWiper, watch_health: WatchHealth
    ) -> None:
        self.timing = timing
        self.records = records
        self._wiper = wiper
        self._watch_health = watch_health
        self._changed = threading.Condition()
        self._plugins: dict[str, list[RegisteredPlugin]] = {}
        self._health: dict[RegisteredPlugin, Callable[[], None]] = {}

    def add(self, info: PluginInfo) -> RegisteredPlugin:
        """Register a plugin and connect to it; `RegistrationError` if its endpoint is registered already."""
        with self._changed:
            others = self._plugins.setdefault(info.driver, [])
            if any(other.info.endpoint == info.endpoint for other in others):
                why = f"endpoint {info.endpoint} already registered for DRA driver plugin {info.driver}"
                raise RegistrationError("endpoint-taken", why, driver=info.driver, socket=info.socket)
            plugin = RegisteredPlugin(info, self.timing, self.records)
            others.append(plugin)
            self._health[plugin] = self._watch_health(plugin)
            self._sync(info.driver)
        # Connecting before the first call tells the kubelet early whether the driver is there.
        plugin.connectivity = Connectivity(plugin.calls.channel, lambda connected: self._observed(plugin, connected))
        return plugin

    def remove(self, plugin: RegisteredPlugin) -> None:
        """Deregister a plugin and close its channel; calls in flight fail."""
        driver = plugin.info.driver
        with self._changed:
            self._plugins[driver].remove(plugin)
            if not self._plugins[driver]:
                del self._plugins[driver]
            plugin.info = replace(plugin.info, connected=False)
            stop_health = self._health.pop(plugin)
            self._sync(driver)
        stop_health()
        plugin.disconnect()

    def set_notified(self, plugin: RegisteredPlugin) -> None:
        """Note that the plugin was notified of its registration."""
        with self._changed:
            plugin.info = replace(plugin.info, notified=True)
            self._changed.notify_all()

    def get(self, driver: str) -> RegisteredPlugin:
        """Return the plugin to call: the newest connected one, else the newest; `NotRegisteredError` if none is."""
        with self._changed:
            plugins = self._plugins.get(driver, [])
            if not plugins:
                raise NotRegisteredError("registered", f"DRA driver {driver} is not registered", driver=driver)
            connected = [plugin for plugin in plugins if plugin.info.connected]
            return (connected or plugins)[-1]

    def infos(self) -> list[PluginInfo]:
        """Return every plugin, per driver in the order of registration."""
        with self._changed:
            return [plugin.info for plugins in self._plugins.values() for plugin in plugins]

    def wait(self, predicate: Callable[[list[PluginInfo]], bool], timeout: float) -> bool:
        """Wait until `predicate` is true for the plugins; False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: predicate(self.infos()), timeout)

    def _observed(self, plugin: RegisteredPlugin, connected: bool) -> None:
        driver = plugin.info.driver
        with self._changed:
            if plugin not in self._plugins.get(driver, []):
                return
            plugin.info = replace(plugin.info, connected=connected)
            self._sync(driver)

    def _sync(self, driver: str) -> None:
        if any(plugin.info.connected for plugin in self._plugins.get(driver, [])):
            self._wiper.cancel(driver)
        else:
            self._wiper.schedule(driver)
        self._changed.notify_all()
