"""The kubelet's prepare and unprepare calls in one shape, whichever version of the DRAPlugin API carries them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """A claim as the kubelet names it: all that unprepare has to go by."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"claim {self.namespace}/{self.name} ({self.uid})"


@dataclass(frozen=True, slots=True)
class AnsweredDevice:
    """One device of a prepare answer.

    `request` is a base request name. `cdi_ids` are qualified CDI device names (`vendor/class=name`), possibly none.
    `share_id` travels in v1 only.
    """

    request: str
    pool: str
    device: str
    cdi_ids: Sequence[str] = ()
    share_id: str | None = None
