"""A DRA driver for network interfaces, which it moves into the pod."""

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

from dra_sdk import (
    Claim,
    ContainerEdits,
    Device,
    DeviceHealth,
    DriverInfo,
    HealthStatus,
    HeldClaim,
    NetDevice,
    Node,
    OpaqueConfig,
    PreparedDevice,
    RetriableError,
)
from dra_sdk.hardware import PciDevice, pci_attributes, read_hex, read_pci_devices, read_text, uevents
from pydantic import Field

NAME = "{{ cookiecutter.driver_name }}"
BASE_CLASS = 0x02  # network; compare `vendor` and `device` in `functions` to select your cards


class {{ cookiecutter.__class }}Config(OpaqueConfig, api_version=f"{NAME}/v1"):
    """What a claim may set: the largest packet, in bytes."""

    mtu: int = Field(default=1500, ge=68, le=65535)


class {{ cookiecutter.__class }}Driver:
    """Each PCI function is a device, because its interface cannot be seen on the node while a pod has it."""

    def dra_driver_info(self) -> DriverInfo:
        """Return the name, and the classes of configuration."""
        return DriverInfo(NAME, configs=[{{ cookiecutter.__class }}Config])

    def dra_discover(self, node: Node) -> Iterator[Device]:
        """Yield what is published. Claims select devices by attributes; `hardware` comes back in `dra_prepare`."""
        for name, function in functions(node).items():
            yield Device(name, attributes=pci_attributes(function), hardware=function)

    def dra_prepare(self, claim: Claim[{{ cookiecutter.__class }}Config]) -> Iterator[PreparedDevice]:
        """Set up each interface, and move it. The journal, written first, is for `dra_unprepare`."""
        for device in claim.devices:
            if device.admin_access:  # another claim may have the interface, and it cannot be in two pods
                yield device.prepared()
                continue
            path = interface(device.hardware.path)
            claim.journal({"function": str(device.hardware.path), "mtu": (path / "mtu").read_text()})
            (path / "mtu").write_text(str(device.config.mtu))
            yield device.prepared(ContainerEdits(net_devices=[NetDevice(path.name, path.name)]))

    def dra_unprepare(self, claim: HeldClaim) -> None:
        """Restore what the journal records, newest first; nothing of a function that was unplugged."""
        for entry in reversed(claim.journal):
            with claim.undoing(entry["function"]):  # its failure does not keep the others from being tried
                if Path(entry["function"]).exists():
                    (interface(Path(entry["function"])) / "mtu").write_text(entry["mtu"])

    def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        """Discover again when functions come or go."""
        uevents.watch(lambda: tuple(functions(node)), changed, stop, {"pci", "net"}, seconds=2)

    def dra_device_health(self, node: Node, stop: Event) -> Iterator[list[DeviceHealth]]:
        """Report health every second: a function that the kernel could not resume is unhealthy."""
        while not stop.wait(1):
            yield [DeviceHealth(name, status(function.path)) for name, function in functions(node).items()]


def functions(node: Node) -> dict[str, PciDevice]:
    """Find the PCI functions by the name that is published, without those whose interface is up, as used."""
    nics = [function for function in read_pci_devices(node) if function.base_class == BASE_CLASS]
    free = [nic for nic in nics if not any(read_hex(path / "flags") & 1 for path in nic.path.glob("net/*"))]
    return {f"nic-{nic.address}".replace(":", "-").replace(".", "-"): nic for nic in free}


def interface(function: Path) -> Path:
    """Return the interface of a PCI function, as long as no pod has it."""
    for path in function.glob("net/*"):
        return path
    raise RetriableError(f"PCI function {function.name} has no interface on the node: it is not back from a pod yet")


def status(function: Path) -> HealthStatus:
    """Read what the kernel says of a PCI function."""
    return HealthStatus.UNHEALTHY if read_text(function / "power/runtime_status") == "error" else HealthStatus.HEALTHY
