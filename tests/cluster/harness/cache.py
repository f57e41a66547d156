"""Where built and downloaded binaries live, and the lock that keeps two builders apart."""

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
"""resource.k8s.io/v1 and the kubelet's v1.DRAPlugin appeared in 1.34."""
_VERSION = re.compile(r"v?1\.(\d+)\.(\d+)(-(?:alpha|beta|rc)\.\d+)?")


@dataclass(frozen=True)
class Version:
    """A Kubernetes release, `1.<minor>.<patch>`, with an optional pre-release suffix such as `-rc.1`."""

    minor: int
    patch: int
    suffix: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `1.36.3` or `v1.36.3`; anything else, and any release before 1.34, is a HarnessError."""
        match = _VERSION.fullmatch(text.strip())
        if match is None:
            raise HarnessError(f"Kubernetes version {text!r}: expected 1.<minor>.<patch>, say {DEFAULT_VERSION}")
        version = cls(int(match[1]), int(match[2]), match[3] or "")
        if version.minor < OLDEST_MINOR:
            raise HarnessError(f"Kubernetes version {text!r}: resource.k8s.io/v1 is served since 1.{OLDEST_MINOR}")
        return version

    @property
    def staging(self) -> str:
        """The version of the modules released together with this one (`k8s.io/api` and its siblings)."""
        return f"v0.{self.minor}.{self.patch}{self.suffix}"

    def __str__(self) -> str:
        return f"1.{self.minor}.{self.patch}{self.suffix}"


@dataclass(frozen=True)
class Cache:
    """The folder outside the checkout that survives `git clean`: one folder per Kubernetes version, one runtime."""

    root: Path

    @classmethod
    def from_env(cls) -> Self:
        """Takes DRA_SDK_CACHE, or `dra-sdk` in XDG_CACHE_HOME, or `~/.cache/dra-sdk`."""
        if chosen := os.environ.get("DRA_SDK_CACHE"):
            return cls(Path(chosen).absolute())
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return cls(Path(base).absolute() / "dra-sdk")

    def kube(self, version: Version) -> Path:
        """The folder with the binaries of one Kubernetes version."""
        return self.root / "kube" / str(version)

    def source(self, version: Version) -> Path:
        """The small Go module those binaries are built from."""
        return self.root / "src" / str(version)

    @property
    def runtime(self) -> Path:
        """Unpacked packages: etcd, containerd, CNI plugins."""
        return self.root / "runtime"

    def failed_logs(self, name: str) -> Path:
        """Where the logs of a cluster go that did not come up."""
        return self.root / "failed" / name

    @contextmanager
    def lock(self, progress: Progress) -> Iterator[None]:
        """Holds the only right to change the cache; waits for whoever has it. A dead holder's lock is free."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / "lock").open("a+") as file:
            if not _try_lock(file):
                with progress.step("waiting for another build in this cache"):
                    while not _try_lock(file):
                        time.sleep(0.5)
            yield


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
