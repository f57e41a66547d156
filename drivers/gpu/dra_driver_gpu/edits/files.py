"""The driver's files for a container: libraries of the driver's version, programs, firmware, sockets of its daemons.

They are mounted where the driver root has them, so a container's loader finds libraries after its cache was renewed by
a hook of the container toolkit. Where the toolkit is missing, libraries are mounted at the names that programs link
to as well, which the loader finds in its standard directories without a cache. What is a link below the driver root is
followed there, and never to our own files.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from dra_driver_gpu.edits.hooks import hook_path, hooks
from dra_driver_gpu.nvml.real.binding import LIBRARY_DIRS, inside
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
    "glvnd/egl_vendor.d/10_nvidia.json",
    "egl/egl_external_platform.d/10_nvidia_wayland.json",
    "egl/egl_external_platform.d/15_nvidia_gbm.json",
    "vulkan/icd.d/nvidia_icd.json",
    "vulkan/icd.d/nvidia_layers.json",
    "vulkan/implicit_layer.d/nvidia_layers.json",
)
"""What loaders of graphics and ray tracing look for, below one of `_DATA_DIRS`."""

_DATA_DIRS: Final = ("usr/share", "etc")
_PARTS: Final = ("", "vdpau", "nvidia/current")  # of a library directory; the last is Debian's
_OWN_VERSIONS: Final = ("libnvidia-egl-gbm.so.*.*", "libnvidia-egl-wayland.so.*.*")
_SOCKETS: Final = ("run/nvidia-persistenced/socket", "run/nvidia-fabricmanager/socket")
_ELF_32: Final = b"\x7fELF\x01"
_READ_ONLY: Final = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_SOCKET: Final = ("ro", "nosuid", "nodev", "noexec", "rbind", "rprivate")


def driver_edits(site: Site, version: str) -> ContainerEdits:
    """Mounts and hooks of the driver with this version."""
    places = list(_library_dirs(site))
    libraries = [path for place in places for path in _libraries(place, version)]
    mounts = [_mount(site, path) for path in libraries]
    mounts += [*_binaries(site), *_data(site), *_firmware(site, version), *_sockets(site)]
    hook = hook_path(site)
    if hook is None:
        return ContainerEdits(mounts=[*mounts, *_linked(site, places, frozenset(libraries))])
    inner = [f"/{path.relative_to(site.driver_root)}" for path in libraries]
    return ContainerEdits(mounts=mounts, hooks=list(hooks(site, hook, inner, version)))


def _library_dirs(site: Site) -> Iterator[Path]:
    """Each once: /lib64 is often a link to /usr/lib64."""
    places = (follow(site.driver_root, Path(each, part)) for each in LIBRARY_DIRS for part in _PARTS)
    yield from (place for place in dict.fromkeys(places) if place.is_dir())


def _libraries(place: Path, version: str) -> Iterator[Path]:
    """Regular files only: a link would be mounted as what it points to, under a name that says otherwise.

    Those for 32-bit programs are left out: another distribution has its 64-bit libraries at the same path.
    """
    patterns = (f"lib*.so.{version}", *_OWN_VERSIONS)
    found = (path for path in place.iterdir() if any(fnmatchcase(path.name, each) for each in patterns))
    for path in sorted(found):
        if path.is_file() and not path.is_symlink() and not _for_32_bits(path):
            yield path


def _for_32_bits(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_ELF_32)) == _ELF_32


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


def _mount(site: Site, path: Path) -> Mount:
    return Mount(site.of_driver(path), f"/{path.relative_to(site.driver_root)}", _READ_ONLY)


def _linked(site: Site, places: list[Path], libraries: frozenset[Path]) -> Iterator[Mount]:
    """Each library under the names that link to it, such as libcuda.so.1."""
    root = site.driver_root
    for place in places:
        for link in sorted(path for path in place.glob("lib*.so*") if path.is_symlink()):
            inner = link.relative_to(root)
            if (real := inside(root, inner)) in libraries:
                yield Mount(site.of_driver(real), f"/{inner}", _READ_ONLY)
