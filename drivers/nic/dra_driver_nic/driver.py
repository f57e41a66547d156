"""The driver: publishes network devices, moves them into pods and back, and reports their health."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import Final

from dra_driver_nic.config import NicConfig
from dra_driver_nic.describe.devices import DRIVER_NAME, make_pool
from dra_driver_nic.describe.node import NicNode, OpenNamespace
from dra_driver_nic.health import NicHealthMonitor
from dra_driver_nic.network.netlink import LinkEvents
from dra_driver_nic.network.rdma_netlink import OpenRdmaSocket
from dra_driver_nic.picture import draw, read_network
from dra_driver_nic.prepare.claim import prepare, unprepare
from dra_driver_nic.prepare.leases import renewed_leases
from dra_driver_nic.prepare.sandbox import run_pod_sandbox, stop_pod_sandbox
from dra_driver_nic.settings import NicSettings
from dra_sdk import Claim, DeviceHealth, DriverInfo, HealthStatus, HeldClaim, Node, PreparedDevice, ResourcePool
from dra_sdk.hardware import read_pci_devices, uevents
from dra_sdk.hardware.node_access import NodeAccess, NodeEffects, SystemEffects
from dra_sdk.hardware.polling import Clock
from dra_sdk.hardware.uevents import UeventSource
from dra_sdk.nri import PodSandbox

log = logging.getLogger(__name__)
HEALTH_SECONDS: Final = 5.0
CALL_SECONDS: Final = 40.0  # for all waits of one call together: the kubelet gives up after 45 without a reason
SANDBOX_SECONDS: Final = 0.8  # likewise: after 1 the SDK answers the container runtime with an error


class NicDriver:
    """DRA driver `dra.net`. Without `settings` it has their defaults.

    effects: what is done to the node's files, by default for real.
    open_namespace: opens network namespaces; by default those of the kernel.
    open_rdma: opens sockets of RDMA netlink; by default those of the kernel.
    events: opens the source of the events by which it notices changes of interfaces.
    interval: seconds between two readings of the health, and between two checks of the leases by DHCP.
    sandbox_seconds: how long the waits of a call about a sandbox may take together.
    """

    settings_class = NicSettings

    def __init__(
        self,
        settings: NicSettings | None = None,
        *,
        effects: NodeEffects | None = None,
        open_namespace: OpenNamespace | None = None,
        open_rdma: OpenRdmaSocket | None = None,
        events: Callable[[], UeventSource] = LinkEvents,
        interval: float = HEALTH_SECONDS,
        sandbox_seconds: float = SANDBOX_SECONDS,
    ) -> None:
        self._settings = settings or NicSettings()
        self._effects = effects or SystemEffects()
        self._open_namespace = open_namespace
        self._open_rdma = open_rdma
        self._events = events
        self._interval = interval
        self._sandbox_seconds = sandbox_seconds
        self._monitors: dict[Path, NicHealthMonitor] = {}

    def dra_driver_info(self) -> DriverInfo:
        """Return name and configuration; containers find the names of their interfaces in the metadata file.

        A reboot undoes every change of an interface, of a virtual function and of a kernel driver's binding.
        """
        return DriverInfo(
            DRIVER_NAME,
            configs=[NicConfig],
            cdi_kind="dra.net/nic",
            metadata=True,
            volatile=True,
            class_only=self._settings.class_only,
        )

    def dra_discover(self, node: Node) -> Iterator[ResourcePool]:
        """Yield every network device that claims may have, also while a pod has it."""
        yield self._pool(node)

    def _pool(self, node: Node) -> ResourcePool:
        nic_node = self._node(node)
        functions = read_pci_devices(node) if self._settings.device_mode == "partitionable" else ()
        return make_pool(node.name, nic_node.devices(), nic_node.recorded(), functions)

    def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        """Notice what would be published differently, by netlink's events; RDMA ports within ten seconds.

        Leases by DHCP are renewed as long as it runs.
        """
        with renewed_leases(self._node(node), self._interval):
            uevents.watch(lambda: self._published(node), changed, stop, (), source=self._events)

    def _published(self, node: Node) -> Hashable:
        return repr(self._pool(node))

    def dra_device_health(self, node: Node, stop: Event) -> Iterator[list[DeviceHealth]]:
        """Read carriers, RDMA ports and kernel drivers every few seconds."""
        monitor = self._monitors.setdefault(node.root, NicHealthMonitor(self._node(node)))
        return monitor.watch(stop, self._interval)

    def dra_prepare(self, claim: Claim[NicConfig]) -> Iterator[PreparedDevice]:
        """Plan how the claim's interfaces change, and set up what does not need the pod."""
        return prepare(self._node(claim.node, CALL_SECONDS), claim)

    def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
        """Bring the claim's interfaces back, and undo what its journal lists."""
        unprepare(self._node(node, CALL_SECONDS), claim)

    def dra_top(self, node: Node, held: Sequence[HeldClaim]) -> Iterator[str]:
        """Yield who has which interface, card by card."""
        nic_node = self._node(node)
        report = NicHealthMonitor(nic_node, settle=0.0).read()
        unhealthy = frozenset(health.device for health in report if health.status is HealthStatus.UNHEALTHY)
        return draw(read_network(nic_node, unhealthy), held)

    def dra_run_pod_sandbox(self, pod: PodSandbox, node: Node) -> None:
        """Move the interfaces of the pod's claims into its network namespace, all or none."""
        run_pod_sandbox(self._node(node, self._sandbox_seconds), pod)

    def dra_stop_pod_sandbox(self, pod: PodSandbox, node: Node) -> None:
        """Bring them back."""
        stop_pod_sandbox(self._node(node, self._sandbox_seconds), pod)

    def _node(self, node: Node, seconds: float | None = None) -> NicNode:
        access = NodeAccess(node.root, self._effects, Clock())
        limited = access if seconds is None else access.within(seconds)
        return NicNode(limited, self._settings, self._open_namespace, self._open_rdma)
