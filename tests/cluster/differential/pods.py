"""Watches pods until the scheduler has decided about them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Condition, Event, Thread
from typing import Final

from dra_sdk.errors import ApiError
from dra_sdk.kube.client import KubeClient
from dra_sdk.kube.watching import Watch
from tests.cluster.differential.api import collection
from tests.cluster.differential.case import JSON

_PAUSE: Final = 0.1


class PodWatcher:
    """One watch of all pods, for any number of threads that wait."""

    def __init__(self, kubeconfig: Path) -> None:
        self._client = KubeClient.connect(kubeconfig, agent="differential")
        self._changed = Condition()
        self._decided: dict[str, JSON] = {}
        self._ended = Event()
        self._watch: Watch | None = None

    def decided(self, uid: str, timeout: float) -> JSON | None:
        """Returns a pod that is bound or marked as unschedulable; None if it is neither within `timeout` seconds.

        Not by its name: what is known of an earlier pod of the same name may still be here.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            while uid not in self._decided:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(left)
            return self._decided[uid]

    @contextmanager
    def running(self) -> Iterator[PodWatcher]:
        """Watches until the block ends."""
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
        """Lists and watches; starts again when the watch ends or the server does not answer in time."""
        while not self._ended.is_set():
            try:
                found = self._client.list(collection("Pod"))
                for pod in found["items"]:
                    self._note(pod)
                self._read(found["metadata"]["resourceVersion"])
            except ApiError:
                self._ended.wait(_PAUSE)

    def _read(self, version: str) -> None:
        """Records the changes after a resource version, until the watch ends."""
        with self._changed:
            if self._ended.is_set():
                return
            self._watch = watch = self._client.watch(collection("Pod"), resource_version=version)
        for event in watch:
            if event["type"] != "BOOKMARK":
                self._note(event["object"], gone=event["type"] == "DELETED")

    def _note(self, pod: JSON, *, gone: bool = False) -> None:
        uid = pod["metadata"]["uid"]
        with self._changed:
            if gone:
                self._decided.pop(uid, None)
            elif _is_decided(pod):
                self._decided[uid] = pod
                self._changed.notify_all()


def _is_decided(pod: JSON) -> bool:
    if pod.get("spec", {}).get("nodeName"):
        return True
    conditions = pod.get("status", {}).get("conditions") or []
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)
