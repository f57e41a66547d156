"""Hooks of the container toolkit, `nvidia-cdi-hook`: links, compatibility libraries, the loader's cache.

The program is the node's, and may be older than what we know of it: one that does not know a subcommand would keep
the container from starting. So only those are asked for that it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from dra_driver_gpu.rooted import follow
from dra_driver_gpu.site import Site
from dra_sdk import Hook

_NAME: Final = "nvidia-cdi-hook"
_ALWAYS: Final = frozenset({"create-symlinks", "update-ldcache"})
_SINCE: Final = frozenset({"enable-cuda-compat", "disable-device-node-modification", "update-application-profile"})


def hook_path(site: Site) -> str | None:
    """`nvidia-cdi-hook` as a path of the host: as set, or under the driver root or the host's root; None for none."""
    if site.settings.cdi_hook:
        return site.settings.cdi_hook
    if (found := site.binary(_NAME)) is not None:
        return site.of_driver(found)
    places = (f"/usr/bin/{_NAME}", f"/usr/local/nvidia/toolkit/{_NAME}")
    return next((path for path in places if site.here(path).is_file()), None)


def hooks(site: Site, hook: str, links: Mapping[str, str], folders: Sequence[str], version: str) -> Iterator[Hook]:
    """`createContainer` hooks for a container with a driver of this version, its libraries in these folders.

    `links` are to be made: each path in the container with what it says.
    """
    calls = [
        ["enable-cuda-compat", f"--host-driver-version={version}"],
        ["update-ldcache", *(word for folder in folders for word in ("--folder", folder))],
        ["disable-device-node-modification"],
        ["update-application-profile"],
    ]
    known = _known(site, hook)
    yield from link_hook(hook, links)
    for name, *args in calls:
        if name in known and (args or name not in _ALWAYS):
            yield Hook("createContainer", hook, [_NAME, name, *args])


def link_hook(hook: str, links: Mapping[str, str]) -> Iterator[Hook]:
    """The hook that makes links in a container, if there are any: each path in it with what it says."""
    words = [word for link, target in links.items() for word in ("--link", f"{target}::{link}")]
    if words:
        yield Hook("createContainer", hook, [_NAME, "create-symlinks", *words])


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
