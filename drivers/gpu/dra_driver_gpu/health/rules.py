"""What counts as a fault, and how often is looked: the settings of health monitoring. All times in seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

from dra_driver_gpu.health.xid import BENIGN_XIDS


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRules:
    """`also_benign` are XIDs that leave a GPU healthy besides those that always do.

    Every `interval` all GPUs are read and reported; events are reported at once. `settle` is how long the driver must
    say that a GPU needs no recovery until an XID or an ECC error of it is forgotten. Every `survey` MIG devices are
    looked for anew.
    """

    also_benign: frozenset[int] = field(default=frozenset())
    interval: float = 5.0
    settle: float = 300.0
    survey: float = 30.0

    def benign(self, xid: int) -> bool:
        """Whether this XID is the fault of a program, not of the GPU."""
        return xid in BENIGN_XIDS or xid in self.also_benign
