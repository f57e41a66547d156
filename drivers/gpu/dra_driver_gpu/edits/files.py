"""The driver's files for a container: libraries of the driver's version, programs, firmware, sockets of its daemons.

They are mounted where the driver root has them, so a container's loader finds libraries after its cache was renewed by
a hook of the container toolkit. Where the toolkit is missing, libraries are mounted at the names that programs link
to as well, which the loader finds in its standard directories without a cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dra_driver_gpu.nvml.real.binding import LIBRARY_DIRS
from dra_driver_gpu.site import Site
from dra_sdk import ContainerEdits, Hook, Mount

BINARIES: Final = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
)
_SOCKETS: Final = ("/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket")
_HOOK: Final = "nvidia-cdi-hook"
_READ_ONLY: Final = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_SOCKET: Final = ("ro", "nosuid", "nodev", "noexec", "rbind", "rprivate")


def driver_edits(site: Site, version: str) -> ContainerEdits:
    """Mounts and hooks of the driver with this version."""
    libraries = list(_libraries(site, version))
    mounts = [_mount(site, path) for path in [*libraries, *_binaries(site), *_firmware(site, version)]]
    mounts += [Mount(path, path, _SOCKET) for path in _SOCKETS if site.here(path).exists()]
    hook = hook_path(site)
    if hook is None:
        return ContainerEdits(mounts=[*mounts, *_linked(site, libraries)])
    return ContainerEdits(mounts=mounts, hooks=list(_hooks(site, hook, libraries, version)))


def hook_path(site: Site) -> str | None:
    """`nvidia-cdi-hook` as a path of the host: as set, or under the driver root or the host's root; None for none."""
    if site.settings.cdi_hook:
        return site.settings.cdi_hook
    if (found := site.binary(_HOOK)) is not None:
        return site.of_driver(found)
    places = (f"/usr/bin/{_HOOK}", f"/usr/local/nvidia/toolkit/{_HOOK}")
    return next((path for path in places if site.here(path).is_file()), None)


def _libraries(site: Site, version: str) -> Iterator[Path]:
    """Regular files only: a link would be mounted as what it points to, under a name that says otherwise."""
    seen: set[Path] = set()
    for directory in LIBRARY_DIRS:
        for place in (site.driver_root / directory, site.driver_root / directory / "vdpau"):
            real = place.resolve()
            if real in seen or not place.is_dir():
                continue  # /lib64 is often a link to /usr/lib64
            seen.add(real)
            found = sorted(place.glob(f"lib*.so.{version}"))
            yield from (path for path in found if path.is_file() and not path.is_symlink())


def _binaries(site: Site) -> Iterator[Path]:
    yield from (path for name in BINARIES if (path := site.binary(name)) is not None)


def _firmware(site: Site, version: str) -> Iterator[Path]:
    yield from sorted((site.driver_root / "lib/firmware/nvidia" / version).glob("gsp*.bin"))


def _mount(site: Site, path: Path) -> Mount:
    return Mount(site.of_driver(path), f"/{path.relative_to(site.driver_root)}", _READ_ONLY)


def _linked(site: Site, libraries: list[Path]) -> Iterator[Mount]:
    """Each library under the names that link to it, such as libcuda.so.1."""
    by_name = {path: path.name for path in libraries}
    for path, name in by_name.items():
        stem = name.partition(".so.")[0]
        for link in sorted(path.parent.glob(f"{stem}.so*")):
            if link.is_symlink() and (link.parent / link.readlink().name) == path:
                yield Mount(site.of_driver(path), f"/{link.relative_to(site.driver_root)}", _READ_ONLY)


def _hooks(site: Site, hook: str, libraries: list[Path], version: str) -> Iterator[Hook]:
    """`createContainer` hooks of the toolkit: links, compatibility libraries, the loader's cache, no device changes."""
    folders = sorted({f"/{path.parent.relative_to(site.driver_root)}" for path in libraries})
    cuda = [path for path in libraries if path.name.startswith("libcuda.so.")]
    links = [f"libcuda.so.1::/{(path.parent / 'libcuda.so').relative_to(site.driver_root)}" for path in cuda]
    calls = [
        ["create-symlinks", *(word for link in links for word in ("--link", link))],
        ["enable-cuda-compat", f"--host-driver-version={version}"],
        ["update-ldcache", *(word for folder in folders for word in ("--folder", folder))],
        ["disable-device-node-modification"],
    ]
    for name, *args in calls:
        if args or name == "disable-device-node-modification":
            yield Hook("createContainer", hook, [_HOOK, name, *args])
