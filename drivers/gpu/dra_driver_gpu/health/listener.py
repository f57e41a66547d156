"""NVML's events of all GPUs that can be reached, through one event set that follows them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from dra_driver_gpu.nvml.api import Event, EventSet, Gpu, Nvml
from dra_driver_gpu.nvml.errors import NvmlError
from dra_driver_gpu.nvml.values import EventType

log = logging.getLogger(__name__)
WANTED = EventType.XID_CRITICAL_ERROR | EventType.DOUBLE_BIT_ECC_ERROR | EventType.SINGLE_BIT_ECC_ERROR


class Listener:
    """An event set; made when it is first needed, made anew when a GPU of it is gone."""

    def __init__(self) -> None:
        self._set: EventSet | None = None
        self._heard: set[str] = set()
        self._mute: set[str] = set()
        self._registered = False

    @property
    def active(self) -> bool:
        """Whether `wait` waits. A set of nothing is not waited for: NVML does not say that it would take its time."""
        return self._set is not None and self._registered

    def follow(self, nvml: Nvml, gpus: Mapping[str, Gpu]) -> None:
        """Hear of these GPUs, by UUID, and of no others: a lost one would keep the set from waiting."""
        if not self._heard <= gpus.keys():
            self.close()
        if self._set is None:
            self._set = nvml.create_event_set()
        for uuid, gpu in gpus.items():
            if uuid not in self._heard:
                self._register(self._set, uuid, gpu)
        self._mute &= gpus.keys()

    def wait(self, milliseconds: int) -> Event | None:
        """The next event, or None, which comes at once where there is nothing to wait for.

        Raises NvmlError, GpuIsLostError among them; then the set has been given up.
        """
        if self._set is None or not self._registered:
            return None
        try:
            return self._set.wait(milliseconds)
        except NvmlError:
            self.close()
            raise

    def close(self) -> None:
        """Hear of nothing any more."""
        given_up, self._set, self._registered = self._set, None, False
        self._heard.clear()
        if given_up is not None:
            try:
                given_up.free()
            except NvmlError as error:
                log.warning("an event set of NVML stays behind: %s", error)

    def _register(self, events: EventSet, uuid: str, gpu: Gpu) -> None:
        try:
            if wanted := gpu.supported_events() & WANTED:
                events.register(gpu, wanted)
                self._registered = True
            self._heard.add(uuid)
        except NvmlError as error:
            if uuid not in self._mute:
                log.warning("GPU %s reports no events, so only its counters are watched: %s", uuid, error)
            self._mute.add(uuid)
