"""Looking after MPS daemons while claims have them: one that ended is started again, one that hangs is told of.

A daemon that hangs is left alone, because its clients may still compute: who has it is told, and may end the pod.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from dra_driver_gpu.prepare.mps import MpsDaemons
from dra_driver_gpu.prepare.mps_daemon import Daemon
from dra_driver_gpu.site import Site

log = logging.getLogger(__name__)
ASK_SECONDS: Final = 60.0
_PATIENCE: Final = 2  # times in a row: while it starts a server, a daemon answers late


class MpsWatch:
    """The daemons of one node. `troubles` tells what is wrong with that of a device, by the device's UUID."""

    def __init__(self) -> None:
        self.troubles: Mapping[str, str] = {}  # another thread reads it, so it is never changed, only replaced
        self._missed: dict[str, int] = {}
        self._due = 0.0

    def look(self, site: Site) -> None:
        """To be called every few seconds: see that all run, and ask each, now and then, for a sign of life."""
        daemons = MpsDaemons(site)
        kept = daemons.kept()
        for each in kept:
            daemons.revive(each)
        if site.clock.now() >= self._due:
            self._ask(daemons, kept)
            self._due = site.clock.now() + ASK_SECONDS
        served = {uuid for each in kept for uuid in each.devices}
        self.troubles = {uuid: told for uuid, told in self.troubles.items() if uuid in served}

    def _ask(self, daemons: MpsDaemons, kept: Sequence[Daemon]) -> None:
        told = {each.id: trouble for each in kept if (trouble := daemons.silent(each))}
        self._missed = {each: self._missed.get(each, 0) + 1 for each in told}
        troubles: dict[str, str] = {}
        for each in kept:
            if self._missed.get(each.id, 0) >= _PATIENCE:
                troubles |= dict.fromkeys(each.devices, f"its MPS daemon does not answer: {told[each.id]}")
                log.warning("the MPS daemon of claim %s does not answer: %s", each.claim, told[each.id])
        self.troubles = troubles
