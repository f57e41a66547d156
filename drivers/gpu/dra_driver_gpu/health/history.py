"""The health of one GPU, from readings and events.

| fault | begins | ends |
|---|---|---|
| lost | NVML answers GPU_IS_LOST | it answers again |
| needs a reset | NVML answers RESET_REQUIRED | it answers again |
| recovery action | the driver names one | the driver names none |
| remapped rows | pending, or failed | neither, or the GPU has recovered |
| XID that is not benign, double-bit ECC error | the event, or a rise of the error counter | the GPU has recovered |

A GPU has recovered when it was lost or needed a reset and is back, when the driver's recovery action went back to none,
when its counters started again from less (it was reset), when it comes back from a virtual machine, or when the driver
has said for `settle` seconds after the last event that nothing needs to be done. Drivers before R570 name no recovery
action, so for them only the other signs count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from dra_driver_gpu.health.events import describe_xid
from dra_driver_gpu.nvml.api import Gpu
from dra_driver_gpu.nvml.queries import OptionalQueries
from dra_driver_gpu.nvml.values import EccCounter, EccKind, RecoveryAction, RemappedRows
from dra_sdk.hardware.health import FaultHistory, Units

GPU_LOST: Final = "gpu-lost"
XID: Final = "xid"
"""Taints of unhealthy devices, without the driver's name: those for which tolerations are written."""
DOUBLE_BIT: Final = "double-bit ECC error"


class Reachability(Enum):
    """Whether a GPU answers: it does, is lost, needs a reset, is with a virtual machine, or NVML fails to say."""

    SEEN = "seen"
    LOST = "lost"
    RESET = "in need of a reset"
    AWAY = "away"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Reading:
    """What can be read of a GPU at any time. None: the GPU or its driver does not report it, or not this time.

    action: what the driver says must happen to the GPU.
    rows: remapped memory rows.
    uncorrected: uncorrected memory errors since the driver was loaded or the GPU was reset.
    corrected: corrected memory errors since then.
    """

    action: RecoveryAction | None = None
    rows: RemappedRows | None = None
    uncorrected: int | None = None
    corrected: int | None = None


def read(uuid: str, gpu: Gpu, optional: OptionalQueries) -> Reading:
    """Read a GPU; a query that fails leaves out the one value.

    Raises GpuIsLostError, ResetRequiredError, and NvmlError if the driver cannot be reached.
    """
    return Reading(
        action=optional.ask(uuid, gpu.recovery_action),
        rows=optional.ask(uuid, gpu.remapped_rows),
        uncorrected=optional.ask(uuid, lambda: gpu.ecc_errors(EccKind.UNCORRECTED, EccCounter.VOLATILE)),
        corrected=optional.ask(uuid, lambda: gpu.ecc_errors(EccKind.CORRECTED, EccCounter.VOLATILE)),
    )


class GpuHistory:
    """One GPU; its parts are memory slices. Times are seconds of any steady clock.

    `reach` says whether it answers, `trouble` in which words NVML says why not. Without `trust_counters`, the counter
    of uncorrected errors is no fault while the driver names no recovery action; events are.
    """

    def __init__(self, settle: float, *, trust_counters: bool = True) -> None:
        self.reach = Reachability.SEEN
        self.trouble = ""
        self._settle, self._trust_counters = settle, trust_counters
        self._faults = FaultHistory[Units]()
        self._xids: dict[str, int] = {}
        self._action: RecoveryAction | None = None
        self._rows: RemappedRows | None = None
        self._corrected = 0
        self._uncorrected: int | None = None
        self._unexplained_rise = False
        self._explained_by_event = False
        self._failed_once = False

    def error(self, part: Units, what: str, now: float) -> bool:
        """Record an error that makes a part unhealthy until the GPU has recovered; True if it is new."""
        return self._faults.add(part, what, now)

    def xid(self, part: Units, xid: int, now: float) -> bool:
        """Record an XID that makes a part unhealthy until the GPU has recovered; True if it is new."""
        what = describe_xid(xid)
        self._xids[what] = xid
        return self._faults.add(part, what, now)

    def double_bit(self, part: Units, now: float) -> bool:
        """Record the event of an uncorrectable memory error, which explains a rise of the counter; True if new."""
        self._explained_by_event = True
        return self.error(part, DOUBLE_BIT, now)

    def remark(self, what: str) -> bool:
        """Record something that leaves the GPU healthy; True the first time."""
        return self._faults.remark(what)

    def answered(self, reading: Reading, now: float) -> None:
        """Record a reading of the GPU."""
        if self.reach in {Reachability.LOST, Reachability.RESET, Reachability.AWAY}:
            self._recovered()
        self.reach, self.trouble, self._failed_once = Reachability.SEEN, "", False
        if reading.action is not None:
            self._set_action(reading.action)
        if reading.rows is not None:
            self._rows = reading.rows
        if reading.uncorrected is not None:
            self._count(reading.uncorrected, now)
        if reading.corrected is not None:
            self._corrected = reading.corrected
        if self._action is RecoveryAction.NONE:
            self._faults.forget(now, self._settle)

    def missing(self, reach: Reachability, trouble: str = "") -> None:
        """Record that the GPU did not answer; UNREADABLE counts only from the second time in a row."""
        if reach is not Reachability.UNREADABLE or self._failed_once:
            self.reach, self.trouble = reach, trouble
        self._failed_once = True

    def problems(self, part: Units) -> Iterator[str]:
        """Yield what makes a part unhealthy, the worst first; nothing if it is healthy."""
        if self.reach is Reachability.LOST:
            yield "the GPU is lost"
        if self.reach is Reachability.RESET:
            yield "the GPU needs a reset"
        if self._action not in {None, RecoveryAction.NONE}:
            yield f"the driver asks for {self._action.name if self._action else ''}"
        if self._rows is not None and self._rows.failed:
            yield "a memory row could not be remapped"
        if self._rows is not None and self._rows.pending:
            yield "a remapped memory row waits for a reset"
        yield from self._faults.faults(part)

    def taints(self, part: Units) -> list[str]:
        """Return the taints of a part that tolerations name; none if it is unhealthy for another reason alone."""
        xids = sorted({self._xids[what] for what in self._faults.kinds(part) if what in self._xids})
        lost = [GPU_LOST] if self.reach is Reachability.LOST else []
        return [*lost, *(f"{XID}={number}" for number in xids)]

    def remarks(self) -> Iterator[str]:
        """Yield what is worth reporting of a healthy GPU."""
        yield from self._faults.remarks()
        if self._corrected:
            yield f"corrected memory errors: {self._corrected}"

    def _recovered(self) -> None:
        """Forget earlier faults: they say nothing about a GPU that was reset."""
        self._faults.clear()
        self._rows = None
        self._unexplained_rise = self._explained_by_event = False

    def _set_action(self, action: RecoveryAction) -> None:
        if action is RecoveryAction.NONE and self._action not in {None, RecoveryAction.NONE}:
            self._recovered()
        self._action = action

    def _count(self, count: int, now: float) -> None:
        """Take a rise that no event explains until the next reading as an error of the whole GPU."""
        known = self._uncorrected
        trusted = self._trust_counters or self._action is not None
        if known is None:  # errors from before the start count unless the driver says that all is well
            if count > 0 and trusted and self._action is not RecoveryAction.NONE:
                self.error(Units(), DOUBLE_BIT, now)
        elif count < known:
            self._recovered()
        elif self._unexplained_rise or count > known:
            if trusted and self._unexplained_rise and not self._explained_by_event:
                self.error(Units(), DOUBLE_BIT, now)
            self._unexplained_rise = count > known and not self._explained_by_event
        self._uncorrected, self._explained_by_event = count, False
