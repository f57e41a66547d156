"""The edits of one device, from what was set up for it."""

from __future__ import annotations

from typing import Final

from dra_driver_gpu.edits import nodes
from dra_driver_gpu.edits.files import driver_edits
from dra_driver_gpu.prepare.mps import MpsDaemons
from dra_driver_gpu.site import Site
from dra_sdk import ContainerEdits, Mount

VOID: Final = ContainerEdits(env={"NVIDIA_VISIBLE_DEVICES": "void"})
"""Keeps an NVIDIA container runtime from adding GPUs of its own accord."""

_PIPE: Final = "/tmp/nvidia-mps"  # noqa: S108 (where clients look by default)
_WRITABLE: Final = ("rw", "nosuid", "nodev", "rbind", "rprivate")


def common(site: Site, version: str) -> ContainerEdits:
    """What a container needs once, however many GPUs it gets."""
    return VOID + ContainerEdits(device_nodes=nodes.control_nodes(site)) + driver_edits(site, version)


def mps_client(site: Site, daemon_id: str) -> ContainerEdits:
    """What makes a container's processes clients of an MPS daemon."""
    daemons = MpsDaemons(site)
    mounts = [
        Mount(daemons.host_directory(daemon_id, "pipe"), _PIPE, _WRITABLE),
        Mount(daemons.host_directory(daemon_id, "shm"), "/dev/shm", _WRITABLE),  # noqa: S108
    ]
    return ContainerEdits(env={"CUDA_MPS_PIPE_DIRECTORY": _PIPE}, mounts=mounts)
