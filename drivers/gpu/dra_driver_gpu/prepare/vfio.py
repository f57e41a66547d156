"""GPUs for virtual machines: from the NVIDIA driver to a VFIO driver, and back to whatever they had before.

A GPU that an operator bound to VFIO stays bound. All functions of the GPU go together (its audio function, say), and
nobody may use it: the NVIDIA driver would wait for the last user inside the kernel.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from dra_driver_gpu.describe.passthrough import PassthroughGpu, is_vfio, passthrough_gpus
from dra_driver_gpu.library import NoDriverError
from dra_driver_gpu.nvml.errors import GpuIsLostError, NotFoundError
from dra_driver_gpu.prepare import binding, gpus, letting_go
from dra_driver_gpu.prepare.binding import Former
from dra_driver_gpu.prepare.holders import gpu_nodes, machine_nodes, own_pid, wait_until_free
from dra_driver_gpu.prepare.plan import Wanted
from dra_driver_gpu.prepare.records import Records
from dra_driver_gpu.site import Site
from dra_sdk import Claim, PermanentError, RetriableError
from dra_sdk.hardware import PciDevice, read_pci_devices

log = logging.getLogger(__name__)
STEP: Final = "vfio"
_NVIDIA: Final = "nvidia"
_CLOSED_SECONDS: Final = 5.0  # for whoever opened the GPU since
_HARMLESS: Final = frozenset({None, "pci-stub", "pcieport"})  # they do no DMA; VFIO takes no group with others


@dataclass(frozen=True, slots=True)
class Vfio:
    """A GPU that is with VFIO: its IOMMU group and, where the kernel has one, its `vfioN` device."""

    group: int
    device: str | None


@dataclass(frozen=True, slots=True)
class Bus:
    """All PCI functions of a node, and its GPUs among them, as they were before a claim changed any."""

    functions: tuple[PciDevice, ...]
    gpus: tuple[PassthroughGpu, ...]

    @classmethod
    def read(cls, site: Site) -> Bus:
        """Read once for a claim: there are hundreds of functions."""
        functions = read_pci_devices(site.host)
        return cls(functions, passthrough_gpus(site.host, functions))

    def gpu(self, wanted: Wanted) -> PassthroughGpu:
        """The GPU of a device, at the PCI address that was published: the numbers shift when a GPU drops off the bus.

        RetriableError where there is none.
        """
        name, address = wanted.device.name, wanted.pci_address
        found = next((each for each in self.gpus if each.pci.address == address), None)
        if found is None:
            raise RetriableError(f"device {name}: there is no GPU {address} in an IOMMU group; is the IOMMU on?")
        return found


def look(gpu: PassthroughGpu) -> Vfio | None:
    """The GPU as it is, None where it is not with VFIO; for those who may only look."""
    return _told(gpu.pci) if gpu.bound else None


def obtain(site: Site, claim: Claim[Any], bus: Bus, gpu: PassthroughGpu, together: frozenset[str]) -> Vfio:
    """Bring a GPU to VFIO; `together` are the PCI addresses of all GPUs of the claim.

    PermanentError where it cannot be passed through as it is, RetriableError where it is in use.
    """
    owner = Records(site).read(gpu.pci.address).vfio.get("claim", claim.uid)
    if owner != claim.uid:
        raise RetriableError(f"GPU {gpu.pci.address} is with the virtual machine of claim {owner}")
    if gpu.bound:
        return _told(gpu.pci)
    group = [each for each in bus.functions if each.iommu_group == gpu.pci.iommu_group]
    _check(gpu.pci, group, together)
    persistence, known = _let_go(site, gpu.pci)
    # the functions of its slot, the GPU first
    slot = [each for each in group if _slot(each.address) == _slot(gpu.pci.address)]
    functions = [binding.former(site, each.address) for each in slot]
    was = [asdict(each) for each in functions]
    entry = {"step": STEP, "gpu": gpu.pci.address, "persistence": persistence, "functions": was}
    claim.journal(entry)
    _note(site, gpu.pci.address, {"claim": claim.uid, "entry": entry, "name": known})
    if persistence:
        letting_go.set_persistence(site, gpu.pci.address, on=False)
    name, nodes, seconds = f"GPU {gpu.pci.address}", gpu_nodes(site, gpu.pci), site.settings.vfio_seconds
    # First with NVML open, though we hold the GPU by it: while it is closed nobody can use any GPU.
    wait_until_free(site, name, nodes, seconds, but=own_pid(site))
    with site.without_nvml():
        wait_until_free(site, name, nodes, min(seconds, _CLOSED_SECONDS))
        letting_go.lock(site, gpu.pci.address)
        for each in functions:
            binding.bind(site, each.address, binding.vfio_driver(site, each.address))
    return _told(gpu.pci)


def release(site: Site, entry: dict[str, Any]) -> None:
    """Undo `obtain`: every function gets the driver it had. RetriableError while a virtual machine still has it."""
    functions = [Former(**each) for each in entry["functions"]]
    changed = [each for each in functions if binding.former(site, each.address) != each]
    if changed:
        nodes = machine_nodes(site, (each.address for each in changed))
        wait_until_free(site, f"GPU {entry['gpu']}", nodes, site.settings.vfio_seconds)
        with site.without_nvml():  # NVML learns of a GPU when it is opened
            for each in changed:
                binding.restore(site, each)
    letting_go.unlock(site, entry["gpu"])
    if entry["persistence"]:
        try:
            letting_go.set_persistence(site, entry["gpu"], on=True)
        except (NotFoundError, GpuIsLostError, NoDriverError) as error:
            log.warning("GPU %s is gone, so its persistence mode is not set: %s", entry["gpu"], error)
    _note(site, entry["gpu"], {})


def _note(site: Site, address: str, vfio: dict[str, Any]) -> None:
    """Under its address, because NVML, which alone knows its UUID, does not see it meanwhile."""
    records = Records(site)
    with records.locked(address) as record:
        record.vfio = vfio
        records.save(address, record)


def _check(gpu: PciDevice, group: Iterable[PciDevice], together: frozenset[str]) -> None:
    if gpu.sriov is not None and gpu.sriov.vfs:
        raise PermanentError(f"GPU {gpu.address} has {len(gpu.sriov.vfs)} virtual functions; it cannot be given away")
    own = {_slot(each) for each in {gpu.address, *together}}
    for other in group:
        if _slot(other.address) in own:
            continue
        if other.driver not in _HARMLESS and not is_vfio(other.driver):
            raise PermanentError(
                f"GPU {gpu.address} cannot be given away alone: PCI function {other.address} with driver "
                f"{other.driver} is in the same IOMMU group {gpu.iommu_group}"
            )


def _slot(address: str) -> str:
    return address.rpartition(".")[0]


def _let_go(site: Site, gpu: PciDevice) -> tuple[bool, dict[str, Any]]:
    """The GPU's persistence mode and how else lists may name it, once it is known that no MIG device is on it."""
    if gpu.driver != _NVIDIA:
        return False, {}
    try:
        with site.nvml() as nvml:
            found = gpus.make_whole(site, nvml, nvml.device_by_pci_address(gpu.address))
            name = {"minor": found.minor_number(), "uuid": found.uuid(), "product": found.name()}
            return letting_go.persistence(found), name
    except (NotFoundError, NoDriverError):  # the kernel driver is there, its library does not know the GPU
        return False, {}


def _told(gpu: PciDevice) -> Vfio:
    if gpu.iommu_group is None:
        raise PermanentError(f"GPU {gpu.address} is in no IOMMU group")
    names = sorted(path.name for path in (gpu.path / "vfio-dev").glob("vfio*"))
    return Vfio(gpu.iommu_group, names[0] if names else None)
