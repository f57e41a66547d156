"""Hooks of the container toolkit, `nvidia-cdi-hook`: links, compatibility libraries, the loader's cache.

The program is the node's, and may be older than what we know of it: one that does not know a subcommand would keep
the container from starting. So only those are asked for that it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final

from dra_driver_gpu.rooted import follow
from dra_driver_gpu.site import Site
from dra_sdk import Hook

_NAME: Final = "nvidia-cdi-hook"
_ALWAYS: Final = frozenset({"create-symlinks", "update-ldcache"})
_SINCE: Final = frozenset({"enable-cuda-compat", "disable-device-node-modification"})  # 1.17.5, 1.18


def hook_path(site: Site) -> str | None:
    """`nvidia-cdi-hook` as a path of the host: as set, or under the driver root or the host's root; None for none."""
    if site.settings.cdi_hook:
        return site.settings.cdi_hook
    if (found := site.binary(_NAME)) is not None:
        return site.of_driver(found)
    places = (f"/usr/bin/{_NAME}", f"/usr/local/nvidia/toolkit/{_NAME}")
    return next((path for path in places if site.here(path).is_file()), None)


def hooks(site: Site, hook: str, libraries: Sequence[str], version: str) -> Iterator[Hook]:
    """`createContainer` hooks for a container with these libraries (paths in it) of a driver version."""
    folders = sorted({str(PurePosixPath(path).parent) for path in libraries})
    cuda = [PurePosixPath(path).parent for path in libraries if "/libcuda.so." in path]
    calls = [
        ["create-symlinks", *(word for place in cuda for word in ("--link", f"libcuda.so.1::{place}/libcuda.so"))],
        ["enable-cuda-compat", f"--host-driver-version={version}"],
        ["update-ldcache", *(word for folder in folders for word in ("--folder", folder))],
        ["disable-device-node-modification"],
    ]
    known = _known(site, hook)
    for name, *args in calls:
        if name in known and (args or name not in _ALWAYS):
            yield Hook("createContainer", hook, [_NAME, name, *args])


def _known(site: Site, hook: str) -> frozenset[str]:
    """The subcommands that the program has; one that cannot be read has those of every version."""
    found: frozenset[str] = frozenset()
    # The toolkit's container puts a script in front of the program.
    for path in (follow(site.root, hook), follow(site.root, f"{hook}.real")):
        try:
            status = path.stat()
            found |= _named(path, status.st_mtime_ns, status.st_size)
        except OSError:
            continue
    return _ALWAYS | found


@lru_cache(maxsize=8)
def _named(path: Path, _changed: int, _size: int) -> frozenset[str]:
    """Which of the later subcommands a program contains by name; read again only when it is another."""
    content = path.read_bytes()
    return frozenset(name for name in _SINCE if name.encode() in content)
