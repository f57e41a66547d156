"""The programs that the tests need on this machine, as Debian packages, and the Debian archive.

The harnesses install nothing on the machine. They name what is missing, with the command that installs it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_GO_DIRECTORIES = "/usr/local/go/bin:/usr/lib/go/bin"
_OLDEST_GO = (1, 21)
_ELF_INTERPRETER_SEGMENT = 3
_ERROR_LENGTH = 2000  # characters of a tool's output in an error message


@dataclass(frozen=True)
class Tool:
    """A program that the tests need on this machine.

    name: its name, as people call it.
    package: the Debian package that contains it; empty if Debian 12 has none that is new enough.
    purpose: what the tests do with it.
    present: tells whether it is there.
    """

    name: str
    package: str
    purpose: str
    present: Callable[[], bool]


def find_tool(name: str) -> Path | None:
    """Returns the path of a program, also from the administrator's directories; None if there is none."""
    found = shutil.which(name) or shutil.which(name, path=SEARCH_PATH)
    return None if found is None else Path(found)


def find_busybox() -> Path | None:
    """Returns the path of a busybox that needs no dynamic linker, so that it runs alone in an image."""
    found = find_tool("busybox")
    return found if found is not None and is_static(found.read_bytes()) else None


def find_go() -> Path | None:
    """Returns the path of Go 1.21 or later, which fetches the toolchain that a Kubernetes release asks for."""
    found = shutil.which("go") or shutil.which("go", path=_GO_DIRECTORIES)
    if found is None:
        return None
    said = subprocess.run([found, "version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"go(\d+)\.(\d+)", said)
    return Path(found) if version and (int(version[1]), int(version[2])) >= _OLDEST_GO else None


def is_static(elf: bytes) -> bool:
    """Tells whether a 64-bit little-endian ELF file names no interpreter (ELF specification, program header)."""
    if elf[:6] != b"\x7fELF\x02\x01":
        return False
    offset = int.from_bytes(elf[32:40], "little")
    size, count = int.from_bytes(elf[54:56], "little"), int.from_bytes(elf[56:58], "little")
    kinds = {int.from_bytes(elf[at : at + 4], "little") for at in range(offset, offset + size * count, size)}
    return _ELF_INTERPRETER_SEGMENT not in kinds


def _on_path(name: str, package: str, purpose: str) -> Tool:
    return Tool(name, package, purpose, lambda: find_tool(name) is not None)


_GO = Tool("Go 1.21 or later", "", "builds the Kubernetes binaries", lambda: find_go() is not None)
_APT = _on_path("apt-get", "apt", "downloads Debian packages")

TO_BUILD = (_GO,)
"""To build the Kubernetes binaries."""
TO_DOWNLOAD = (_APT, _on_path("dpkg-deb", "dpkg", "unpacks Debian packages"))
"""To download etcd, containerd and the CNI plugins."""
CLUSTER = (
    _on_path("runc", "runc", "runs containers for containerd"),
    Tool("busybox (static)", "busybox-static", "is the only container image", lambda: find_busybox() is not None),
    _on_path("ip", "iproute2", "sets the addresses of the cluster"),
)
"""To run a cluster."""
PODMAN = (
    _on_path("podman", "podman", "reads the drivers' CDI specs as a second container runtime"),
    _on_path("crun", "crun", "runs containers for podman"),
)
"""For `tests/cluster/test_podman.py`."""
NAMESPACES = (
    _on_path("setpriv", "util-linux", "ends a Debian system with the process that started it"),
    _on_path("unshare", "util-linux", "runs a Debian system in namespaces"),
    _on_path("mount", "mount", "gives a Debian system its directories"),
    _on_path("chroot", "coreutils", "gives a Debian system its root directory"),
)
"""To run a Debian system of `tests/lab/harness/layers.py`: the virtual machine, and the newest Python."""
TO_INSTALL = (_APT, _on_path("debootstrap", "debootstrap", "installs the Debian systems of the tests"))
"""To make such a system."""
IMAGE = (_on_path("buildah", "buildah", "builds the image of the drivers"), *NAMESPACES, *TO_INSTALL)
"""To build the image of the drivers, for `tests/cluster/test_image`."""


def missing(tools: Iterable[Tool]) -> list[Tool]:
    """Returns those of `tools` that this machine lacks."""
    return [tool for tool in tools if not tool.present()]


def packages(tools: Iterable[Tool]) -> list[str]:
    """Returns the Debian packages of `tools`, each once."""
    return list(dict.fromkeys(tool.package for tool in tools if tool.package))


def explain(who: str, lacking: Sequence[Tool]) -> str:
    """Returns the message that names what is missing and how to install it; `who` is what needs it."""
    width = max(len(tool.name) for tool in lacking)
    lines = [f"{who} needs programs that this machine lacks:"]
    lines += [f"  {tool.name:{width}}  {tool.purpose}" for tool in lacking]
    if names := packages(lacking):
        lines.append(f"install them with: apt-get update && apt-get install -y {' '.join(names)}")
    if _GO in lacking:
        lines.append("install Go from https://go.dev/dl and put `go` on PATH")
    return "\n".join(lines)


def require(who: str, tools: Iterable[Tool]) -> None:
    """Raises HarnessError with `explain`'s message if one of `tools` is missing."""
    if lacking := missing(tools):
        raise HarnessError(explain(who, lacking))


def mirror() -> str:
    """Returns the Debian archive: DRA_SDK_DEBIAN_MIRROR, or the one that apt uses on this machine."""
    if chosen := os.environ.get("DRA_SDK_DEBIAN_MIRROR"):
        return chosen.rstrip("/")
    for refresh in (False, True):  # a fresh container image has no package lists, so apt knows no archive yet
        if refresh:
            apt("update", "-qq")
        targets = apt("indextargets", "--format", "$(REPO_URI) $(ORIGIN)", "Created-By: Packages")
        if found := choose_mirror(targets):
            return found
    raise HarnessError("apt knows no Debian archive on this machine: name one in DRA_SDK_DEBIAN_MIRROR")


def choose_mirror(targets: str) -> str | None:
    """Picks the Debian archive from lines of `<address> <origin>`, as `apt-get indextargets` prints them."""
    for line in targets.splitlines():
        address = line.split(" ", 1)[0].rstrip("/")
        if address.endswith("/debian"):
            return address
    return None


def apt(*arguments: str, cwd: Path | None = None) -> str:
    """Runs apt-get and returns its output; HarnessError with its last words if it fails."""
    return run(["apt-get", *arguments], {"DEBIAN_FRONTEND": "noninteractive"}, cwd)


def run(command: Sequence[str], environment: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """Runs a program to its end, without input, and returns its output; HarnessError with its last words if it fails.

    `environment` is added to this process's own.
    """
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr)[-_ERROR_LENGTH:]
        raise HarnessError(f"{' '.join(command)[:_ERROR_LENGTH]} failed with status {done.returncode}:\n{said}")
    return done.stdout
