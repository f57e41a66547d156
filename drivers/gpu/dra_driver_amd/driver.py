"""The driver: publishes AMD GPUs, prepares them for claims, notices changes, and reports their health."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any, Final

from dra_driver_amd.config import CONFIGS
from dra_driver_amd.devices import DRIVER_NAME, make_pool, read_driver_attributes
from dra_driver_amd.health import AmdHealthMonitor
from dra_driver_amd.node import AmdNode
from dra_driver_amd.passthrough import PassthroughFunction, read_passthrough
from dra_driver_amd.prepare import prepare, unprepare
from dra_driver_amd.settings import AmdSettings
from dra_sdk import Claim, DeviceHealth, DriverInfo, HeldClaim, Node, PreparedDevice, ResourcePool
from dra_sdk.hardware import polling
from dra_sdk.hardware.node_access import NodeEffects, SystemEffects
from dra_sdk.hardware.polling import Clock

CDI_KIND: Final = "k8s.gpu.amd.com/gpu"
WATCH_SECONDS: Final = 5.0
CALL_SECONDS: Final = 40.0  # for all waits of one call together: the kubelet gives up after 45 without a reason


class AmdGpuDriver:
    """DRA driver `gpu.amd.com`.

    `effects` is what is done to the node, by default for real. Every `interval` seconds the driver checks for changes
    and reads the health of GPUs. Without `settings` it has their defaults.
    """

    settings_class = AmdSettings

    def __init__(
        self,
        settings: AmdSettings | None = None,
        *,
        effects: NodeEffects | None = None,
        clock: Clock | None = None,
        interval: float = WATCH_SECONDS,
    ) -> None:
        self._settings = settings or AmdSettings()
        self._effects = effects or SystemEffects()
        self._clock = clock or Clock()
        self._interval = interval
        self._monitors: dict[Path, AmdHealthMonitor] = {}

    def dra_driver_info(self) -> DriverInfo:
        """Return name, configuration and CDI kind; virtual machines read the PCI address from the metadata file."""
        return DriverInfo(DRIVER_NAME, configs=CONFIGS, cdi_kind=CDI_KIND, metadata=self._settings.passthrough)

    def dra_discover(self, node: Node) -> Iterator[ResourcePool]:
        """Yield one pool: each GPU or, if it is partitioned, each partition; and VFIO devices if they are wanted."""
        amd = self._node(node)
        recorded = amd.recorded().items()
        bound = {address: (record.product, record.capacity) for address, record in recorded if record is not None}
        yield make_pool(node.name, amd.gpus(), self._functions(amd), read_driver_attributes(amd.host), bound)

    def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        """Check every few seconds: GPUs come and go, and their number changes with the partition mode."""
        amd = self._node(node)
        polling.watch(lambda: frozenset([*amd.gpus(), *self._functions(amd)]), changed, stop, self._interval)

    def dra_device_health(self, node: Node, stop: Event) -> Iterator[list[DeviceHealth]]:
        """Read error counters, kernel drivers and KFD every few seconds."""
        return self.health_monitor(node).watch(stop, self._interval)

    def health_monitor(self, node: Node, now: Callable[[], float] = time.monotonic) -> AmdHealthMonitor:
        """Return the monitor of a node, which remembers its GPUs; `now` is a steady clock, in seconds."""
        if node.root not in self._monitors:
            amd, settle = self._node(node), self._settings.settle_seconds
            self._monitors[node.root] = AmdHealthMonitor(amd.host, amd.gpus, lambda: self._functions(amd), settle, now)
        return self._monitors[node.root]

    def dra_prepare(self, claim: Claim[Any]) -> Iterator[PreparedDevice]:
        """Set up the claim's devices."""
        return prepare(self._node(claim.node).within(CALL_SECONDS), claim)

    def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
        """Undo what the claim's journal lists."""
        unprepare(self._node(node).within(CALL_SECONDS), claim)

    def _node(self, node: Node) -> AmdNode:
        return AmdNode(node.root, self._effects, self._clock, settings=self._settings)

    def _functions(self, node: AmdNode) -> tuple[PassthroughFunction, ...]:
        return read_passthrough(node.host) if self._settings.passthrough else ()
