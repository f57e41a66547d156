"""The tree of a node with GPUs, which stands for the host's root.

Container runtimes know paths of this machine only, so the tree contains a link to itself at its own path: a path below
the driver root means the same file there and here. Device nodes are real character devices with the numbers of the
NVIDIA driver; nothing opens them. With a shell, the tree is a driver container: NVIDIA's programs run with it as root.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import Final

from dra_driver_gpu.testing.node import GpuNode, write_tools
from dra_driver_gpu.testing.nvml import fake_gpu

from tests.cluster.harness.debian import find_busybox

H100, L4 = GPUS = [fake_gpu("H100-80GB", 0), fake_gpu("L4", 1)]
LIBRARIES: Final = "/usr/lib/x86_64-linux-gnu"
CONTROL: Final = {
    "/dev/nvidiactl": (195, 255),
    "/dev/nvidia-modeset": (195, 254),
    "/dev/nvidia-uvm": (510, 0),
    "/dev/nvidia-uvm-tools": (510, 1),
}
"""The device nodes that every container with a GPU gets as well."""
_GPU_NODES: Final = {f"/dev/nvidia{gpu.minor}": (195, gpu.minor) for gpu in GPUS}
_APPLETS: Final = ("sh", "cat", "mkdir", "rm", "sleep")


def make_tree(root: Path, stub: Path) -> GpuNode:
    """Makes the tree, with the stub as its NVML and an nvidia-smi that keeps time slices in files."""
    node = GpuNode(root, GPUS)
    node.set_all_instances()
    write_tools(root, node.driver_root)
    inside = root / root.relative_to("/")
    inside.parent.mkdir(parents=True)
    inside.symlink_to(os.path.relpath(root, inside.parent))
    shutil.rmtree(root / "dev/dri")  # the driver root has no device nodes for graphics
    for path, (major, minor) in {**CONTROL, **_GPU_NODES}.items():
        (root / path[1:]).unlink()
        make_node(root / path[1:], major, minor)
    shutil.copy(stub, root / f"{LIBRARIES[1:]}/libnvidia-ml.so.{node.driver_version}")
    return node


def make_node(path: Path, major: int, minor: int) -> None:
    """Makes a character device."""
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor))


def add_shell(root: Path) -> None:
    """Makes the tree a root directory: adds what NVIDIA's programs need, and mount points."""
    busybox = find_busybox()
    assert busybox is not None, "the cluster's image has it"
    for name in ("bin", "mnt", "dev/shm"):
        (root / name).mkdir(exist_ok=True)
    for name in _APPLETS:
        shutil.copy(busybox, root / "bin" / name)
