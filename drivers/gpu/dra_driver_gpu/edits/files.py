"""The driver's files for a container: libraries of the driver's version, programs, firmware, sockets of its daemons.

They are mounted where the driver root has them, so a container's loader finds libraries after its cache was renewed by
a hook of the container toolkit. Where the toolkit is missing, libraries are mounted at the names that programs link
to as well, which the loader finds in its standard directories without a cache. What is a link below the driver root is
followed there, and never to our own files.

Source: what the container toolkit puts into its own CDI specs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dra_driver_gpu.edits.hooks import hook_path, hooks
from dra_driver_gpu.edits.libraries import find_libraries
from dra_driver_gpu.edits.links import expected_links
from dra_driver_gpu.nvml.real.binding import inside
from dra_driver_gpu.rooted import follow
from dra_driver_gpu.site import BINARY_DIRS, Site
from dra_sdk import ContainerEdits, Mount

BINARIES: Final = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
)
DATA: Final = (
    "nvidia/nvoptix.bin",
    "OpenCL/vendors/nvidia.icd",
    "glvnd/egl_vendor.d/10_nvidia.json",
    "egl/egl_external_platform.d/09_nvidia_wayland2.json",
    "egl/egl_external_platform.d/10_nvidia_wayland.json",
    "egl/egl_external_platform.d/15_nvidia_gbm.json",
    "egl/egl_external_platform.d/20_nvidia_xcb.json",
    "egl/egl_external_platform.d/20_nvidia_xlib.json",
    "vulkan/icd.d/nvidia_icd.json",
    "vulkan/icd.d/nvidia_icd.x86_64.json",
    "vulkan/icd.d/nvidia_icd.aarch64.json",
    "vulkan/icd.d/nvidia_layers.json",
    "vulkan/implicit_layer.d/nvidia_layers.json",
    "X11/xorg.conf.d/10-nvidia.conf",
    "X11/xorg.conf.d/nvidia-drm-outputclass.conf",
)
"""What loaders of OpenCL, graphics and ray tracing look for, below one of `_DATA_DIRS`."""

_DATA_DIRS: Final = ("usr/share", "etc")
_SOCKETS: Final = ("run/nvidia-persistenced/socket", "run/nvidia-fabricmanager/socket")
_READ_ONLY: Final = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_SOCKET: Final = ("ro", "nosuid", "nodev", "noexec", "rbind", "rprivate")


def driver_edits(site: Site, version: str) -> ContainerEdits:
    """Mounts, hooks and environment of the driver with this version."""
    found = find_libraries(site.driver_root, version)
    mounts = [_mount(site, path, path) for path in (*found.libraries, *found.modules)]
    mounts += [*_binaries(site), *_data(site), *_firmware(site, version), *_sockets(site)]
    env = {"NVIDIA_CTK_LIBCUDA_DIR": ":".join(found.cuda_folders)} if found.cuda_folders else {}
    hook = hook_path(site)
    if hook is None:
        mounts += [_mount(site, library, link) for link, library in found.linked.items()]
        return ContainerEdits(mounts=mounts, env=env)
    made = hooks(site, hook, expected_links(found, version), found.folders, version)
    return ContainerEdits(mounts=mounts, env=env, hooks=list(made))


def _binaries(site: Site) -> Iterator[Mount]:
    """Under the name by which they are found, which may be a link to another."""
    for name in BINARIES:
        places = (Path(each, name) for each in BINARY_DIRS)
        yield from list(_found(site, places))[:1]


def _data(site: Site) -> Iterator[Mount]:
    yield from _found(site, (Path(place, name) for name in DATA for place in _DATA_DIRS))


def _found(site: Site, paths: Iterator[Path]) -> Iterator[Mount]:
    for path in paths:
        if (real := inside(site.driver_root, path)) is not None:
            yield Mount(site.of_driver(real), f"/{path}", _READ_ONLY)


def _firmware(site: Site, version: str) -> Iterator[Mount]:
    name = Path("lib/firmware/nvidia", version)
    directory = follow(site.driver_root, name)
    yield from (
        Mount(site.of_driver(path), f"/{name / path.name}", _READ_ONLY) for path in sorted(directory.glob("gsp*.bin"))
    )


def _sockets(site: Site) -> Iterator[Mount]:
    """Of daemons in the driver's container, or else on the host."""
    for path in _SOCKETS:
        if (found := follow(site.driver_root, path)).exists():
            yield Mount(site.of_driver(found), f"/{path}", _SOCKET)
        elif site.here(f"/{path}").exists():
            yield Mount(f"/{path}", f"/{path}", _SOCKET)


def _mount(site: Site, path: Path, place: Path) -> Mount:
    """A file at a place in the container; both are given from the driver root on."""
    return Mount(site.of_driver(site.driver_root / path), f"/{place}", _READ_ONLY)
