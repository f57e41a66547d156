"""GPUs for virtual machines: bound to a VFIO driver for a claim, and bound again as they were before.

A GPU that an operator bound to VFIO stays bound. All functions of its slot, such as its audio function, are bound
together. First every process must leave the GPU: else the NVIDIA driver waits for it inside the kernel.

While NVML is closed, claims for other GPUs wait. So what is done then has a deadline. If the kernel does not return
from changing a GPU, only the claims for this GPU fail until it does.
Sources: nvidia-persistenced(1); nv-procfs.c of the open kernel modules for `unbindLock`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dra_driver_gpu.describe.passthrough import PassthroughGpu, passthrough_gpus
from dra_driver_gpu.gpu_record import JSON, VFIO_STEP, gpu_records
from dra_driver_gpu.nvidia_node import NvidiaNode
from dra_driver_gpu.nvml.errors import GpuIsLostError, NotFoundError
from dra_driver_gpu.nvml.library import NoDriverError
from dra_driver_gpu.nvml.queries import ask_offered
from dra_driver_gpu.prepare.gpus import make_whole
from dra_driver_gpu.prepare.plan import PlannedDevice
from dra_sdk import Claim, HeldClaim, NotNeededError, RetriableError
from dra_sdk.hardware import (
    PciDevice,
    entries,
    exists,
    pci_driver,
    read_if_exists,
    read_int,
    read_pci_devices,
    read_text,
    vfio,
)
from dra_sdk.hardware.host_paths import follow
from dra_sdk.hardware.pci_driver import wait_until_free
from dra_sdk.hardware.vfio import Passthrough, VfioDevice

_KERNEL_DRIVER: Final = "nvidia"
_PERSISTENCED: Final = "run/nvidia-persistenced/socket"
_CLOSED_SECONDS: Final = 5.0  # to wait again, with NVML closed, for processes that opened the GPU since
_CHANGE_SECONDS: Final = 25.0  # for everything while NVML is closed: users of other GPUs wait longer (OPEN_SECONDS)
_LOCK_SECONDS: Final = 2.0  # a client that has ended is counted for a moment longer


@dataclass(frozen=True, slots=True)
class PciBus:
    """The PCI functions of a node as they were before a claim changed any of them.

    functions: all functions.
    gpus: the GPUs for virtual machines among them.
    """

    functions: tuple[PciDevice, ...]
    gpus: tuple[PassthroughGpu, ...]

    @classmethod
    def read(cls, node: NvidiaNode) -> PciBus:
        """Read the bus, once for a claim: there are hundreds of functions."""
        functions = read_pci_devices(node.host)
        return cls(functions, passthrough_gpus(node.host, functions))

    def gpu(self, planned: PlannedDevice) -> PassthroughGpu:
        """Return the GPU of a device, at its PCI address: the index shifts when a GPU falls off the bus.

        Raises RetriableError if there is none.
        """
        name, address = planned.device.name, planned.hardware.pci_address
        match = next((gpu for gpu in self.gpus if gpu.pci.address == address), None)
        if match is None:
            raise RetriableError(f"device {name}: there is no GPU {address} in an IOMMU group; is the IOMMU on?")
        return match


def find_vfio_device(gpu: PassthroughGpu) -> VfioDevice | None:
    """Return a GPU that is bound to VFIO, None if it is not: for admin access, which changes nothing."""
    return vfio.vfio_device(gpu.pci) if gpu.bound else None


def obtain_vfio_device(
    node: NvidiaNode, claim: Claim[Any], bus: PciBus, gpu: PassthroughGpu, together: frozenset[str]
) -> VfioDevice:
    """Bind a GPU to VFIO; `together` are the PCI addresses of all GPUs of the claim.

    Raises PermanentError if it cannot be passed through as it is, RetriableError while it is in use.
    """
    address = gpu.pci.address
    owner = gpu_records(node).read(address).vfio.get("claim", claim.uid)
    if owner != claim.uid:
        raise RetriableError(f"GPU {address} belongs to the virtual machine of claim {owner}")
    pci_driver.check_returned(node, address)  # the kernel shows a driver that is still being bound
    if gpu.bound:
        return vfio.vfio_device(gpu.pci)
    passthrough = Passthrough.plan(node, gpu.pci, functions=bus.functions, together=together)
    persistence, name = _whole_gpu(node, gpu.pci)
    entry = {"step": VFIO_STEP, "gpu": address, "persistence": persistence, **passthrough.entry}
    claim.journal(entry)
    _record(node, address, {"claim": claim.uid, "entry": entry, "name": name})
    if persistence:
        _set_persistence(node, address, on=False)
    _bind(node, gpu.pci, passthrough)
    return vfio.vfio_device(gpu.pci)


def release_vfio_device(node: NvidiaNode, claim: HeldClaim, entry: JSON) -> None:
    """Undo `obtain_vfio_device`: bind every function as before. Raises RetriableError while a machine uses it."""
    passthrough, address = Passthrough.from_entry(entry), entry["gpu"]
    if passthrough.changed(node):
        passthrough.wait_until_free(node, f"GPU {address}", node.settings.vfio_seconds)
        with node.without_nvml():  # NVML finds a GPU only when it is initialized
            passthrough.restore(node.within(_CHANGE_SECONDS))
    is_there = passthrough.is_there(node)
    if is_there:
        _unlock(node, address)
    if entry["persistence"] and is_there:
        with claim.undoing(f"persistence mode of GPU {address}", harmless=True):
            _restore_persistence(node, address)
    _record(node, address, {})
    if not is_there:
        raise NotNeededError(f"GPU {address} is gone, or was replaced by another card")


def _restore_persistence(node: NvidiaNode, address: str) -> None:
    try:
        _set_persistence(node, address, on=True)
    except (NotFoundError, GpuIsLostError, NoDriverError) as error:
        raise NotNeededError(f"GPU {address} is gone, so its persistence mode is not restored: {error}") from error


def _bind(node: NvidiaNode, pci: PciDevice, passthrough: Passthrough) -> None:
    name, nodes, seconds = f"GPU {pci.address}", _gpu_nodes(node, pci), node.settings.vfio_seconds
    # First wait with NVML open, which holds the GPU as well: while NVML is closed, no other claim can use any GPU.
    wait_until_free(node, name, nodes, seconds, ignored=pci_driver.own_pid(node))
    with node.without_nvml():
        limited = node.within(_CHANGE_SECONDS)
        wait_until_free(limited, name, nodes, min(seconds, _CLOSED_SECONDS))
        _lock(limited, pci.address)
        passthrough.bind(limited)


def _gpu_nodes(node: NvidiaNode, pci: PciDevice) -> list[str]:
    """Return the device nodes by which processes use a GPU, whichever driver it has."""
    information = read_if_exists(read_text, node.host.proc / "driver/nvidia/gpus" / pci.address / "information") or ""
    lines = (line.partition(":") for line in information.splitlines())
    minors = [value.strip() for name, _, value in lines if name.strip() == "Device Minor"]
    drm = [name for name in entries(pci.path / "drm") if name.startswith(("card", "renderD"))]
    return [*(f"/dev/nvidia{minor}" for minor in minors), *(f"/dev/dri/{name}" for name in drm)]


def _whole_gpu(node: NvidiaNode, pci: PciDevice) -> tuple[bool, JSON]:
    """Return the persistence mode of a GPU and its name in NVML, after MIG has been turned off on it."""
    if pci.driver != _KERNEL_DRIVER:
        return False, {}
    try:
        with node.nvml() as nvml:
            gpu = make_whole(node, nvml, nvml.device_by_pci_address(pci.address))
            name = {"minor": gpu.minor_number(), "uuid": gpu.uuid(), "product": gpu.name()}
            return bool(ask_offered(gpu.persistence_mode)), name
    except (NotFoundError, NoDriverError):  # the kernel driver has the GPU, but the library does not know it
        return False, {}


def _record(node: NvidiaNode, address: str, entry: JSON) -> None:
    """Record under the PCI address: only NVML knows the UUID, and does not see the GPU while it is bound to VFIO."""
    records = gpu_records(node)
    with records.locked(address) as record:
        record.vfio = entry
        records.save(address, record)


def _set_persistence(node: NvidiaNode, address: str, *, on: bool) -> None:
    """Use nvidia-smi if a daemon in another root keeps the mode: NVML finds its socket only in this process's root."""
    if node.own_root and exists(follow(node.driver_root, _PERSISTENCED)):
        node.run(node.driver_command("nvidia-smi", "-i", address, "-pm", str(int(on))))
        return
    with node.nvml() as nvml:
        nvml.device_by_pci_address(address).set_persistence_mode(on)


def _lock(node: NvidiaNode, address: str) -> None:
    """Take `unbindLock` if the driver has it: then no new client can open the GPU, and the driver may release it."""
    path = _unbind_lock(node, address)
    if exists(path) and not node.clock.until(lambda: _try_lock(node, path), _LOCK_SECONDS):
        raise RetriableError(f"GPU {address} is in use: its unbindLock stays at {read_if_exists(read_text, path)}")


def _try_lock(node: NvidiaNode, path: Path) -> bool:
    node.write(path, "1\n")
    return read_if_exists(read_int, path) == 1


def _unlock(node: NvidiaNode, address: str) -> None:
    """Release `unbindLock` of a GPU that the driver still has, because binding failed."""
    path = _unbind_lock(node, address)
    if exists(path) and read_int(path):
        node.write(path, "0\n")


def _unbind_lock(node: NvidiaNode, address: str) -> Path:
    return node.host.proc / "driver/nvidia/gpus" / address / "unbindLock"
