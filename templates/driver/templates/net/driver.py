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
from dra_sdk.hardware import PciDevice, pci_attributes, pci_device_name, read_hex, read_pci_devices, read_text, uevents
from dra_sdk.hardware.health import watch
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
        """Report the health of all functions every second."""
        return watch(lambda: [DeviceHealth(name, status(n)) for name, n in functions(node).items()], stop, 1, "NICs")


def functions(node: Node) -> dict[str, PciDevice]:
    """Find the PCI functions by the name that is published, without those whose interface is up, as used."""
    nics = read_pci_devices(node, base_class=BASE_CLASS)
    free = [nic for nic in nics if not any(read_hex(path / "flags") & 1 for path in nic.path.glob("net/*"))]
    return {pci_device_name(nic.address, "nic"): nic for nic in free}


def interface(function: Path) -> Path:
    """Return the interface of a PCI function, as long as no pod has it."""
    for path in function.glob("net/*"):
        return path
    raise RetriableError(f"PCI function {function.name} has no interface on the node: it is not back from a pod yet")


def status(nic: PciDevice) -> HealthStatus:
    """Say how a function is: unhealthy if the kernel could not resume it."""
    return HealthStatus.UNHEALTHY if read_text(nic.path / "power/runtime_status") == "error" else HealthStatus.HEALTHY
