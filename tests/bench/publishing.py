"""How long until the devices of a freshly started driver are all visible, and what it took.

A watch of the benchmark's own sees each slice as soon as the API server has it; requests are counted in the audit log.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dra_sdk.errors import ApiError
from dra_sdk.kube import paths
from dra_sdk.kube.client import KubeClient
from dra_sdk.model import JSON
from tests.bench.audit import counted
from tests.bench.claims import delete_slices
from tests.bench.contestants import Contestant, Running
from tests.bench.node import Node
from tests.cluster.harness.audit import AuditLog
from tests.cluster.harness.errors import HarnessError

_TIMEOUT = 120.0
_LOOK = 0.5
SETTLE = 0.5
"""Seconds a driver gets after its last slice before its requests are counted and its memory is measured."""


@dataclass(frozen=True)
class Publication:
    """One start: seconds from exec to registered, to visible; seconds from SIGTERM to the end; MiB; requests."""

    registered: float
    visible: float
    stopped: float
    rss_mib: float
    cpu: float
    slices: int
    requests: Counter[str]


class SliceWatch:
    """Follows the slices of one driver and knows when its pool is complete."""

    def __init__(self, client: KubeClient, driver: str) -> None:
        selector = {"fieldSelector": f"spec.driver={driver}"}
        version = client.list(paths.resource_slices(), selector)["metadata"]["resourceVersion"]
        self._watch = client.watch(paths.resource_slices(), selector, resource_version=version)
        self._changed = threading.Condition()
        self._slices: dict[str, JSON] = {}
        self._seen = 0.0
        self._failure: ApiError | None = None
        self._thread = threading.Thread(target=self._follow, name="slice-watch")

    @contextmanager
    def following(self) -> Iterator[SliceWatch]:
        """Follow until the block ends."""
        self._thread.start()
        try:
            yield self
        finally:
            self._watch.close()
            self._thread.join()

    def wait(self, devices: int, running: Running) -> float:
        """Wait until the pool is complete with that many devices; when that was seen, by `time.monotonic()`."""
        deadline = time.monotonic() + _TIMEOUT
        with self._changed:
            while not self._complete(devices):
                running.check()
                if self._failure:
                    raise self._failure
                if time.monotonic() > deadline:
                    raise HarnessError(f"{running.contestant.label}: {devices} devices not visible in {_TIMEOUT:.0f} s")
                self._changed.wait(_LOOK)
            return self._seen

    def count(self) -> int:
        """How many slices there are."""
        with self._changed:
            return len(self._slices)

    def _complete(self, devices: int) -> bool:
        pools = [each["pool"] for each in self._slices.values()]
        newest = max((pool["generation"] for pool in pools), default=0)
        current = [each for each in self._slices.values() if each["pool"]["generation"] == newest]
        expected = current[0]["pool"]["resourceSliceCount"] if current else 0
        return bool(current) and len(current) == expected and sum(len(each["devices"]) for each in current) == devices

    def _follow(self) -> None:
        try:
            for event in self._watch:
                now = time.monotonic()
                if event["type"] == "BOOKMARK":
                    continue
                with self._changed:
                    self._apply(event["type"], event["object"])
                    self._seen = now
                    self._changed.notify_all()
        except ApiError as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _apply(self, kind: str, item: JSON) -> None:
        name = item["metadata"]["name"]
        if kind == "DELETED":
            self._slices.pop(name, None)
        else:
            self._slices[name] = {"pool": item["spec"]["pool"], "devices": item["spec"].get("devices") or []}


def publish(client: KubeClient, contestant: Contestant, node: Node, audit: AuditLog, devices: int) -> Publication:
    """Start the driver with that many devices, wait until all is visible, end it, remove its slices."""
    audit.mark()
    with SliceWatch(client, contestant.driver).following() as watch:
        running = contestant.start(devices)
        try:
            registered = node.wait_registered(running)
            visible = watch.wait(devices, running)
            time.sleep(SETTLE)
            rss, cpu, slices = running.rss_mib(), running.cpu_seconds(), watch.count()
            requests = counted(audit, contestant.user)
            stopped = running.stop()
        finally:
            running.kill()
    delete_slices(client, contestant.driver)
    return Publication(registered - running.began, visible - running.began, stopped, rss, cpu, slices, requests)
