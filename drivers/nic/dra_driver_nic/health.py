"""The health of devices: whether the interface has a carrier, the RDMA port is active, the kernel driver is there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from threading import Event

from dra_driver_nic.describe.devices import NicRecord
from dra_driver_nic.describe.nics import Nic
from dra_driver_nic.describe.node import NicNode
from dra_driver_nic.network.links import Link
from dra_driver_nic.network.rdma import RdmaDevice, read_rdma_devices
from dra_sdk import DeviceHealth, DraError
from dra_sdk.hardware import exists, health
from dra_sdk.hardware.health import HealthTracker


class NicHealthMonitor:
    """Reads the health of a node's devices again and again.

    node: the node.
    settle: seconds for which a problem must last; by default those of the settings.
    clock: a steady clock, in seconds.
    """

    def __init__(self, node: NicNode, settle: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._node = node
        self._tracker = HealthTracker(settle=node.settings.settle_seconds if settle is None else settle, clock=clock)
        self._known: set[str] = set()

    def watch(self, stop: Event, interval: float) -> Iterator[list[DeviceHealth]]:
        """Report the health every `interval` seconds until `stop` is set."""
        return health.watch(self.read, stop, interval, "network devices")

    def read(self) -> list[DeviceHealth]:
        """Read all devices once. A device that is no longer published has no health."""
        try:
            nics, records = self._node.devices(), self._node.recorded()
            rdma = {device.name: device for device in read_rdma_devices(self._node.host)}
        except (DraError, OSError) as error:
            for name in self._known:
                self._tracker.unreadable(name, str(error))
            return self._tracker.report()
        now = {*nics, *records}
        for name in sorted(now ^ self._known):
            self._tracker.publish(name, {name: None} if name in now else {})
        self._known = now
        for name in sorted(now):
            nic, record = nics.get(name), records.get(name)
            problems = self._problems_of_function(record) if record is not None else []
            problems = problems or (_problems(nic) if nic is not None else self._problems_in_pod(records[name], rdma))
            self._tracker.observe(name, problems)
        return self._tracker.report()

    def _problems_of_function(self, record: NicRecord) -> list[str]:
        """List those of a claimed device's PCI function, which the node shows also while a pod has the interface."""
        address = record.attributes.get("pciAddress")
        function = self._node.function(str(address))
        if address is None:
            return []
        if not exists(function):
            return [f"PCI function {address} has gone from the node"]
        return [] if exists(function / "driver") else [f"PCI function {address} has no kernel driver"]

    def _problems_in_pod(self, record: NicRecord, rdma: Mapping[str, RdmaDevice]) -> list[str]:
        """List those of an interface in a pod: of the link there, and of its RDMA device as the node shows it."""
        with self._node.pod_namespace(record.namespace, record.namespace_id) as pod:
            link = pod.run(lambda network: network.find(record.tag)) if pod is not None and record.tag else None
        problems = _link_problems(link) if link is not None else []
        device = rdma.get(str(record.attributes.get("rdmaDevice")))
        return [*problems, *(_rdma_problems(device) if device is not None else ())]


def _problems(nic: Nic) -> list[str]:
    link = _link_problems(nic.link) if nic.link is not None else []
    return [*link, *(problem for device in nic.rdma for problem in _rdma_problems(device))]


def _link_problems(link: Link) -> list[str]:
    """Report a missing carrier, but not of an interface that is switched off, which has none either."""
    return [f"interface {link.name} has no carrier"] if link.up and not link.carrier else []


def _rdma_problems(device: RdmaDevice) -> list[str]:
    """Report ports that are not active, but not of Ethernet: they follow their interface, which may be switched off."""
    return [
        f"port {port.number} of RDMA device {device.name} is {port.state or 'in an unknown state'}"
        for port in device.ports
        if port.link_layer != "Ethernet" and port.state != "ACTIVE"
    ]
