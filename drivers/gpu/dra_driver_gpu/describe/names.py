"""Names of devices and counter sets, as users of `gpu.nvidia.com` know them.

A GPU is named after its minor number, not its index: indices shift when a GPU drops off the bus.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

NAME: Final = "gpu.nvidia.com"
"""The driver, and the domain of its attributes."""

_GPU: Final = re.compile(r"gpu-(\d+)")
_VFIO: Final = re.compile(r"gpu-vfio-(\d+)")
_MIG: Final = re.compile(r"gpu-(\d+)-mig-(.+?)(?:-ci(\d+))?-(\d+)-(\d+)")


class MigName(NamedTuple):
    """What the name of a MIG device says: the GPU's minor number, the profile's id and where it starts.

    `compute` is the compute instance of a device that is one of several in its GPU instance, else None.
    """

    minor: int
    profile_id: int
    start: int
    compute: int | None = None


def gpu_name(minor: int) -> str:
    """A whole GPU: `gpu-0`."""
    return f"gpu-{minor}"


def mig_name(minor: int, profile: str, profile_id: int, start: int, compute: int | None = None) -> str:
    """A MIG device: `gpu-0-mig-1g5gb-19-3`, for profile `1g.5gb` with id 19 at memory slice 3.

    Compute instance 1 of three in a GPU instance: `gpu-0-mig-1c3g20gb-ci1-9-0`.
    """
    label = profile.replace(".", "").replace("+", "-") + ("" if compute is None else f"-ci{compute}")
    return f"{gpu_name(minor)}-mig-{label}-{profile_id}-{start}"


def parse_mig_name(name: str) -> MigName | None:
    """The parts of a MIG device's name, None for any other name."""
    match = _MIG.fullmatch(name)
    if match is None:
        return None
    return MigName(int(match[1]), int(match[4]), int(match[5]), None if match[3] is None else int(match[3]))


def parse_gpu_name(name: str) -> int | None:
    """The minor number in the name of a whole GPU, None for any other name."""
    match = _GPU.fullmatch(name)
    return int(match[1]) if match else None


def parse_vfio_name(name: str) -> int | None:
    """The index in the name of a GPU to be passed through, None for any other name."""
    match = _VFIO.fullmatch(name)
    return int(match[1]) if match else None


def vfio_name(index: int) -> str:
    """A GPU to be passed through, by its place among the node's GPUs in the order of PCI addresses: `gpu-vfio-0`."""
    return f"gpu-vfio-{index}"


def counter_set_name(minor: int) -> str:
    """The counters that all devices of one GPU share."""
    return f"{gpu_name(minor)}-counter-set"
