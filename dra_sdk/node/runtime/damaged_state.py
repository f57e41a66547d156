"""State files that an operator must look at, while a driver runs: what the scheduler, probes and events say of them.

A claim whose state file is damaged holds its devices until an operator decides. Devices that the file still names get a
taint, and while a file names none, all devices do, because no claim can get any of them; then the driver is not ready
either. Both end soon after `dra-sdk state` has repaired or forgotten the file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from threading import Event
from typing import Final

from dra_sdk.errors import DraError
from dra_sdk.model.device import TaintEffect
from dra_sdk.node.health.reports import Key
from dra_sdk.node.health.tainting import TaintPolicy, with_taints
from dra_sdk.node.prepare.state_files import Unreadable
from dra_sdk.node.runtime.discovery import Pools
from dra_sdk.node.threads import RestartingThread

log = logging.getLogger(__name__)
TAINT: Final = "state-file-unreadable"
"""The name of the taint; its key is `<driver>/state-file-unreadable`."""
POLL_SECONDS: Final = 2.0
"""Between two looks at damaged files. Without any, nothing looks."""


class DamagedState:
    """Knows the damaged state files of a driver.

    driver: the driver's name.
    read: returns the files as they are now.
    effect: the effect of the taint; None for no taint.
    changed: called when the files are others than before; must not block.
    """

    def __init__(
        self,
        driver: str,
        read: Callable[[], Sequence[Unreadable]],
        effect: TaintEffect | None,
        changed: Callable[[], None],
    ) -> None:
        self._read, self._changed = read, changed
        self._policy = None if effect is None else TaintPolicy(driver, "NoSchedule")
        self._thread = RestartingThread("damaged state files", self._watch)

    def start(self) -> None:
        """Watch the files, if there are any, until an operator has decided about all of them."""
        if self._read():
            self._thread.start()

    def stop(self, timeout: float) -> bool:
        """End the watch. False if it has not ended within `timeout` seconds."""
        return self._thread.stop(timeout)

    def apply(self, pools: Pools) -> Pools:
        """Return the pools with taints on the devices that damaged claims hold, or may hold."""
        files = self._read() if self._policy else ()
        if not files or self._policy is None:
            return pools
        tainted: dict[Key, dict[str, datetime]] = {}
        for file in files:
            every = ((pool.name, device.name) for pool in pools for device in pool.devices)
            held = [(device.pool, device.name) for device in file.claim.devices] or every
            for key in held:
                tainted.setdefault(key, {TAINT: _since(file)})
        return with_taints(pools, tainted, self._policy)

    def check(self) -> None:
        """Raise DraError with what to do if no claim can get a device, because a file does not say what it holds."""
        if unknown := [file.advice for file in self._read() if not file.claim.devices]:
            raise DraError("no claim gets a device: " + "; ".join(unknown))

    def _watch(self, stop: Event) -> None:
        known = {file.path for file in self._read()}
        while known and not stop.wait(POLL_SECONDS):
            paths = {file.path for file in self._read()}
            if paths != known:
                known = paths
                log.info("state files that need an operator: %s", ", ".join(sorted(map(str, paths))) or "none any more")
                self._changed()


def _since(file: Unreadable) -> datetime:
    """Return since when the file is as it is, so that a restart changes no taint."""
    try:
        return datetime.fromtimestamp(int(file.path.lstat().st_mtime), UTC)
    except OSError:  # it was just repaired or forgotten
        return datetime.now(UTC).replace(microsecond=0)
