"""Links that a container's programs expect beside the driver's libraries.

The loader's cache knows each library by its soname. Some programs open one by another name, or look in a directory of
their own; where the container toolkit makes links, it makes these.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from dra_driver_gpu.edits.libraries import DriverLibraries

_EXPECTED: Final = {
    "libcuda.so": ("libcuda.so", "libcuda.so.1"),
    "libnvidia-opticalflow.so": ("libnvidia-opticalflow.so", "libnvidia-opticalflow.so.1"),
    "libGLX_nvidia.so": ("libGLX_indirect.so.0", "{}"),
    "libnvidia-allocator.so": ("gbm/nvidia-drm_gbm.so", "../libnvidia-allocator.so.1"),
    "libnvidia-vulkan-producer.so": ("libnvidia-vulkan-producer.so", "{}"),
    "libglxserver_nvidia.so": ("libglxserver_nvidia.so", "{}"),
}
"""A library without its version → a link beside it, and what that says; `{}` is the library's whole name."""


def expected_links(found: DriverLibraries, version: str) -> dict[str, str]:
    """Each link in a container with these libraries of a driver version, and what it says.

    Of the links that the driver root has, those without any version are taken over, such as libnvcuvid.so.
    """
    own = {f"/{link}": _way(link, library) for link, library in found.linked.items() if link.suffix == ".so"}
    files = (PurePosixPath("/", path) for path in (*found.libraries, *found.modules))
    return own | dict(link for path in files for link in _of(path, version))


def _of(library: PurePosixPath, version: str) -> Iterator[tuple[str, str]]:
    link, target = _EXPECTED.get(library.name.removesuffix(f".{version}"), ("", ""))
    if link:
        yield str(library.parent / link), target.format(library.name)


def _way(link: Path, library: Path) -> str:
    return library.name if library.parent == link.parent else f"/{library}"
