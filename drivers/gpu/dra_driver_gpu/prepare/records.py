"""What the driver changed on each GPU and must change back: a small file for each GPU, kept under the state directory.

A claim's journal says what was done for that claim. The record says what belongs to the GPU whoever asks: what it was
like before the first claim came, and which MIG instances are ours. The lock of a GPU is on its directory, so it holds
among threads and processes, and a killed holder lets go.

Nothing of it survives a reboot on the GPU, so a record of another boot counts as empty.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from dra_driver_gpu.prepare.locks import locked
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
    `vfio` is kept under the PCI address: the `claim` that has the GPU, the `entry` of its journal, and the `name` by
    which NVML knew it.
    """

    mig_mode: bool = False
    instances: dict[str, JSON] = field(default_factory=dict)
    uses: dict[str, JSON] = field(default_factory=dict)
    compute_mode: int | None = None
    time_slice: str = ""
    vfio: JSON = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to be remembered."""
        return self == Record()

    def made(self, profile_id: int, start: int) -> bool:
        """Whether the MIG instance of this profile at this memory slice is ours."""
        return f"{profile_id}-{start}" in self.instances


class Records:
    """The records of a node."""

    def __init__(self, site: Site) -> None:
        self._directory = site.here(f"{site.settings.state_dir}/gpus")
        self._boot, self._clock = site.boot_id, site.clock

    def known(self) -> list[str]:
        """The UUIDs, or PCI addresses, of the GPUs that have a record."""
        return sorted(path.parent.name for path in self._directory.glob(f"*/{_FILE}"))

    @contextmanager
    def locked(self, uuid: str) -> Iterator[Record]:
        """The record of a GPU, which is nobody else's meanwhile. Changes are kept by `save`."""
        directory = self._directory / uuid
        with ExitStack() as held:
            try:
                directory.mkdir(mode=0o750, parents=True, exist_ok=True)
                held.enter_context(locked(directory, self._clock))
            except OSError as error:
                raise RecordError(f"cannot use {directory}: {error.strerror}") from error
            yield self.read(uuid)

    def read(self, uuid: str) -> Record:
        """The record of a GPU as it is now; for looking at only."""
        path = self._directory / uuid / _FILE
        try:
            text = path.read_text(encoding="utf-8")
            if not text.strip("\0 \n"):  # a power failure can leave a file of its size without its content
                return Record()
            kept: Mapping[str, Any] = json.loads(text)
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
