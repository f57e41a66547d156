"""The cache of built and downloaded binaries, and the lock that keeps two builds apart."""

from __future__ import annotations

import fcntl
import os
import re
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from .errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .progress import Progress

DEFAULT_VERSION = "1.36.3"
OLDEST_MINOR = 34
"""The first release with resource.k8s.io/v1 and the kubelet's v1.DRAPlugin."""
_VERSION = re.compile(r"v?1\.(\d+)\.(\d+)(-(?:alpha|beta|rc)\.\d+)?")


@dataclass(frozen=True)
class Version:
    """A Kubernetes release, `1.<minor>.<patch><suffix>`.

    minor: the minor release, such as 36.
    patch: the patch release.
    suffix: the pre-release, such as `-rc.1`; empty for a release.
    """

    minor: int
    patch: int
    suffix: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `1.36.3` or `v1.36.3`; HarnessError for another form and for a release before 1.34."""
        match = _VERSION.fullmatch(text.strip())
        if match is None:
            raise HarnessError(f"Kubernetes version {text!r}: expected 1.<minor>.<patch>, say {DEFAULT_VERSION}")
        version = cls(int(match[1]), int(match[2]), match[3] or "")
        if version.minor < OLDEST_MINOR:
            raise HarnessError(f"Kubernetes version {text!r}: resource.k8s.io/v1 is served since 1.{OLDEST_MINOR}")
        return version

    @property
    def staging(self) -> str:
        """The version of the modules of the same release, `k8s.io/api` and its siblings."""
        return f"v0.{self.minor}.{self.patch}{self.suffix}"

    def __str__(self) -> str:
        return f"1.{self.minor}.{self.patch}{self.suffix}"


@dataclass(frozen=True)
class Cache:
    """A folder outside the checkout, which survives `git clean`.

    root: the folder. It has one folder for each Kubernetes version, and one container runtime.
    """

    root: Path

    @classmethod
    def from_env(cls) -> Self:
        """Returns the cache at DRA_SDK_CACHE, or at `dra-sdk` in XDG_CACHE_HOME, or at `~/.cache/dra-sdk`."""
        if chosen := os.environ.get("DRA_SDK_CACHE"):
            return cls(Path(chosen).absolute())
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return cls(Path(base).absolute() / "dra-sdk")

    def kube(self, version: Version) -> Path:
        """The folder with the binaries of one Kubernetes version."""
        return self.root / "kube" / str(version)

    def source(self, version: Version) -> Path:
        """The folder of the small Go module that builds these binaries."""
        return self.root / "src" / str(version)

    @property
    def runtime(self) -> Path:
        """The folder of the unpacked packages: etcd, containerd, CNI plugins."""
        return self.root / "runtime"

    def failed_logs(self, name: str) -> Path:
        """The folder for the logs of a cluster that failed to start."""
        return self.root / "failed" / name

    @contextmanager
    def lock(self, progress: Progress) -> Iterator[None]:
        """Keeps other processes from changing the cache; waits for one that does. A dead process holds no lock."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / "lock").open("a+") as file:
            if not try_lock(file):
                with progress.step("waiting for another build in this cache"):
                    while not try_lock(file):
                        time.sleep(0.5)
            yield


def try_lock(file: IO[str]) -> bool:
    """Takes the lock on an open file if nobody holds it; returns whether it did."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
