"""A DRA driver for PCI functions whose kernel driver makes device nodes."""

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
from dra_sdk.hardware import (
    PciDevice,
    device_file,
    pci_attributes,
    pci_device_name,
    read_pci_devices,
    read_text,
    uevents,
)

NAME = "{{ cookiecutter.driver_name }}"
BASE_CLASS = 0x12  # accelerators; compare `vendor` and `device` in `functions` to select your cards
NODES = "accel/*"  # where the kernel driver has its device nodes, below the function's directory in sysfs


class {{ cookiecutter.__class }}Config(OpaqueConfig, api_version=f"{NAME}/v1"):
    """What a claim may set: whether the kernel may suspend the function (`auto`) or not (`on`)."""

    power: Literal["auto", "on"] = "auto"


class {{ cookiecutter.__class }}Driver:
    """Each PCI function is a device, named after its address: hot plug would change the meaning of numbers."""

    def dra_driver_info(self) -> DriverInfo:
        """Return the name, and the classes of configuration."""
        return DriverInfo(NAME, configs=[{{ cookiecutter.__class }}Config])

    def dra_discover(self, node: Node) -> Iterator[Device]:
        """Yield what is published. Claims select devices by attributes; `hardware` comes back in `dra_prepare`."""
        for name, function in functions(node).items():
            yield Device(name, attributes=pci_attributes(function), hardware=function)

    def dra_prepare(self, claim: Claim[{{ cookiecutter.__class }}Config]) -> Iterator[PreparedDevice]:
        """Set up each device, and say what its containers get. The journal, written first, is for `dra_unprepare`."""
        for device in claim.devices:
            control = device.hardware.path / "power/control"
            if not device.admin_access:  # another claim may hold the device, so nothing is changed
                claim.journal({"file": str(control), "before": control.read_text()})
                control.write_text(device.config.power)
            nodes = [DeviceNode(device_file(path)) for path in sorted(device.hardware.path.glob(NODES))]
            yield device.prepared(ContainerEdits(device_nodes=nodes))

    def dra_unprepare(self, claim: HeldClaim) -> None:
        """Restore what the journal records, newest first; nothing of a function that was unplugged."""
        for entry in reversed(claim.journal):
            with claim.undoing(entry["file"]):  # its failure does not keep the others from being tried
                if Path(entry["file"]).exists():
                    Path(entry["file"]).write_text(entry["before"])

    def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        """Discover again when functions come or go."""
        uevents.watch(lambda: tuple(functions(node)), changed, stop, {"pci"}, seconds=2)

    def dra_device_health(self, node: Node, stop: Event) -> Iterator[list[DeviceHealth]]:
        """Report health every second: a function that the kernel could not resume is unhealthy."""
        while not stop.wait(1):
            yield [DeviceHealth(name, status(function.path)) for name, function in functions(node).items()]


def functions(node: Node) -> dict[str, PciDevice]:
    """Find the PCI functions by the name that is published: a DNS label."""
    functions = [function for function in read_pci_devices(node) if function.base_class == BASE_CLASS]
    return {pci_device_name(function.address): function for function in functions}


def status(path: Path) -> HealthStatus:
    """Read what the kernel says of a device, from its directory in sysfs."""
    return HealthStatus.UNHEALTHY if read_text(path / "power/runtime_status") == "error" else HealthStatus.HEALTHY
