"""GPUs for virtual machines: from the NVIDIA driver to the VFIO driver, and back to whatever they had before.

A GPU that an operator bound to VFIO stays bound. All functions of the GPU go together (its audio function, say), and
nobody may use it: the NVIDIA driver would wait for the last user inside the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from dra_driver_gpu.describe.names import parse_vfio_name
from dra_driver_gpu.describe.passthrough import PassthroughGpu, read_passthrough
from dra_driver_gpu.library import NoDriverError
from dra_driver_gpu.nvml import Gpu
from dra_driver_gpu.nvml.errors import NotFoundError, NotSupportedError
from dra_driver_gpu.nvml.profiles import mig_enabled
from dra_driver_gpu.prepare import binding, gpus
from dra_driver_gpu.prepare.binding import VFIO, Former
from dra_driver_gpu.prepare.plan import Wanted
from dra_driver_gpu.site import Site
from dra_sdk import Claim, PermanentError, RetriableError
from dra_sdk.hardware import PciDevice, optional, read_int, read_pci_devices, read_text

STEP: Final = "vfio"
_NVIDIA: Final = "nvidia"
_BRIDGE: Final = 0x06
_HARMLESS: Final = frozenset({None, VFIO, "pcieport"})


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
    _check(site, gpu.pci, together)
    minor, persistence = _let_go(site, gpu.pci)
    functions = [binding.former(site, each.address) for each in _functions(site, gpu.pci)]
    was = [asdict(each) for each in functions]
    claim.journal({"step": STEP, "gpu": gpu.pci.address, "persistence": persistence, "functions": was})
    if persistence:
        _set_persistence(site, gpu.pci.address, on=False)
    with site.library.closed():
        _wait_until_free(site, gpu.pci, minor)
        _unlock(site, gpu.pci.address)
        for each in functions:
            binding.bind(site, each.address, VFIO)
    return _told(gpu.pci)


def release(site: Site, entry: dict[str, Any]) -> None:
    """Undo `obtain`: every function gets the driver it had."""
    for each in entry["functions"]:
        binding.restore(site, Former(**each))
    if entry["persistence"]:
        _set_persistence(site, entry["gpu"], on=True)


def address(site: Site, wanted: Wanted) -> str:
    """The PCI address of the GPU."""
    return _gpu(site, wanted).pci.address


def _gpu(site: Site, wanted: Wanted) -> PassthroughGpu:
    index = parse_vfio_name(wanted.device.name)
    found = next((each for each in read_passthrough(site.host) if each.index == index), None)
    if found is None:
        raise RetriableError(f"device {wanted.device.name}: there is no such GPU in an IOMMU group; is the IOMMU on?")
    return found


def _check(site: Site, gpu: PciDevice, together: frozenset[str]) -> None:
    if gpu.sriov is not None and gpu.sriov.vfs:
        raise PermanentError(f"GPU {gpu.address} has {len(gpu.sriov.vfs)} virtual functions; it cannot be given away")
    own = {each.address for each in _functions(site, gpu)}
    for other in read_pci_devices(site.host):
        if other.iommu_group != gpu.iommu_group or other.address in own | together or other.base_class == _BRIDGE:
            continue
        if other.driver not in _HARMLESS:
            raise PermanentError(
                f"GPU {gpu.address} cannot be given away alone: PCI function {other.address} with driver "
                f"{other.driver} is in the same IOMMU group {gpu.iommu_group}"
            )


def _functions(site: Site, gpu: PciDevice) -> Iterator[PciDevice]:
    """The functions of the GPU's slot that are in its IOMMU group, the GPU first."""
    slot = gpu.address.rpartition(".")[0]
    for each in read_pci_devices(site.host):
        if each.address.rpartition(".")[0] == slot and each.iommu_group == gpu.iommu_group:
            yield each


def _let_go(site: Site, gpu: PciDevice) -> tuple[int | None, bool]:
    """The GPU's minor number and persistence mode, once it is known that no MIG device and no process is on it."""
    if gpu.driver != _NVIDIA:
        return None, False
    try:
        with site.library.use() as nvml:
            found = gpus.make_whole(site, nvml, nvml.device_by_pci_address(gpu.address))
            if mig_enabled(found):
                raise RetriableError(f"GPU {gpu.address} cannot be given away while MIG is on")
            return found.minor_number(), _persistence(found)
    except (NotFoundError, NoDriverError):  # the kernel driver is there, its library does not know the GPU
        return None, False


def _persistence(gpu: Gpu) -> bool:
    try:
        return gpu.persistence_mode()
    except NotSupportedError:
        return False


def _set_persistence(site: Site, address: str, *, on: bool) -> None:
    with site.library.use() as nvml:
        nvml.device_by_pci_address(address).set_persistence_mode(on)


def _wait_until_free(site: Site, gpu: PciDevice, minor: int | None) -> None:
    if minor is None:
        return
    seconds, node = site.settings.vfio_seconds, f"/dev/nvidia{minor}"
    if not site.clock.until(lambda: not holders(site, node), seconds):
        pids = ", ".join(map(str, holders(site, node)))
        raise RetriableError(f"GPU {gpu.address} was still in use after {seconds:.0f} s, by processes {pids}")


def holders(site: Site, node: str) -> list[int]:
    """The processes that have a device node open."""
    processes = (path for path in site.host.proc.iterdir() if path.name.isdecimal())
    return sorted(int(path.name) for path in processes if any(_links_to(fd, node) for fd in _listed(path / "fd")))


def _listed(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:  # the process ended
        return []


def _links_to(path: Path, node: str) -> bool:
    try:
        return str(path.readlink()) == node
    except OSError:
        return False


def _unlock(site: Site, address: str) -> None:
    """Drivers that have this lock let go of a GPU only with it: it says that no new client may come."""
    lock = site.host.proc / "driver/nvidia/gpus" / address / "unbindLock"
    if lock.exists():
        site.effects.write(lock, "1\n")
        if optional(read_int, lock) != 1:
            raise RetriableError(f"GPU {address} is in use: its unbindLock cannot be had ({optional(read_text, lock)})")


def _told(gpu: PciDevice) -> Vfio:
    if gpu.iommu_group is None:
        raise PermanentError(f"GPU {gpu.address} is in no IOMMU group")
    names = sorted(path.name for path in (gpu.path / "vfio-dev").glob("vfio*"))
    return Vfio(gpu.address, gpu.iommu_group, names[0] if names else None)
