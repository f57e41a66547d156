"""The driver's libraries of one version below its root, and links to them. Paths are relative to the driver root.

The loader's cache lists each library by its soname. Some programs open a library by another name, or in a directory of
their own; `expected_links` are the links that the container toolkit creates for them.

Without a cache, a loader searches the directories that its distribution compiled into it. `DriverLibraries.for_loaders`
has the libraries in those of all distributions with glibc:

| container | its loader searches |
|---|---|
| Debian, Ubuntu, distroless | /lib/<triplet>, /usr/lib/<triplet>, /lib, /usr/lib |
| RHEL, UBI, Fedora, Amazon Linux, SUSE | /lib64, /usr/lib64; /lib64 is a link to /usr/lib64, except in old SUSE |
| Arch | /usr/lib, to which /usr/lib64 is a link |

The driver's libraries need glibc, so nothing makes them work with another C library, as Alpine's musl.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from dra_sdk.hardware import entries, is_directory, read_optional
from dra_sdk.hardware.host import read_beginning, target_if_link
from dra_sdk.hardware.host_paths import LIBRARY_DIRS, file_below, follow

_SUBDIRECTORIES: Final = ("", "vdpau", "nvidia/current")  # of a library directory; the last one is Debian's
_XORG: Final = ("nvidia/xorg", "xorg/modules/drivers", "xorg/modules/extensions")
_OWN_VERSIONS: Final = (
    "libnvidia-egl-gbm.so.*.*",
    "libnvidia-egl-wayland.so.*.*",
    "libnvidia-egl-wayland2.so.*.*",
    "libnvidia-egl-xcb.so.*.*",
    "libnvidia-egl-xlib.so.*.*",
    "libnvidia-nvvm70.so.*",
    "nvidia_drv.so",
)
"""Libraries of the driver that do not have its version."""
_ELF_32: Final = b"\x7fELF\x01"
_EXPECTED: Final = {
    "libcuda.so": ("libcuda.so", "libcuda.so.1"),
    "libnvidia-opticalflow.so": ("libnvidia-opticalflow.so", "libnvidia-opticalflow.so.1"),
    "libGLX_nvidia.so": ("libGLX_indirect.so.0", "{}"),
    "libnvidia-allocator.so": ("gbm/nvidia-drm_gbm.so", "../libnvidia-allocator.so.1"),
    "libnvidia-vulkan-producer.so": ("libnvidia-vulkan-producer.so", "{}"),
    "libglxserver_nvidia.so": ("libglxserver_nvidia.so", "{}"),
}
"""A library without its version → a link beside it, and its target; `{}` is the library's file name."""


@dataclass(frozen=True, slots=True)
class DriverLibraries:
    """The libraries of a driver version.

    libraries: what the loader finds.
    modules: modules of the X server.
    links: each link that leads to one of `libraries`, and that library.
    """

    libraries: Sequence[Path]
    modules: Sequence[Path]
    links: Mapping[Path, Path]

    def for_loaders(self, machine: str) -> dict[str, Path]:
        """Return each path in a container at which loaders without a cache find a library, and that library.

        machine: the machine's name for the kernel, such as `x86_64`.
        """
        names = {path: path for path in self.libraries} | dict(self.links)
        return {
            f"/{directory}/{'vdpau/' if path.parent.name == 'vdpau' else ''}{path.name}": library
            for directory in ("usr/lib64", f"usr/lib/{machine}-linux-gnu")
            for path, library in names.items()
        }

    @property
    def directories(self) -> list[str]:
        """The directories that the loader must search in a container."""
        return sorted({f"/{path.parent}" for path in self.libraries})


def find_libraries(root: Path, version: str) -> DriverLibraries:
    """Return the libraries of a driver version below a driver root."""
    directories = list(_directories(root, _SUBDIRECTORIES))
    libraries = list(dict.fromkeys(_libraries(root, directories, version)))
    modules = list(_libraries(root, _directories(root, _XORG), version))
    return DriverLibraries(libraries, modules, dict(_links(root, directories, frozenset(libraries))))


def expected_links(libraries: DriverLibraries, version: str) -> dict[str, str]:
    """Return the links that a container with these libraries needs, each with its target.

    Of the links in the driver root, those without a version are included, such as libnvcuvid.so.
    """
    own = {f"/{link}": _target(link, library) for link, library in libraries.links.items() if link.suffix == ".so"}
    files = (PurePosixPath("/", path) for path in (*libraries.libraries, *libraries.modules))
    return own | dict(link for path in files for link in _expected(path, version))


def _directories(root: Path, subdirectories: Sequence[str]) -> Iterator[Path]:
    """Yield each directory once: /lib64 is often a link to /usr/lib64."""
    directories = (follow(root, Path(directory, name)) for directory in LIBRARY_DIRS for name in subdirectories)
    yield from (directory for directory in dict.fromkeys(directories) if read_optional(is_directory, directory))


def _libraries(root: Path, directories: Iterable[Path], version: str) -> Iterator[Path]:
    """Yield regular files, and the targets of links that have the same name: NixOS links to files in its store.

    Another link would be mounted as its target, under the name of the link. Libraries for 32-bit programs are left out:
    other distributions have 64-bit libraries at the same path.
    """
    wanted = re.compile("|".join(map(fnmatch.translate, (f"lib*.so.{version}", *_OWN_VERSIONS))))
    for directory in directories:
        for path in (directory / name for name in entries(directory) if wanted.match(name)):
            real = file_below(root, path.relative_to(root))
            if real is not None and real.name == path.name and not _is_32_bit(real):
                yield real.relative_to(root)


def _is_32_bit(path: Path) -> bool:
    return read_beginning(path, len(_ELF_32)) == _ELF_32


def _links(root: Path, directories: Iterable[Path], libraries: frozenset[Path]) -> Iterator[tuple[Path, Path]]:
    """Yield the links that lead to a library, such as libcuda.so.1, each with its library."""
    for directory in directories:
        inner = directory.relative_to(root)
        names = (name for name in entries(directory) if name.startswith("lib") and ".so" in name)
        targets = {name: target for name in names if (target := target_if_link(directory / name)) is not None}
        for name in sorted(targets):
            library = _led_to(root, inner, name, targets)
            if library is not None and library in libraries and name != library.name:
                yield inner / name, library


def _led_to(root: Path, directory: Path, name: str, targets: Mapping[str, str]) -> Path | None:
    """Return where a link of a directory leads; None if there is no file.

    A directory of libraries has hundreds of links, nearly all of them to names beside them, which need no other look.
    """
    for _ in targets:  # a loop of links is longer
        if name not in targets:
            return directory / name
        name = targets[name]
        if "/" in name:
            break
    real = file_below(root, directory / name)
    return None if real is None else real.relative_to(root)


def _expected(library: PurePosixPath, version: str) -> Iterator[tuple[str, str]]:
    link, target = _EXPECTED.get(library.name.removesuffix(f".{version}"), ("", ""))
    if link:
        yield str(library.parent / link), target.format(library.name)


def _target(link: Path, library: Path) -> str:
    return library.name if library.parent == link.parent else f"/{library}"
