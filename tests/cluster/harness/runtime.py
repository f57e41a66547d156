"""etcd, containerd and the CNI plugins, unpacked from the packages of Debian sid.

The packages are unpacked into the cache and never installed: the machine's own containerd or etcd stays untouched,
and every machine runs the same releases.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .debian import KEYRING, apt, mirror, run
from .errors import HarnessError

if TYPE_CHECKING:
    from .cache import Cache
    from .progress import Progress

PACKAGES = ("containerd", "containernetworking-plugins", "etcd-server")
PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr", "etcd")
CNI_PLUGINS = ("host-local", "loopback", "ptp")


@dataclass(frozen=True)
class Runtime:
    """Where the programs of the container runtime are.

    bin: the directory of etcd, containerd and its helpers.
    cni: the directory of the CNI plugins.
    """

    bin: Path
    cni: Path

    @classmethod
    def under(cls, root: Path) -> Runtime:
        """Returns the directories to which Debian's packages unpack below `root`."""
        return cls(root / "usr/bin", root / "usr/lib/cni")

    def missing(self) -> list[Path]:
        """Returns the programs that are absent or cannot be executed."""
        wanted = [*(self.bin / name for name in PROGRAMS), *(self.cni / name for name in CNI_PLUGINS)]
        return [path for path in wanted if not os.access(path, os.X_OK)]


def ensure_runtime(cache: Cache, progress: Progress) -> Runtime:
    """Returns the unpacked runtime; downloads it first if it is not in the cache."""
    runtime = Runtime.under(cache.runtime)
    if not runtime.missing():
        return runtime
    with cache.lock(progress):
        if runtime.missing():
            with progress.step("downloading etcd, containerd and the CNI plugins"):
                _unpack(cache)
    return runtime


def _unpack(cache: Cache) -> None:
    """Downloads and unpacks the packages beside their place, then renames the result into place."""
    with tempfile.TemporaryDirectory(dir=cache.root) as temporary:
        work = Path(temporary)
        options = _apt_options(work, mirror())
        apt(*options, "update", "-qq")
        apt(*options, "download", "-qq", *PACKAGES, cwd=work)
        unpacked = work / "runtime"
        for package in sorted(work.glob("*.deb")):
            run(["dpkg-deb", "-x", str(package), str(unpacked)])
        if lacking := Runtime.under(unpacked).missing():
            raise HarnessError(f"the packages {', '.join(PACKAGES)} no longer contain {', '.join(map(str, lacking))}")
        shutil.rmtree(cache.runtime, ignore_errors=True)
        unpacked.rename(cache.runtime)


def _apt_options(work: Path, archive: str) -> list[str]:
    """Returns options that make apt see Debian sid alone, with its lists and packages in `work`."""
    for name in ("lists/partial", "cache/archives/partial"):
        (work / name).mkdir(parents=True)
    signed = f"[signed-by={KEYRING}] " if KEYRING.is_file() else ""
    (work / "sources.list").write_text(f"deb {signed}{archive} sid main\n")
    settings = {
        "Dir::Etc::sourcelist": work / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": work / "lists",
        "Dir::Cache": work / "cache",
        # apt's own user may not enter these directories, which belong to the caller
        "APT::Sandbox::User": "root",
    }
    return [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
