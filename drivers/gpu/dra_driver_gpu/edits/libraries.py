"""The driver's libraries below its root, of one version, and the links to them. Paths are from the driver root on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from dra_driver_gpu.nvml.real.binding import LIBRARY_DIRS, inside
from dra_driver_gpu.rooted import follow

_PARTS: Final = ("", "vdpau", "nvidia/current")  # of a library directory; the last is Debian's
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
_ELF_32: Final = b"\x7fELF\x01"


@dataclass(frozen=True, slots=True)
class DriverLibraries:
    """What the loader finds, modules of the X server, and which link leads to which library of the former."""

    libraries: Sequence[Path]
    modules: Sequence[Path]
    linked: Mapping[Path, Path]

    @property
    def folders(self) -> list[str]:
        """Where the loader is to look in a container."""
        return sorted({f"/{path.parent}" for path in self.libraries})

    @property
    def cuda_folders(self) -> list[str]:
        """Where CUDA's own library is in a container."""
        return list(dict.fromkeys(f"/{path.parent}" for path in self.libraries if path.name.startswith("libcuda.so.")))


def find_libraries(root: Path, version: str) -> DriverLibraries:
    """The libraries of a driver version below a driver root."""
    places = list(_directories(root, _PARTS))
    libraries = list(_libraries(root, places, version))
    modules = list(_libraries(root, _directories(root, _XORG), version))
    return DriverLibraries(libraries, modules, dict(_linked(root, places, frozenset(libraries))))


def _directories(root: Path, parts: Sequence[str]) -> Iterator[Path]:
    """Each once: /lib64 is often a link to /usr/lib64."""
    places = (follow(root, Path(each, part)) for each in LIBRARY_DIRS for part in parts)
    yield from (place for place in dict.fromkeys(places) if place.is_dir())


def _libraries(root: Path, places: Iterable[Path], version: str) -> Iterator[Path]:
    """Regular files only: a link would be mounted as what it points to, under a name that says otherwise.

    Those for 32-bit programs are left out: another distribution has its 64-bit libraries at the same path.
    """
    patterns = (f"lib*.so.{version}", *_OWN_VERSIONS)
    for place in places:
        found = (path for path in place.iterdir() if any(fnmatchcase(path.name, each) for each in patterns))
        for path in sorted(found):
            if path.is_file() and not path.is_symlink() and not _for_32_bits(path):
                yield path.relative_to(root)


def _for_32_bits(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_ELF_32)) == _ELF_32


def _linked(root: Path, places: Iterable[Path], libraries: frozenset[Path]) -> Iterator[tuple[Path, Path]]:
    """The names that link to a library, such as libcuda.so.1, and to which."""
    for place in places:
        for link in sorted(path for path in place.glob("lib*.so*") if path.is_symlink()):
            inner = link.relative_to(root)
            real = inside(root, inner)
            if real is not None and (library := real.relative_to(root)) in libraries:
                yield inner, library
