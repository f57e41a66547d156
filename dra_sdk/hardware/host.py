"""Where the host's file systems are: the one value that every reader takes, so that tests hand in a tree of files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Host:
    """A host whose `/sys`, `/proc` and `/dev` lie under `root`.

    `Host()` is the machine itself. In a container that mounts the host's root somewhere, give that directory;
    in a test, give a directory filled by `dra_sdk.testing.sysfs`.
    """

    root: Path = Path("/")

    @property
    def sys(self) -> Path:
        """The sysfs of the host."""
        return self.root / "sys"

    @property
    def proc(self) -> Path:
        """The procfs of the host."""
        return self.root / "proc"

    @property
    def dev(self) -> Path:
        """The device nodes of the host."""
        return self.root / "dev"
