"""A DRA driver for devices of the kernel that have a device node."""

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Literal

from dra_sdk import (
    Claim,
    ContainerEdits,
    Device,
    DeviceHealth,
    DeviceNode,
    DriverInfo,
    HealthStatus,
    HeldClaim,
    Node,
    OpaqueConfig,
    PreparedDevice,
)
from dra_sdk.hardware import device_file, read_optional, read_text, uevents
from dra_sdk.hardware.health import watch

NAME = "{{ cookiecutter.driver_name }}"
SUBSYSTEM = "{{ cookiecutter.__stem }}"  # as in /sys/class, such as `tty` or `accel`: put your own here
DEVICES = "*"  # which of the subsystem, by the kernel's names, such as `ttyUSB*`


class {{ cookiecutter.__class }}Config(OpaqueConfig, api_version=f"{NAME}/v1"):
    """What a claim may set: whether the kernel may suspend the device (`auto`) or not (`on`)."""

    power: Literal["auto", "on"] = "auto"


class {{ cookiecutter.__class }}Driver:
    """Each device of the subsystem is a device of this driver."""

    def dra_driver_info(self) -> DriverInfo:
        """Return name, classes of configuration, and what `dra-sdk capture` records beside what every node has."""
        return DriverInfo(NAME, configs=[{{ cookiecutter.__class }}Config], capture=[f"/sys/class/{SUBSYSTEM}/*"])

    def dra_discover(self, node: Node) -> Iterator[Device]:
        """Yield what is published. Claims select devices by attributes; `hardware` comes back in `dra_prepare`."""
        for name, path in devices(node).items():
            yield Device(name, attributes={"kernelName": path.name}, hardware=path)

    def dra_prepare(self, claim: Claim[{{ cookiecutter.__class }}Config]) -> Iterator[PreparedDevice]:
        """Set up each device, and say what its containers get. The journal, written first, is for `dra_unprepare`."""
        for device in claim.devices:
            control = device.hardware / "power/control"
            if not device.admin_access:  # another claim may hold the device, so nothing is changed
                claim.journal({"file": str(control), "before": control.read_text()})
                control.write_text(device.config.power)
            yield device.prepared(ContainerEdits(device_nodes=[DeviceNode(device_file(device.hardware))]))

    def dra_unprepare(self, claim: HeldClaim) -> None:
        """Restore what the journal records, newest first; nothing of a device that was unplugged."""
        for entry in reversed(claim.journal):
            with claim.undoing(entry["file"]):  # its failure does not keep the others from being tried
                if Path(entry["file"]).exists():
                    Path(entry["file"]).write_text(entry["before"])

    def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        """Discover again when devices come or go."""
        uevents.watch(lambda: tuple(devices(node)), changed, stop, {SUBSYSTEM}, seconds=2)

    def dra_device_health(self, node: Node, stop: Event) -> Iterator[list[DeviceHealth]]:
        """Report the health of all devices every second."""
        return watch(lambda: [health(name, path) for name, path in devices(node).items()], stop, 1, "the devices")


def devices(node: Node) -> dict[str, Path]:
    """Find the directory of each device in sysfs, by the name that is published: a DNS label."""
    files = sorted((node.sys / "class" / SUBSYSTEM).glob(DEVICES))
    return {path.name.lower().replace("_", "-"): path for path in files}


def health(name: str, path: Path) -> DeviceHealth:
    """Say how a device is: unhealthy if the kernel could not resume it."""
    failed = read_optional(read_text, path / "power/runtime_status") == "error"
    return DeviceHealth(name, HealthStatus.UNHEALTHY if failed else HealthStatus.HEALTHY)
