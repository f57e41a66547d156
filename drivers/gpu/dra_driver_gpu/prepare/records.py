"""What the driver changed on each GPU and must change back: a small file for each GPU, kept under the state directory.

A claim's journal says what was done for that claim. The record says what belongs to the GPU whoever asks: what it was
like before the first claim came, and which MIG instances are ours. The lock of a GPU is on its directory, so it holds
among threads and processes, and a killed holder lets go.

Nothing of it survives a reboot on the GPU, so a record of another boot counts as empty.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from dra_driver_gpu.site import Site
from dra_sdk import DraError

JSON = dict[str, Any]
_FILE: Final = "record.json"


class RecordError(DraError):
    """A record cannot be read or written; it is left as it is."""


@dataclass
class Record:
    """One GPU.

    `mig_mode` is True if we turned MIG on. `instances` are the MIG instances that we made, by `profile-start`, each
    with the UIDs of its `claims`, and once it is complete its `uuid`, `gi` and `ci`. `uses` are the configurations of
    claims, each with `claim`, `device` and `policy`. `compute_mode` is what it was before the first of them, None where
    it was not changed; `time_slice` is `set` while the time slice is not the default, `tried` before that is certain.
    """

    mig_mode: bool = False
    instances: dict[str, JSON] = field(default_factory=dict)
    uses: dict[str, JSON] = field(default_factory=dict)
    compute_mode: int | None = None
    time_slice: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to be remembered."""
        return self == Record()

    def claims(self) -> set[str]:
        """The claims that something was done for."""
        made = {claim for each in self.instances.values() for claim in each["claims"]}
        return made | {use["claim"] for use in self.uses.values()}


class Records:
    """The records of a node."""

    def __init__(self, site: Site) -> None:
        self._directory = site.state / "gpus"
        self._boot = site.boot_id

    def known(self) -> list[str]:
        """The UUIDs of the GPUs that have a record."""
        return sorted(path.parent.name for path in self._directory.glob(f"*/{_FILE}"))

    @contextmanager
    def locked(self, uuid: str) -> Iterator[Record]:
        """The record of a GPU, which is nobody else's meanwhile. Changes are kept by `save`."""
        directory = self._directory / uuid
        try:
            directory.mkdir(mode=0o750, parents=True, exist_ok=True)
            handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise RecordError(f"cannot use {directory}: {error.strerror}") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield self.read(uuid)
        finally:
            os.close(handle)

    def read(self, uuid: str) -> Record:
        """The record of a GPU as it is now; for looking at only."""
        path = self._directory / uuid / _FILE
        try:
            kept: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if kept["boot"] != self._boot:
                return Record()
            return Record(**{name: value for name, value in kept.items() if name in Record.__dataclass_fields__})
        except FileNotFoundError:
            return Record()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RecordError(f"{path} cannot be read: {error}; restore or remove it") from error

    def save(self, uuid: str, record: Record) -> None:
        """Keep a record, or forget one that is empty."""
        path = self._directory / uuid / _FILE
        fresh = path.with_suffix(".new")
        try:
            if record.empty:
                path.unlink(missing_ok=True)
                fresh.unlink(missing_ok=True)
                return
            # No fsync: after a power failure the GPU has forgotten as well.
            fresh.write_text(json.dumps({"boot": self._boot, **vars(record)}), encoding="utf-8")
            fresh.replace(path)
        except OSError as error:
            raise RecordError(f"cannot write {path}: {error.strerror}") from error
