"""A DRA driver for {% block what %}{% endblock %}"""

from collections.abc import Callable, Iterator
{% block paths %}{% endblock -%}
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
{% block names %}{% endblock %}    Node,
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
{% block constants %}{% endblock %}

class {{ cookiecutter.__class }}Config(OpaqueConfig, api_version=f"{NAME}/v1"):
{% block config %}{% endblock %}

class {{ cookiecutter.__class }}Driver:
    """Each card is a device, named after its PCI address: hot plug would change the meaning of numbers."""

    def dra_driver_info(self) -> DriverInfo:
{% block info %}{% endblock %}        return DriverInfo(NAME, configs=[{{ cookiecutter.__class }}Config])

    def dra_discover(self, node: Node) -> Iterator[Device]:
        """Yield what is published. Claims select devices by attributes; `hardware` comes back in `dra_prepare`."""
        for name, card in cards(node).items():
            yield Device(name, attributes=pci_attributes(card), hardware=card)

    def dra_prepare(self, claim: Claim[{{ cookiecutter.__class }}Config]) -> Iterator[PreparedDevice]:
{% block prepare %}{% endblock %}

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
    """Say how a card is: unhealthy if the kernel could not resume it. Add what your kernel driver says."""
    failed = read_optional(read_text, card.path / "power/runtime_status") == "error"
    return DeviceHealth(name, HealthStatus.UNHEALTHY if failed else HealthStatus.HEALTHY)
