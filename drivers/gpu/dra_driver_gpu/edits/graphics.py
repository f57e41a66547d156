"""What a container needs to draw on a GPU: its nodes of the kernel's DRM, and their names by PCI address.

Whole GPUs have them, and MIG devices of graphics profiles.
"""

from __future__ import annotations

from collections.abc import Iterator

from dra_driver_gpu.edits.hooks import hook_path, link_hook
from dra_driver_gpu.site import Site
from dra_sdk import ContainerEdits, DeviceNode

_KINDS = ("card", "render")


def graphics_edits(site: Site, address: str) -> ContainerEdits:
    """Of the GPU at a PCI address; empty where the kernel has no DRM for it."""
    names = list(_names(site, address))
    hook, links = hook_path(site), dict(_links(site, address, names))
    made = list(link_hook(hook, links)) if hook else []
    return ContainerEdits(device_nodes=[DeviceNode(f"/dev/dri/{name}") for name in names], hooks=made)


def _names(site: Site, address: str) -> Iterator[str]:
    for path in sorted((site.host.sys / "bus/pci/devices" / address / "drm").glob("*")):
        if path.name.startswith(("card", "renderD")) and site.here(f"/dev/dri/{path.name}").exists():
            yield path.name


def _links(site: Site, address: str, names: list[str]) -> Iterator[tuple[str, str]]:
    """By udev's names, such as `/dev/dri/by-path/pci-0000:65:00.0-card`."""
    for kind in _KINDS:
        name = f"pci-{address}-{kind}"
        path = site.here("/dev/dri/by-path") / name
        if path.is_symlink() and path.readlink().name in names:
            yield f"/dev/dri/by-path/{name}", str(path.readlink())
