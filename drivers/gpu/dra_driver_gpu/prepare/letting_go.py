"""What NVIDIA's kernel driver needs to let go of a GPU: its persistence mode off, and its lock.

Source: nvidia-persistenced(1); for the lock nv-procfs.c of the open kernel modules.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dra_driver_gpu.nvml import Gpu
from dra_driver_gpu.nvml.errors import NotSupportedError
from dra_driver_gpu.rooted import follow
from dra_driver_gpu.site import Site
from dra_sdk import RetriableError
from dra_sdk.hardware import optional, read_int, read_text

_PERSISTENCED: Final = "run/nvidia-persistenced/socket"
_LOCK_SECONDS: Final = 2.0  # a client that ended is counted for a moment longer


def persistence(gpu: Gpu) -> bool:
    """Whether a GPU is kept initialized while nobody uses it; False where it has no such mode."""
    try:
        return gpu.persistence_mode()
    except NotSupportedError:
        return False


def set_persistence(site: Site, address: str, *, on: bool) -> None:
    """By the tool where a daemon keeps the mode in another root: NVML looks for its socket in our own root only."""
    if site.own_root and follow(site.driver_root, _PERSISTENCED).exists():
        site.run(site.tool("nvidia-smi", "-i", address, "-pm", str(int(on))))
        return
    with site.nvml() as nvml:
        nvml.device_by_pci_address(address).set_persistence_mode(on)


def lock(site: Site, address: str) -> None:
    """Drivers that have this lock let go of a GPU only with it: it says that no new client may come."""
    path = _unbind_lock(site, address)
    if path.exists() and not site.clock.until(lambda: _has(site, path), _LOCK_SECONDS):
        raise RetriableError(f"GPU {address} is in use: its unbindLock cannot be had ({optional(read_text, path)})")


def _has(site: Site, path: Path) -> bool:
    site.effects.write(path, "1\n")
    return optional(read_int, path) == 1


def unlock(site: Site, address: str) -> None:
    """Let clients come again to a GPU that the driver still has, because it was never bound to another."""
    path = _unbind_lock(site, address)
    if path.exists() and read_int(path):
        site.effects.write(path, "0\n")


def _unbind_lock(site: Site, address: str) -> Path:
    return site.host.proc / "driver/nvidia/gpus" / address / "unbindLock"
