"""A DRA driver for accelerators on PCI cards, which containers find by one variable. It changes nothing on the node."""

from collections.abc import Callable, Iterator
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
    Node,
    OpaqueConfig,
    PreparedDevice,
)
from dra_sdk.hardware import (
    PciDevice,
    device_file,
    pci_attributes,
    pci_device_name,
    read_optional,
    read_pci_devices,
    read_text,
    uevents,
)
from dra_sdk.hardware.health import watch

NAME = "{{ cookiecutter.driver_name }}"
BASE_CLASS = 0x12  # accelerators; compare `vendor` and `device` in `cards` to select yours
SUBSYSTEM = "accel"  # where the kernel driver has its device nodes, below the card's directory in sysfs
VISIBLE = "ACCEL_VISIBLE_DEVICES"  # what your library reads: the numbers of the nodes of all cards of a container


class {{ cookiecutter.__class }}Config(OpaqueConfig, api_version=f"{NAME}/v1"):
    """What a claim may set: what the library in the container logs."""

    log_level: Literal["error", "debug"] = "error"


class {{ cookiecutter.__class }}Driver:
    """Each card is a device, named after its PCI address: hot plug would change the meaning of numbers."""

    def dra_driver_info(self) -> DriverInfo:
        """Return the name, and the classes of configuration; with `nri=True` several claims fill one variable."""
        return DriverInfo(NAME, configs=[{{ cookiecutter.__class }}Config])

    def dra_discover(self, node: Node) -> Iterator[Device]:
        """Yield what is published. Claims select devices by attributes; `hardware` comes back in `dra_prepare`."""
        for name, card in cards(node).items():
            yield Device(name, attributes=pci_attributes(card), hardware=card)

    def dra_prepare(self, claim: Claim[{{ cookiecutter.__class }}Config]) -> Iterator[PreparedDevice]:
        """Say what the containers of each device get: its nodes, and their numbers in the variable of the library."""
        for device in claim.devices:
            paths = sorted((device.hardware.path / SUBSYSTEM).glob("*"))
            numbers = [path.name.removeprefix(SUBSYSTEM) for path in paths]
            nodes = [DeviceNode(device_file(path)) for path in paths]
            env = {"ACCEL_LOG_LEVEL": device.config.log_level}
            yield device.prepared(ContainerEdits(env=env, env_lists={VISIBLE: numbers}, device_nodes=nodes))

    # def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
    #     """Undo what dra_prepare has changed on the node, from claim.journal. Without changes leave it out."""

    def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        """Discover again when cards come or go."""
        uevents.watch(lambda: tuple(cards(node)), changed, stop, {"pci"}, seconds=2)

    def dra_device_health(self, node: Node, stop: Event) -> Iterator[list[DeviceHealth]]:
        """Report the health of all cards every second; see HealthTracker for faults, settling and recovery."""
        return watch(lambda: [health(name, card) for name, card in cards(node).items()], stop, 1, "the cards")


def cards(node: Node) -> dict[str, PciDevice]:
    """Find the cards by the name that is published."""
    return {pci_device_name(card.address): card for card in read_pci_devices(node, base_class=BASE_CLASS)}


def health(name: str, card: PciDevice) -> DeviceHealth:
    """Read what the kernel driver says of a card. Invented: put in what yours has."""
    problem = read_optional(read_text, card.path / "fault") or ""
    return DeviceHealth(name, HealthStatus.UNHEALTHY if problem else HealthStatus.HEALTHY, problem)
