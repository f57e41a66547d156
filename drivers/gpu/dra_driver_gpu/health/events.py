"""Events of NVML: one event set that follows the GPUs, and XID errors in words.

An XID is an error that the driver reports by number. Source: NVIDIA "XID Errors", the catalogue of numbers.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from dra_driver_gpu.nvml.api import EventSet, Gpu, Nvml, NvmlEvent
from dra_driver_gpu.nvml.errors import NotSupportedError, NvmlError
from dra_driver_gpu.nvml.values import EventType

log = logging.getLogger(__name__)
BENIGN_XIDS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""Errors that a faulty program causes on a healthy GPU; they are reported, but the GPU stays healthy."""
_TYPES: Final = EventType.XID_CRITICAL_ERROR | EventType.DOUBLE_BIT_ECC_ERROR | EventType.SINGLE_BIT_ECC_ERROR
_MEANINGS: Final = {
    13: "graphics engine exception",
    31: "memory page fault of a program",
    43: "a program stopped the GPU's processing",
    45: "channels removed after an earlier error",
    48: "uncorrectable memory error",
    61: "internal microcontroller breakpoint",
    62: "internal microcontroller halt",
    63: "memory row remapped",
    64: "memory row could not be remapped",
    68: "video processor exception",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "many corrected memory errors",
    94: "uncorrectable memory error, contained",
    95: "uncorrectable memory error, not contained",
    109: "context switch timeout",
    119: "the GPU system processor does not answer",
    120: "error of the GPU system processor",
    140: "unrecovered memory error",
    143: "GPU initialization error",
}


def describe_xid(xid: int) -> str:
    """Put an XID in words, such as `XID 79 (the GPU has fallen off the bus)`."""
    meaning = _MEANINGS.get(xid)
    return f"XID {xid} ({meaning})" if meaning else f"XID {xid}"


class EventListener:
    """An event set for all GPUs that can be reached; created at the first use, and again after a GPU of it is gone."""

    def __init__(self) -> None:
        self._set: EventSet | None = None
        self._followed: set[str] = set()
        self._without_events: set[str] = set()
        self._registered = False
        self._is_unsupported = False

    @property
    def active(self) -> bool:
        """Whether `wait` waits. It does not wait on a set without GPUs: NVML may answer such a wait at once."""
        return self._set is not None and self._registered

    def follow(self, nvml: Nvml, gpus: Mapping[str, Gpu]) -> None:
        """Listen to these GPUs, by UUID, and to no others: a lost GPU in the set would end every wait at once."""
        if not self._followed <= gpus.keys():
            self.close()
        if self._set is None:
            self._set = self._create(nvml)
        if self._set is None:
            return
        for uuid, gpu in gpus.items():
            if uuid not in self._followed:
                self._register(self._set, uuid, gpu)
        self._without_events &= gpus.keys()

    def _create(self, nvml: Nvml) -> EventSet | None:
        """Return a new event set; None where there are none, as with WSL2. Raises other NvmlErrors."""
        try:
            return nvml.create_event_set()
        except NotSupportedError as error:
            if not self._is_unsupported:
                log.warning("NVML has no events here, so only the counters of GPUs are watched: %s", error)
            self._is_unsupported = True
            return None

    def wait(self, milliseconds: int) -> NvmlEvent | None:
        """Return the next event; None on timeout, and at once if `active` is false.

        Raises NvmlError, GpuIsLostError among them; then the set has been freed.
        """
        if self._set is None or not self._registered:
            return None
        try:
            return self._set.wait(milliseconds)
        except NvmlError:
            self.close()
            raise

    def close(self) -> None:
        """Listen to nothing any more."""
        freed, self._set, self._registered = self._set, None, False
        self._followed.clear()
        if freed is not None:
            try:
                freed.free()
            except NvmlError as error:
                log.warning("an event set of NVML cannot be freed: %s", error)

    def _register(self, events: EventSet, uuid: str, gpu: Gpu) -> None:
        try:
            if types := gpu.supported_events() & _TYPES:
                events.register(gpu, types)
                self._registered = True
            self._followed.add(uuid)
        except NvmlError as error:
            if uuid not in self._without_events:
                log.warning("GPU %s reports no events, so only its counters are watched: %s", uuid, error)
            self._without_events.add(uuid)
