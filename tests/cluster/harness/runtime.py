"""etcd, containerd and the CNI plugins unpacked from Debian packages, and the few tools the machine itself must have.

The packages of Debian sid are unpacked into the cache, never installed: the machine's own containerd or etcd, if it
has one, stays untouched, and every machine runs the same releases.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .cache import Cache
    from .progress import Progress

PACKAGES = ("containerd", "containernetworking-plugins", "etcd-server")
PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr", "etcd")
CNI_PLUGINS = ("host-local", "loopback", "ptp")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ELF_INTERPRETER_SEGMENT = 3


@dataclass(frozen=True)
class Runtime:
    """Where the programs of the container runtime are."""

    bin: Path
    cni: Path

    @classmethod
    def under(cls, root: Path) -> Runtime:
        """The layout Debian's packages unpack to."""
        return cls(root / "usr/bin", root / "usr/lib/cni")

    def missing(self) -> list[Path]:
        """Returns what is not there or cannot be executed."""
        wanted = [*(self.bin / name for name in PROGRAMS), *(self.cni / name for name in CNI_PLUGINS)]
        return [path for path in wanted if not os.access(path, os.X_OK)]


def ensure_runtime(cache: Cache, progress: Progress) -> Runtime:
    """Returns the unpacked runtime, downloading it first where it is missing."""
    runtime = Runtime.under(cache.runtime)
    if not runtime.missing():
        return runtime
    with cache.lock(progress):
        if runtime.missing():
            with progress.step("downloading etcd, containerd and the CNI plugins"):
                _unpack(cache)
    return runtime


def ensure_tools(progress: Progress) -> None:
    """Installs by apt those of the machine's tools that are missing; nothing is touched when all are there."""
    wanted: dict[str, Callable[[], bool]] = {
        "runc": lambda: find_tool("runc") is not None,
        "busybox-static": lambda: find_busybox() is not None,
        "iproute2": lambda: find_tool("ip") is not None,
    }
    lacking = [package for package, present in wanted.items() if not present()]
    if not lacking:
        return
    if shutil.which("apt-get") is None:
        raise HarnessError(f"this machine lacks {', '.join(lacking)} and has no apt-get to install them")
    with progress.step(f"installing {', '.join(lacking)}"):
        _apt("update", "-qq")
        _apt("install", "-y", "-qq", "--no-install-recommends", *lacking)
    if still := [package for package, present in wanted.items() if not present()]:
        raise HarnessError(f"apt installed {', '.join(still)} but what the harness needs of it cannot be found")


def find_tool(name: str) -> Path | None:
    """Returns where a tool is, looking into the administrator's folders too."""
    found = shutil.which(name) or shutil.which(name, path=SEARCH_PATH)
    return None if found is None else Path(found)


def find_busybox() -> Path | None:
    """Returns a busybox that runs in an image of its own: one that needs no dynamic linker."""
    found = find_tool("busybox")
    return found if found is not None and is_static(found.read_bytes()) else None


def is_static(elf: bytes) -> bool:
    """Tells whether a 64-bit little-endian ELF file asks for no interpreter (ELF specification, program header)."""
    if elf[:6] != b"\x7fELF\x02\x01":
        return False
    offset = int.from_bytes(elf[32:40], "little")
    size, count = int.from_bytes(elf[54:56], "little"), int.from_bytes(elf[56:58], "little")
    kinds = {int.from_bytes(elf[at : at + 4], "little") for at in range(offset, offset + size * count, size)}
    return _ELF_INTERPRETER_SEGMENT not in kinds


def choose_mirror(targets: str) -> str | None:
    """Picks the Debian archive from lines of `<address> <origin>` as `apt-get indextargets` prints them."""
    for line in targets.splitlines():
        address = line.split(" ", 1)[0].rstrip("/")
        if address.endswith("/debian"):
            return address
    return None


def _unpack(cache: Cache) -> None:
    """Downloads the packages and unpacks them beside their place, which they then take by a rename."""
    with tempfile.TemporaryDirectory(dir=cache.root) as temporary:
        work = Path(temporary)
        options = _apt_options(work, _mirror())
        _apt(*options, "update", "-qq")
        _apt(*options, "download", "-qq", *PACKAGES, cwd=work)
        unpacked = work / "runtime"
        for package in sorted(work.glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", str(package), str(unpacked)], check=True)
        if lacking := Runtime.under(unpacked).missing():
            raise HarnessError(f"the packages {', '.join(PACKAGES)} no longer contain {', '.join(map(str, lacking))}")
        shutil.rmtree(cache.runtime, ignore_errors=True)
        unpacked.rename(cache.runtime)


def _apt_options(work: Path, mirror: str) -> list[str]:
    """Options that make apt see Debian sid alone, with lists and packages in `work`."""
    for name in ("lists/partial", "cache/archives/partial"):
        (work / name).mkdir(parents=True)
    signed = f"[signed-by={KEYRING}] " if KEYRING.is_file() else ""
    (work / "sources.list").write_text(f"deb {signed}{mirror} sid main\n")
    settings = {
        "Dir::Etc::sourcelist": work / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": work / "lists",
        "Dir::Cache": work / "cache",
        # the folders above belong to the caller, apt's own user may not enter them
        "APT::Sandbox::User": "root",
    }
    return [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]


def _mirror() -> str:
    if chosen := os.environ.get("DRA_SDK_DEBIAN_MIRROR"):
        return chosen.rstrip("/")
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise HarnessError("etcd, containerd and the CNI plugins are unpacked from Debian packages: apt-get is missing")
    for refresh in (False, True):  # fresh container images come without package lists, so apt knows no archive yet
        if refresh:
            _apt("update", "-qq")
        known = _apt("indextargets", "--format", "$(REPO_URI) $(ORIGIN)", "Created-By: Packages")
        if mirror := choose_mirror(known):
            return mirror
    raise HarnessError("apt knows no Debian archive on this machine: name one in DRA_SDK_DEBIAN_MIRROR")


def _apt(*args: str, cwd: Path | None = None) -> str:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", *args]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HarnessError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
