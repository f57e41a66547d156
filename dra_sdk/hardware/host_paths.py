"""Programs, libraries and other files below another root: a host that is mounted somewhere, or a driver container.

Links are followed as programs do whose `/` is that root. The kernel would follow an absolute link from the root of this
process instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from dra_sdk.errors import HardwareError, PermanentError
from dra_sdk.hardware.host import entries, is_directory, is_link, is_regular_file, target_if_link
from dra_sdk.model.edits import DeviceNode

PROGRAM_DIRS: Final = (
    "opt/bin",
    "usr/bin",
    "usr/sbin",
    "bin",
    "sbin",
    "usr/local/bin",
    "usr/local/nvidia/bin",  # beside the libraries of managed nodes
    "usr/libexec/nvidia/tesla/bin",  # Bottlerocket, also in its sysroots
    "x86_64-bottlerocket-linux-gnu/sys-root/usr/libexec/nvidia/tesla/bin",
    "aarch64-bottlerocket-linux-gnu/sys-root/usr/libexec/nvidia/tesla/bin",
    "run/current-system/sw/bin",  # NixOS: links into its store
)
"""The directories for programs, below a root, in the order of the search: of distributions and managed nodes."""
LIBRARY_DIRS: Final = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/local/nvidia/lib64",
    "usr/lib",
    "usr/local/glibc/usr/lib",  # Talos: system extensions for the GNU C library
    "usr/lib/nvidia/tesla",  # Bottlerocket, also in its sysroots
    "x86_64-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla",
    "aarch64-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla",
    "x86_64-bottlerocket-linux-gnu/sys-root/usr/lib",
    "aarch64-bottlerocket-linux-gnu/sys-root/usr/lib",
    "usr/local/lib",
    "run/opengl-driver/lib",  # NixOS: links into its store
)
"""The directories for libraries, below a root, in the order of the search: of distributions and managed nodes."""
_MAX_LINKS: Final = 40


def follow(root: Path, path: str | Path) -> Path:
    """Return the file at `path` below `root`, with links followed as if `root` were `/`; missing parts stay.

    Raises HardwareError if links form a loop, or if a name on the way is one that the kernel does not take.
    """
    parts, at, links = deque(Path(path).parts), root, 0
    while parts:
        part = parts.popleft()
        if part in {"/", "//", ".."}:  # POSIX lets two slashes mean something else, which Linux does not
            at = root if part != ".." or at == root else at.parent
            continue
        at /= part
        if (target := target_if_link(at)) is not None:
            links += 1
            if links > _MAX_LINKS:
                raise HardwareError(f"{path} below {root}: too many levels of symbolic links, at {at}")
            parts.extendleft(reversed(Path(target).parts))
            at = at.parent
    return at


class AllowedPaths:
    """The paths of the host that somebody else may name: a user in a claim's configuration, or another process.

    root: the root of the host.
    allowed: absolute paths; all below them is allowed too.
    """

    def __init__(self, root: Path, allowed: Sequence[str]) -> None:
        self._root, self._listed = root, ", ".join(allowed) or "any path"
        self._allowed = {PurePosixPath(place) for path in allowed for place in (path, self._target(path))}

    def checked(self, path: str) -> str:
        """Return the path to which links lead. PermanentError unless both paths are absolute and allowed.

        What is checked is what is there now: give the result to the container, not the path.
        """
        plain = PurePosixPath(path if not path.startswith("//") else f"/{path.lstrip('/')}")
        if not plain.is_absolute() or ".." in plain.parts or "\0" in path:
            raise PermanentError(f"host path {path!r} must be absolute, without '..'")
        target = self._target(path)
        for place in (plain, PurePosixPath(target)):
            if not any(place.is_relative_to(allowed) for allowed in self._allowed):
                leads = "" if str(plain) == target else f", which leads to {target},"
                raise PermanentError(f"host path {path}{leads} is not below {self._listed}")
        return target

    def device_nodes(self, path: str, container_path: str = "", permissions: str = "") -> list[DeviceNode]:
        """Return what a container gets for a device node, or for all below a directory. PermanentError as `checked`.

        A CDI spec neither follows links nor names directories. `container_path`: where it is in the container, by
        default `path`; `permissions`: any of r, w and m, by default those of the container runtime.
        """
        host, inside = self.checked(path), container_path or path
        pairs = ((file, inside + file.removeprefix(host)) for file in files_at(self._root, host))
        return [DeviceNode(there, here, permissions=permissions or None) for here, there in pairs]

    def _target(self, path: str) -> str:
        try:
            return str(PurePosixPath("/", follow(self._root, path).relative_to(self._root)))
        except HardwareError as error:
            raise PermanentError(str(error)) from error


def files_at(root: Path, path: str) -> list[str]:
    """Return the paths of all files below the directory at `path` below `root`, without links; `path` if it is none.

    A CDI spec names device nodes one by one, so a directory of them, such as `/dev/snd`, becomes this list.
    """
    at = root / path.lstrip("/")
    if not is_directory(at):
        return [path]
    files = [file for file in files_below(at) if not is_link(file)]
    return [f"{path.rstrip('/')}/{file.relative_to(at)}" for file in files]


def files_below(directory: Path, depth: int = 16) -> list[Path]:
    """Return the files in a directory and in those below it, sorted by path; links to directories are not followed.

    HardwareError if a directory cannot be listed, or if there are more than `depth` of them below each other.
    """
    if not depth:
        raise HardwareError(f"{directory}: too many directories below each other")
    files: list[Path] = []
    for name in entries(directory):
        path = directory / name
        files += files_below(path, depth - 1) if is_directory(path) and not is_link(path) else [path]
    return sorted(files)


def file_below(root: Path, path: Path) -> Path | None:
    """Return the regular file at `path` below `root`, with links followed as by `follow`; None if there is none."""
    try:
        target = follow(root, path)
        return target if is_regular_file(target) else None
    except HardwareError:  # a loop of links
        return None


def find_library(root: Path, name: str) -> Path | None:
    """Return the library with this file name in one of `LIBRARY_DIRS` below `root`; None if there is none.

    The file is the one to which links lead, so its name may have more digits than `name`.
    """
    return _first_file(root, LIBRARY_DIRS, name)


def find_program(root: Path, name: str) -> Path | None:
    """Return the program with this name in one of `PROGRAM_DIRS` below `root`; None if there is none."""
    return _first_file(root, PROGRAM_DIRS, name)


def _first_file(root: Path, directories: Sequence[str], name: str) -> Path | None:
    return next((found for directory in directories if (found := file_below(root, Path(directory, name)))), None)
