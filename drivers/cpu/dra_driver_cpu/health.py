"""The health of the devices: whether CPUs that they had have gone offline since the driver started.

A device that claims take as a whole is unhealthy while one of its CPUs is offline. A group of which claims take a
number is unhealthy only while all its CPUs are: claims get the CPUs that are left, and the message names the others. A
CPU that was offline at the start was switched off on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from threading import Event
from typing import Final

from dra_driver_cpu.allocatable import read_usable_cpus
from dra_driver_cpu.devices import CpuGroup
from dra_sdk import DeviceHealth
from dra_sdk.hardware import CpuSet, Host, format_cpuset, health, read_cpuset
from dra_sdk.hardware.health import HealthTracker

INTERVAL: Final = 5.0
"""Seconds between two readings."""


class CpuHealth:
    """The health of a node's devices. It is kept from one call of `watch` to the next; only one may run at a time.

    groups: reads the groups that can be published now.
    shared: whether claims take a number of CPUs of a device.
    """

    def __init__(self, host: Host, groups: Callable[[], Iterable[CpuGroup]], *, shared: bool) -> None:
        self._host = host
        self._groups, self._shared = groups, shared
        self._cpus: dict[str, CpuSet] = {}  # of each device, all that it has had
        self._tracker = HealthTracker()

    def watch(self, stop: Event, interval: float = INTERVAL) -> Iterator[list[DeviceHealth]]:
        """Yield all devices, every `interval` seconds until `stop` is set: what `dra_device_health` yields."""
        return health.watch(self.look, stop, interval, "CPUs")

    def look(self) -> list[DeviceHealth]:
        """Read once, and return the health of all devices."""
        for group in self._groups():
            self._cpus[group.name] = self._cpus.get(group.name, frozenset()) | group.cpus
        online, usable = read_cpuset(self._host.sys / "devices/system/cpu/online"), read_usable_cpus(self._host)
        for name, cpus in self._cpus.items():
            why = {"offline": cpus - online, "outside of the cgroup of pods": (cpus & online) - usable}
            problems = [f"CPUs {format_cpuset(missing)} are {reason}" for reason, missing in why.items() if missing]
            is_problem = not self._shared or not cpus & usable
            self._tracker.publish(name, {name: None})
            self._tracker.observe(name, problems if is_problem else [], remarks=[] if is_problem else problems)
        return self._tracker.report()
