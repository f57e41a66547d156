"""The disk and the locks of a node in the model of the protocol: the real ones, which announce effects and fail."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dra_sdk.node.files import Files
from dra_sdk.node.locks import NamedLocks

if TYPE_CHECKING:
    from tests.faults.protocol_node import Node

_NEEDS_SPACE: Final = {"create", "write", "fsync"}


@dataclass
class Trouble:
    """What fails: the effect number `after` from now on of this kind, or all from there on if it is `for_good`.

    broken: whether a disk fails with EIO at every step; else it is full, and only what needs space fails.
    """

    after: int
    for_good: bool = False
    broken: bool = False

    def strikes(self, step: str) -> bool:
        """Whether this effect fails."""
        if not self.broken and step not in _NEEDS_SPACE:
            return False
        self.after -= 1
        return self.after == -1 or (self.for_good and self.after < 0)


class Disk(Files):
    """The files of one process. Remembers what a power failure would take back."""

    def __init__(self, node: Node) -> None:
        super().__init__(self._before)
        self._node = node
        self._synced: dict[Path, set[str]] = {}

    def write(self, path: str | Path, *arguments: Any, **options: Any) -> None:
        """As `Files.write`."""
        self._synced[Path(path)] = set()
        super().write(path, *arguments, **options)
        self._done(Path(path))

    def remove(self, path: str | Path, *, survive_power_loss: bool = True) -> None:
        """As `Files.remove`."""
        self._synced[Path(path)] = set()
        super().remove(path, survive_power_loss=survive_power_loss)
        self._done(Path(path))

    def _before(self, step: str, path: Path) -> None:
        self._node.disk_effect(step, path)
        self._synced.setdefault(path, set()).add(step)
        if step in {"rename", "unlink"} and path.is_relative_to(self._node.data):
            before = path.read_bytes() if path.is_file() else None
            self._node.volatile.setdefault(path, before)
            if step == "rename" and "fsync" not in self._synced.get(path, ()):
                self._node.torn.add(path)

    def _done(self, path: Path) -> None:
        if "fsync-directory" in self._synced.pop(path, ()):
            self._node.volatile.pop(path, None)
            self._node.torn.discard(path)


class Locks(NamedLocks):
    """The real locks; a call that would wait for one stands still, so that the others can go on."""

    def __init__(self, node: Node) -> None:
        super().__init__(node.locks)
        self._node = node

    def acquire(self, names: frozenset[str]) -> None:
        """As `NamedLocks.acquire`."""
        self._node.effect("lock", changes=False)
        while not self._are_free(names):
            self._node.running.wait()
        super().acquire(names)

    def _are_free(self, names: frozenset[str]) -> bool:
        if not self.held.isdisjoint(names):
            return False
        for name in names if self.is_shared else ():
            with self._node.probe.try_hold(name) as free:
                if not free:
                    return False
        return True
