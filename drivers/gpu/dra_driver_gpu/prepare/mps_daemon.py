"""What an MPS daemon is for, what it is called, and what it is told."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

STEP: Final = "mps"


@dataclass(frozen=True, slots=True)
class Daemon:
    """What a daemon is for: `devices` are UUIDs, `limits` memory limits by UUID, `percentage` of multiprocessors.

    `process` is its pid and the time of its start (see `Effects.started`), empty where it is not known.
    """

    claim: str
    devices: Sequence[str]
    percentage: int | None = None
    limits: Mapping[str, str] = field(default_factory=dict)
    multi_user: bool = False
    process: Sequence[int] = ()

    @property
    def id(self) -> str:
        """One part for the claim and one for the devices: short, because the path of a socket has 107 bytes at most."""
        return f"{mark(self.claim)}-{_digest(','.join(sorted(self.devices)))[:5]}"

    @property
    def orders(self) -> Iterator[str]:
        """What its control program is to be told once it runs."""
        if self.percentage is not None:
            yield f"set_default_active_thread_percentage {self.percentage}"
        for uuid, limit in sorted(self.limits.items()):
            yield f"set_default_device_pinned_mem_limit {uuid} {limit}"

    @property
    def journal_entry(self) -> dict[str, Any]:
        """What a claim's journal keeps before the daemon is started."""
        return {"step": STEP, "id": self.id}


def mark(claim: str) -> str:
    """What the ids of the daemons of the claim with this UID begin with."""
    return _digest(claim)[:10]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
