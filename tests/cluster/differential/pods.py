"""Watching pods until the scheduler has decided about them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Condition, Event, Thread

from dra_sdk.errors import ApiError
from dra_sdk.kube.client import KubeClient
from dra_sdk.kube.watching import Watch
from tests.cluster.differential.api import collection
from tests.cluster.differential.case import JSON


class PodWatcher:
    """One watch of all pods, for any number of waiting threads."""

    def __init__(self, kubeconfig: Path) -> None:
        self._client = KubeClient.connect(kubeconfig, agent="differential")
        self._changed = Condition()
        self._decided: dict[str, JSON] = {}
        self._ended = Event()
        self._watch: Watch | None = None

    def decided(self, namespace: str, name: str, timeout: float) -> JSON | None:
        """A pod that is bound or said to be unschedulable; None where it is neither within `timeout` seconds."""
        deadline, key = time.monotonic() + timeout, f"{namespace}/{name}"
        with self._changed:
            while key not in self._decided:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(left)
            return self._decided[key]

    @contextmanager
    def running(self) -> Iterator[PodWatcher]:
        """Watch until the block ends."""
        thread = Thread(target=self._follow, name="pods")
        thread.start()
        try:
            yield self
        finally:
            with self._changed:
                self._ended.set()
                if self._watch is not None:
                    self._watch.close()
            thread.join()
            self._client.close()

    def _follow(self) -> None:
        while not self._ended.is_set():
            found = self._client.list(collection("Pod"))
            for pod in found["items"]:
                self._note(pod)
            with self._changed:
                if not self._ended.is_set():
                    version = found["metadata"]["resourceVersion"]
                    self._watch = self._client.watch(collection("Pod"), resource_version=version)
            self._read()

    def _read(self) -> None:
        """Note what changes until the watch ends; then all is listed anew."""
        if self._watch is None:
            return
        with suppress(ApiError):
            for event in self._watch:
                if event["type"] != "BOOKMARK":
                    self._note(event["object"], gone=event["type"] == "DELETED")

    def _note(self, pod: JSON, *, gone: bool = False) -> None:
        metadata = pod["metadata"]
        key = f"{metadata.get('namespace')}/{metadata['name']}"
        with self._changed:
            if gone:
                self._decided.pop(key, None)
            elif _is_decided(pod):
                self._decided[key] = pod
                self._changed.notify_all()


def _is_decided(pod: JSON) -> bool:
    if pod.get("spec", {}).get("nodeName"):
        return True
    conditions = pod.get("status", {}).get("conditions") or []
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)
