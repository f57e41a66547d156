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
from dra_sdk.hardware import PciDevice, pci_attributes, read_pci_devices, read_text, uevents
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
        """Bind the functions to their drivers again, newest first, when the virtual machine has ended."""
        access = NodeAccess(node.root, self.effects).within(40)
        for step in map(Passthrough.from_entry, reversed(claim.journal)):
            step.wait_until_free(access, str(claim), 20)
            step.restore(access)

    def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        """Discover again when functions come or go; their kernel drivers change with every claim."""
        uevents.watch(lambda: tuple(functions(node)), changed, stop, {"pci"}, seconds=2)

    def dra_device_health(self, node: Node, stop: Event) -> Iterator[list[DeviceHealth]]:
        """Report health every second: a function that the kernel could not resume is unhealthy."""
        while not stop.wait(1):
            yield [DeviceHealth(name, status(vf)) for name, vf in functions(node).items()]


def functions(node: Node) -> dict[str, PciDevice]:
    """Find the virtual functions by the name that is published: a DNS label."""
    nics = [function for function in read_pci_devices(node) if function.base_class == BASE_CLASS]
    return {f"vf-{nic.address}".replace(":", "-").replace(".", "-"): nic for nic in nics if nic.physical_function}


def status(vf: PciDevice) -> HealthStatus:
    """Read what the kernel says of a function."""
    return HealthStatus.UNHEALTHY if read_text(vf.path / "power/runtime_status") == "error" else HealthStatus.HEALTHY
