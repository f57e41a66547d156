"""Virtual functions of SR-IOV accelerators for virtual machines: VFIO, a profile, undo, hot plug and health.

Invented: in sysfs a physical function (PF) has `health`, and `profiles/<PCI address>` for each virtual function (VF).
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Literal

from pydantic import Field

from dra_sdk import (
    Claim,
    ContainerEdits,
    Device,
    DeviceHealth,
    DriverInfo,
    DriverSettings,
    HardwareError,
    HeldClaim,
    Node,
    OpaqueConfig,
    PreparedDevice,
)
from dra_sdk.hardware import PciDevice, pci_attributes, read_pci_device, read_pci_devices, read_text, uevents
from dra_sdk.hardware.health import HealthTracker
from dra_sdk.hardware.node_access import NodeAccess, NodeEffects, SystemEffects
from dra_sdk.hardware.vfio import Passthrough, device_nodes, vfio_device

ACCELERATOR = 0x12  # the PCI base class
DASHES = str.maketrans(":.", "--")


class SriovSettings(DriverSettings, prefix="DRA_SRIOV_"):
    """What an operator decides."""

    iommufd: bool = Field(default=False, description="give virtual machines IOMMUFD where the kernel has it")


class SriovConfig(OpaqueConfig, api_version="sriov.example.com/v1"):
    """The configuration of a claim: `profile` is what its VFs are tuned for."""

    profile: Literal["throughput", "latency"] = "throughput"


class SriovDriver:
    """Each VF is a device. It is named after its PCI address, because hot plug would change the meaning of numbers."""

    settings_class = SriovSettings

    def __init__(self, settings: SriovSettings | None = None, *, effects: NodeEffects | None = None) -> None:
        self._iommufd, self._effects = (settings or SriovSettings()).iommufd, effects or SystemEffects()

    def dra_driver_info(self) -> DriverInfo:
        """Return the name and the configuration; containers find the attributes of their VFs in the metadata file."""
        return DriverInfo("sriov.example.com", configs=[SriovConfig], metadata=True)

    def dra_discover(self, node: Node) -> Iterator[Device]:
        """Yield the VFs of each PF, with the standard attributes of PCI."""
        for pf, vfs in _cards(node).items():
            for name, vf in vfs.items():
                yield Device(name, {**pci_attributes(vf), "pf": pf.address}, hardware=(pf, vf))

    def dra_prepare(self, claim: Claim[SriovConfig]) -> Iterator[PreparedDevice]:
        """Set the profile and bind the VF to VFIO; the journal first records what both were before."""
        node = NodeAccess(claim.node.root, self._effects).within(40)  # the kubelet waits 45 s
        for device in claim.devices:
            if device.admin_access:  # another claim may hold the VF, so nothing is changed
                yield device.prepared()
                continue
            pf, vf = device.hardware
            step = Passthrough.plan(node, read_pci_device(node.host, vf.address))
            profile = pf.path / "profiles" / vf.address
            claim.journal({**step.entry, "file": str(profile), "profile": read_text(profile)})
            node.write(profile, f"{device.config.profile}\n")
            step.bind(node)
            bound = vfio_device(read_pci_device(node.host, vf.address))
            edits = ContainerEdits(device_nodes=device_nodes(node, bound, iommufd=self._iommufd, api=True))
            yield device.prepared(edits)

    def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
        """Restore what the journal records, newest first; of a card that was unplugged nothing is left to restore."""
        access = NodeAccess(node.root, self._effects).within(40)
        for entry in reversed(claim.journal):
            step, profile = Passthrough.from_entry(entry), Path(entry["file"])
            step.wait_until_free(access, f"VF {profile.name}", 20)
            step.restore(access)  # refuses while a write for the VF is pending, also one of a profile
            if profile.exists():
                access.write(profile, f"{entry['profile']}\n")

    def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        """Compare the names of VFs, and not their kernel drivers, which change with every claim."""
        uevents.watch(lambda: tuple(map(tuple, _cards(node).values())), changed, stop, {"pci"}, seconds=2)

    def dra_device_health(self, node: Node, stop: Event) -> Iterator[list[DeviceHealth]]:
        """Every two seconds the health of all VFs; those of a PF fail together, and are Unknown if it is unplugged."""
        health, cards = HealthTracker(), _cards(node)
        while not stop.wait(2):
            for pf, vfs in (cards := cards | _cards(node)).items():
                health.publish(pf.address, dict.fromkeys(vfs))
                try:
                    health.observe(pf.address, {read_text(pf.path / "health")} - {"ok"})
                except HardwareError as error:
                    health.unreadable(pf.address, str(error))
            yield health.report()


def _cards(node: Node) -> dict[PciDevice, dict[str, PciDevice]]:
    """Return the VFs of each PF by the names of their devices. A VF without an IOMMU group of its own is left out."""
    functions = {function.address: function for function in read_pci_devices(node)}
    members = Counter(function.iommu_group for function in functions.values())  # all in group None if there is no IOMMU
    cards = {}
    for pf in functions.values():
        if pf.base_class == ACCELERATOR and pf.sriov is not None:
            vfs = (functions[address] for address in pf.sriov.vfs if address in functions)
            cards[pf] = {f"vf-{vf.address.translate(DASHES)}": vf for vf in vfs if members[vf.iommu_group] == 1}
    return cards
