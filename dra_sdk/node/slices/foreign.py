"""Slices of others in the pools of this node, which hide its devices: they are reported, and left as they are.

kube-scheduler takes the newest generation of a pool for the whole pool, and a pool with too few slices for incomplete,
whichever nodes the slices are from. The admission policy of the chart keeps the drivers of other nodes from writing
them; this is for clusters without it, for slices from before it, and for accounts that the policy leaves out.

The API server prints what is needed of a slice, its name, node and pool, in 150 bytes. Each node's driver asks for that
of all nodes, so the more slices there are, the rarer: after as many seconds as there are slices, once a second in all.

Source: resource.k8s.io/v1 ResourcePool; the API server's printer of ResourceSlices, with the columns Name, Node, Pool.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from threading import Event, Thread
from typing import Final, Protocol

from dra_sdk.errors import DraError
from dra_sdk.kube.paths import resource_slices
from dra_sdk.model import JSON
from dra_sdk.model.device import ResourcePool

log = logging.getLogger(__name__)
FIRST_SECONDS: Final = 30.0
"""Before the first look: the kubelet's registration and the first slices have gone before then."""
SECONDS: Final = 300.0
"""Between two looks, at least."""


class TableApi(Protocol):
    """What is needed of an API client."""

    def table(self, path: str, params: dict[str, str]) -> Iterable[JSON]:
        """Yield of each object what the server prints of it."""


@dataclass(frozen=True, slots=True)
class ForeignSlice:
    """A slice of another node, or of several, in a pool of this node.

    name: its name.
    node: its node; empty for one of several nodes.
    pool: the pool.
    """

    name: str
    node: str
    pool: str

    def __str__(self) -> str:
        of = f"node {self.node}" if self.node else "several nodes"
        return (
            f"ResourceSlice {self.name} of {of} is in pool {self.pool} of this node and hides devices of it: "
            "delete it, and find out who wrote it"
        )


def node_pools(pools: Iterable[ResourcePool]) -> frozenset[str]:
    """Return the names of the pools whose slices are all of this node."""
    return frozenset(
        str(pool.name)
        for pool in pools
        if pool.node is None and not any(getattr(device, "node", None) for device in pool.devices or ())
    )


class ForeignSlices:
    """Looks for slices of others in a thread of its own, and reports each once for as long as it exists.

    driver: the name of the driver.
    node: the name of its node.
    connect: returns the API client.
    pools: returns the names of the pools that it publishes for its node alone.
    report: called with each slice, in the thread.
    """

    def __init__(
        self,
        driver: str,
        node: str,
        connect: Callable[[], TableApi],
        pools: Callable[[], Collection[str]],
        report: Callable[[ForeignSlice], None],
    ) -> None:
        self._query = {"fieldSelector": f"spec.driver={driver},spec.nodeName!={node}"}
        self._connect, self._pools, self._report = connect, pools, report
        self._known: set[ForeignSlice] = set()
        self._stop = Event()
        self._thread = Thread(target=self._run, name="slices-foreign", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def look(self) -> int:
        """Report the slices that were not there before; return how many the driver has on other nodes. ApiError."""
        pools, seen = self._pools(), 0
        present: set[ForeignSlice] = set()
        for row in self._connect().table(resource_slices(), self._query):
            seen += 1
            if row.get("Pool") in pools:
                present.add(ForeignSlice(str(row["Name"]), str(row.get("Node") or ""), str(row["Pool"])))
        for item in sorted(present - self._known, key=str):
            log.warning("%s", item)
            self._report(item)
        self._known = present
        return seen

    def _run(self) -> None:
        pause = FIRST_SECONDS
        while not self._stop.wait(pause * random.uniform(0.8, 1.2)):  # noqa: S311 (so that nodes do not ask at once)
            try:
                pause = max(SECONDS, self.look())
            except DraError as error:  # no connection, no permission, a busy server: the slices' own thread reports it
                log.debug("looking for slices of others: %s", error)
                pause = SECONDS
