"""The driver's files for a container: libraries, programs, firmware, sockets of its daemons, and the hooks they need.

Files are mounted at the paths that they have in the driver root. A container's loader finds libraries after a hook of
the container toolkit, `nvidia-cdi-hook`, has renewed its cache. Without the toolkit, libraries and the names by which
programs link to them are mounted where the loader of every distribution looks without a cache. Links below the driver
root are followed there, never to our own files.

Source: the CDI specs that the container toolkit writes.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final

from dra_driver_gpu.edits.libraries import DriverLibraries, expected_links, find_libraries
from dra_driver_gpu.nvidia_node import NvidiaNode
from dra_sdk import ContainerEdits, HardwareError, Mount, OciHook
from dra_sdk.hardware import entries, exists, file_status, is_regular_file, read_optional, read_text
from dra_sdk.hardware.host import read_beginning
from dra_sdk.hardware.host_paths import PROGRAM_DIRS, file_below, follow

_PROGRAMS: Final = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
)
_DATA: Final = (
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
"""What the loaders of OpenCL, graphics and ray tracing read, below one of `_DATA_DIRS`."""
_SEARCHED: Final = frozenset({"opt/bin", "usr/bin", "usr/sbin", "bin", "sbin", "usr/local/bin"})
_NIX_STORE: Final = "nix/store"
_MOST_OF_A_PROGRAM: Final = 256 << 20  # bytes
_SCRIPT: Final = b"#!"
_DATA_DIRS: Final = ("usr/share", "etc")
_SOCKETS: Final = ("run/nvidia-persistenced/socket", "run/nvidia-fabricmanager/socket")
_READ_ONLY: Final = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_SOCKET_OPTIONS: Final = ("ro", "nosuid", "nodev", "noexec", "rbind", "rprivate")
_HOOK: Final = "nvidia-cdi-hook"
_HOOK_PATHS: Final = (f"/usr/bin/{_HOOK}", f"/usr/local/nvidia/toolkit/{_HOOK}")
_OLD_SUBCOMMANDS: Final = frozenset({"create-symlinks", "update-ldcache"})
_NEW_SUBCOMMANDS: Final = frozenset(
    {"enable-cuda-compat", "disable-device-node-modification", "update-application-profile"}
)


def driver_edits(node: NvidiaNode, version: str) -> ContainerEdits:
    """Return mounts, hooks and environment of the driver with this version."""
    libraries = find_libraries(node.driver_root, version)
    hook = find_hook(node)
    placed = {f"/{path}": path for path in libraries.libraries} if hook else libraries.for_loaders(platform.machine())
    targets = {**placed, **{f"/{path}": path for path in libraries.modules}}
    mounts = [_mount(node, path, target) for target, path in targets.items()]
    mounts += [*_programs(node), *_data(node), *_firmware(node, version), *_sockets(node)]
    cuda = dict.fromkeys(str(PurePosixPath(path).parent) for path in placed if "/libcuda.so." in path)
    env = {"NVIDIA_CTK_LIBCUDA_DIR": ":".join(cuda)} if cuda else {}
    return ContainerEdits(mounts=mounts, env=env, hooks=list(_hooks(node, hook, libraries, version)) if hook else [])


def find_hook(node: NvidiaNode) -> str | None:
    """`nvidia-cdi-hook` as a path of the host: as set, or found in the driver root or on the host; None if missing."""
    if node.settings.cdi_hook:
        return node.settings.cdi_hook
    if (program := node.program(_HOOK)) is not None:
        return node.host_path(program)
    return next((path for path in _HOOK_PATHS if is_regular_file(node.local(path))), None)


def link_hook(hook: str, links: Mapping[str, str]) -> list[OciHook]:
    """Return the hook that creates links in a container, each path with its target; none if there is no link."""
    arguments = [argument for link, target in links.items() for argument in ("--link", f"{target}::{link}")]
    return [OciHook("createContainer", hook, [_HOOK, "create-symlinks", *arguments])] if arguments else []


def _hooks(node: NvidiaNode, hook: str, libraries: DriverLibraries, version: str) -> Iterator[OciHook]:
    """Yield the hooks for a container with these libraries.

    The program belongs to the node and may be older than this driver. A subcommand that it does not know would keep the
    container from starting, so only subcommands that it has are used.
    """
    calls = [
        ["enable-cuda-compat", f"--host-driver-version={version}"],
        ["update-ldcache", *(argument for directory in libraries.directories for argument in ("--folder", directory))],
        ["disable-device-node-modification"],
        ["update-application-profile"],
    ]
    known = _subcommands(node, hook)
    yield from link_hook(hook, expected_links(libraries, version))
    for name, *arguments in calls:
        if name in known and (arguments or name not in _OLD_SUBCOMMANDS):
            yield OciHook("createContainer", hook, [_HOOK, name, *arguments])


def _subcommands(node: NvidiaNode, hook: str) -> frozenset[str]:
    """Return the subcommands of the program; if it cannot be read, those that every version has."""
    newer: frozenset[str] = frozenset()
    # The container of the toolkit puts a script in front of the program.
    for path in (follow(node.root, hook), follow(node.root, f"{hook}.real")):
        try:
            status = file_status(path)
            newer |= _new_subcommands(path, status.st_mtime_ns, status.st_size) if status else frozenset()
        except HardwareError:
            continue
    return _OLD_SUBCOMMANDS | newer


@lru_cache(maxsize=8)
def _new_subcommands(path: Path, _changed: int, _size: int) -> frozenset[str]:
    """Return the newer subcommands whose names a program contains; read again only if the file has changed."""
    content = read_text(path, _MOST_OF_A_PROGRAM)
    return frozenset(name for name in _NEW_SUBCOMMANDS if name in content)


def _programs(node: NvidiaNode) -> Iterator[Mount]:
    """Yield programs under the name by which they are found, which may be a link to another file.

    A program from a directory that images do not search is mounted in `/usr/bin`.
    """
    root = node.driver_root
    for name in _PROGRAMS:
        if (program := _program(root, name)) is not None:
            directory, real = program
            target = directory if directory in _SEARCHED else "usr/bin"
            yield Mount(node.host_path(real), f"/{target}/{name}", _READ_ONLY)


def _program(root: Path, name: str) -> tuple[str, Path] | None:
    """Return the directory in which a program is found, and its file; None if there is none that a container can run.

    A program of a Nix store runs only on the host: its loader is in the store as well. A script is the answer if there
    is nothing else: it often starts the program in another directory of the host, which a container does not have.
    """
    script = None
    for directory in PROGRAM_DIRS:
        real = file_below(root, Path(directory, name))
        if real is None or real.is_relative_to(root / _NIX_STORE):
            continue
        if not _is_script(real):
            return directory, real
        script = script or (directory, real)
    return script


def _is_script(path: Path) -> bool:
    return read_beginning(path, len(_SCRIPT)) == _SCRIPT


def _data(node: NvidiaNode) -> Iterator[Mount]:
    yield from _existing(node, [Path(directory, name) for name in _DATA for directory in _DATA_DIRS])


def _existing(node: NvidiaNode, paths: Sequence[Path]) -> Iterator[Mount]:
    for path in paths:
        if (real := file_below(node.driver_root, path)) is not None:
            yield Mount(node.host_path(real), f"/{path}", _READ_ONLY)


def _firmware(node: NvidiaNode, version: str) -> Iterator[Mount]:
    name = Path("lib/firmware/nvidia", version)
    directory = follow(node.driver_root, name)
    for file in entries(directory):
        if file.startswith("gsp") and file.endswith(".bin"):
            yield Mount(node.host_path(directory / file), f"/{name / file}", _READ_ONLY)


def _sockets(node: NvidiaNode) -> Iterator[Mount]:
    """Yield sockets of daemons in the driver's container, or else on the host."""
    for path in _SOCKETS:
        if read_optional(exists, socket := follow(node.driver_root, path)):
            yield Mount(node.host_path(socket), f"/{path}", _SOCKET_OPTIONS)
        elif read_optional(exists, node.local(f"/{path}")):
            yield Mount(f"/{path}", f"/{path}", _SOCKET_OPTIONS)


def _mount(node: NvidiaNode, path: Path, target: str) -> Mount:
    """Mount a file, by its path below the driver root, at a path in the container."""
    return Mount(f"{node.settings.driver_root.rstrip('/')}/{path}", target, _READ_ONLY)
