"""A DRA driver for virtual functions of SR-IOV cards, which it gives to virtual machines by VFIO."""

from collections.abc import Callable, Iterator
from threading import Event

from dra_sdk import (
    Claim,
    ContainerEdits,
    Device,
    DeviceHealth,
    DriverInfo,
    HealthStatus,
    HeldClaim,
    Node,
    OpaqueConfig,
    PreparedDevice,
)
from dra_sdk.hardware import PciDevice, pci_attributes, pci_device_name, read_pci_devices, read_text, uevents
from dra_sdk.hardware.health import watch
from dra_sdk.hardware.node_access import NodeAccess, NodeEffects, SystemEffects
from dra_sdk.hardware.vfio import Passthrough, device_nodes, vfio_device

NAME = "{{ cookiecutter.driver_name }}"
BASE_CLASS = 0x12  # accelerators; compare `vendor` and `device` in `functions` to select your cards


class {{ cookiecutter.__class }}Config(OpaqueConfig, api_version=f"{NAME}/v1"):
    """What a claim may set: whether a virtual machine gets IOMMUFD where the kernel has it."""

    iommufd: bool = False


class {{ cookiecutter.__class }}Driver:
    """Each virtual function is a device. Writes go through `effects`: the kernel may never return from one."""

    def __init__(self, *, effects: NodeEffects | None = None) -> None:
        self.effects = effects or SystemEffects()

    def dra_driver_info(self) -> DriverInfo:
        """Return name and classes of configuration; virtual machines find PCI addresses in the metadata file."""
        return DriverInfo(NAME, configs=[{{ cookiecutter.__class }}Config], metadata=True)

    def dra_discover(self, node: Node) -> Iterator[Device]:
        """Yield what is published. Claims select devices by attributes; `hardware` comes back in `dra_prepare`."""
        for name, vf in functions(node).items():
            yield Device(name, attributes=pci_attributes(vf), hardware=vf)

    def dra_prepare(self, claim: Claim[{{ cookiecutter.__class }}Config]) -> Iterator[PreparedDevice]:
        """Bind each function to VFIO, and say what its containers get. The journal, written first, is the way back."""
        node = NodeAccess(claim.node.root, self.effects).within(40)  # the kubelet waits 45 s
        for device in claim.devices:
            if device.admin_access:  # another claim may hold the function, so nothing is changed
                yield device.prepared()
                continue
            step = Passthrough.plan(node, device.hardware)
            claim.journal(step.entry)
            step.bind(node)
            nodes = device_nodes(node, vfio_device(device.hardware), iommufd=device.config.iommufd, api=True)
            yield device.prepared(ContainerEdits(device_nodes=nodes))

    def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
        """Bind the functions to their drivers again when the virtual machine has ended; each is tried, newest first."""
        access = NodeAccess(node.root, self.effects).within(40)
        for step in map(Passthrough.from_entry, reversed(claim.journal)):
            with claim.undoing(f"driver of {step.functions[0].address}"):
                step.wait_until_free(access, str(claim), 20)
                step.restore(access)

    def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        """Discover again when functions come or go; their kernel drivers change with every claim."""
        uevents.watch(lambda: tuple(functions(node)), changed, stop, {"pci"}, seconds=2)

    def dra_device_health(self, node: Node, stop: Event) -> Iterator[list[DeviceHealth]]:
        """Report the health of all functions every second."""
        return watch(lambda: [health(name, vf) for name, vf in functions(node).items()], stop, 1, "the functions")


def functions(node: Node) -> dict[str, PciDevice]:
    """Find the virtual functions by the name that is published."""
    vfs = (function for function in read_pci_devices(node, base_class=BASE_CLASS) if function.physical_function)
    return {pci_device_name(vf.address, "vf"): vf for vf in vfs}


def health(name: str, vf: PciDevice) -> DeviceHealth:
    """Say how a function is: unhealthy if the kernel could not resume it."""
    failed = read_text(vf.path / "power/runtime_status") == "error"
    return DeviceHealth(name, HealthStatus.UNHEALTHY if failed else HealthStatus.HEALTHY)
