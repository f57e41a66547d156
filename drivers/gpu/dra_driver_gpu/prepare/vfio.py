"""GPUs for virtual machines: from the NVIDIA driver to a VFIO driver, and back to whatever they had before.

A GPU that an operator bound to VFIO stays bound. All functions of the GPU go together (its audio function, say), and
nobody may use it: the NVIDIA driver would wait for the last user inside the kernel.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from dra_driver_gpu.describe.names import parse_vfio_name
from dra_driver_gpu.describe.passthrough import PassthroughGpu, is_vfio, read_passthrough
from dra_driver_gpu.library import NoDriverError
from dra_driver_gpu.nvml import Gpu
from dra_driver_gpu.nvml.errors import GpuIsLostError, NotFoundError, NotSupportedError
from dra_driver_gpu.prepare import binding, gpus
from dra_driver_gpu.prepare.binding import Former
from dra_driver_gpu.prepare.holders import gpu_nodes, machine_nodes, own_pid, wait_until_free
from dra_driver_gpu.prepare.plan import Wanted
from dra_driver_gpu.prepare.records import Records
from dra_driver_gpu.rooted import follow
from dra_driver_gpu.site import Site
from dra_sdk import Claim, PermanentError, RetriableError
from dra_sdk.hardware import PciDevice, optional, read_int, read_pci_devices, read_text

log = logging.getLogger(__name__)
STEP: Final = "vfio"
_NVIDIA: Final = "nvidia"
_PERSISTENCED: Final = "run/nvidia-persistenced/socket"
_CLOSED_SECONDS: Final = 5.0  # for whoever opened the GPU since
_LOCK_SECONDS: Final = 2.0  # a client that ended is counted for a moment longer
_HARMLESS: Final = frozenset({None, "pci-stub", "pcieport"})  # they do no DMA; VFIO takes no group with others


@dataclass(frozen=True, slots=True)
class Vfio:
    """A GPU that is with VFIO: its PCI address, its IOMMU group and, where the kernel has one, its `vfioN` device."""

    address: str
    group: int
    device: str | None


def look(site: Site, wanted: Wanted) -> Vfio | None:
    """The GPU as it is, None where it is not with VFIO; for those who may only look."""
    gpu = _gpu(site, wanted)
    return _told(gpu.pci) if gpu.bound else None


def obtain(site: Site, claim: Claim[Any], wanted: Wanted, together: frozenset[str]) -> Vfio:
    """Bring the GPU to VFIO; `together` are the PCI addresses of all GPUs of the claim.

    PermanentError where it cannot be passed through as it is, RetriableError where it is in use.
    """
    gpu = _gpu(site, wanted)
    if gpu.bound:
        return _told(gpu.pci)
    group = [each for each in read_pci_devices(site.host) if each.iommu_group == gpu.pci.iommu_group]
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
        _set_persistence(site, gpu.pci.address, on=False)
    name, nodes, seconds = f"GPU {gpu.pci.address}", gpu_nodes(site, gpu.pci), site.settings.vfio_seconds
    # First with NVML open, though we hold the GPU by it: while it is closed nobody can use any GPU.
    wait_until_free(site, name, nodes, seconds, but=own_pid(site))
    with site.library.closed():
        wait_until_free(site, name, nodes, min(seconds, _CLOSED_SECONDS))
        _unlock(site, gpu.pci.address)
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
        with site.library.closed():  # NVML learns of a GPU when it is opened
            for each in changed:
                binding.restore(site, each)
    _admit(site, entry["gpu"])
    if entry["persistence"]:
        try:
            _set_persistence(site, entry["gpu"], on=True)
        except (NotFoundError, GpuIsLostError) as error:
            log.warning("GPU %s is gone, so its persistence mode is not set: %s", entry["gpu"], error)
    _note(site, entry["gpu"], {})


def _note(site: Site, address: str, vfio: dict[str, Any]) -> None:
    """Under its address, because NVML, which alone knows its UUID, does not see it meanwhile."""
    records = Records(site)
    with records.locked(address) as record:
        record.vfio = vfio
        records.save(address, record)


def address(site: Site, wanted: Wanted) -> str:
    """The PCI address of the GPU."""
    return _gpu(site, wanted).pci.address


def _gpu(site: Site, wanted: Wanted) -> PassthroughGpu:
    index = parse_vfio_name(wanted.device.name)
    found = next((each for each in read_passthrough(site.host) if each.index == index), None)
    if found is None:
        raise RetriableError(f"device {wanted.device.name}: there is no such GPU in an IOMMU group; is the IOMMU on?")
    return found


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
        with site.library.use() as nvml:
            found = gpus.make_whole(site, nvml, nvml.device_by_pci_address(gpu.address))
            return _persistence(found), {"minor": found.minor_number(), "uuid": found.uuid(), "product": found.name()}
    except (NotFoundError, NoDriverError):  # the kernel driver is there, its library does not know the GPU
        return False, {}


def _persistence(gpu: Gpu) -> bool:
    try:
        return gpu.persistence_mode()
    except NotSupportedError:
        return False


def _set_persistence(site: Site, address: str, *, on: bool) -> None:
    """By the tool where a daemon keeps the mode in another root: NVML looks for its socket in our own root only."""
    if site.own_root and follow(site.driver_root, _PERSISTENCED).exists():
        site.run(site.tool("nvidia-smi", "-i", address, "-pm", str(int(on))))
        return
    with site.library.use() as nvml:
        nvml.device_by_pci_address(address).set_persistence_mode(on)


def _unlock(site: Site, address: str) -> None:
    """Drivers that have this lock let go of a GPU only with it: it says that no new client may come."""
    lock = _unbind_lock(site, address)
    if lock.exists() and not site.clock.until(lambda: _has(site, lock), _LOCK_SECONDS):
        raise RetriableError(f"GPU {address} is in use: its unbindLock cannot be had ({optional(read_text, lock)})")


def _has(site: Site, lock: Path) -> bool:
    site.effects.write(lock, "1\n")
    return optional(read_int, lock) == 1


def _admit(site: Site, address: str) -> None:
    """Let clients come again to a GPU that the driver still has, because it was never bound to another."""
    lock = _unbind_lock(site, address)
    if lock.exists() and read_int(lock):
        site.effects.write(lock, "0\n")


def _unbind_lock(site: Site, address: str) -> Path:
    return site.host.proc / "driver/nvidia/gpus" / address / "unbindLock"


def _told(gpu: PciDevice) -> Vfio:
    if gpu.iommu_group is None:
        raise PermanentError(f"GPU {gpu.address} is in no IOMMU group")
    names = sorted(path.name for path in (gpu.path / "vfio-dev").glob("vfio*"))
    return Vfio(gpu.address, gpu.iommu_group, names[0] if names else None)
