"""Copies of collections that follow the API server: one list, then a watch for each, as informers do.

A watch that the server ends is opened again where it ended. After 410 Gone, a new list takes its place.
Source: the list and watch semantics of the Kubernetes API.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Any, Final

from dra_sdk.errors import ApiError, GoneError
from dra_sdk.kube.api import EventStream, KubeApi
from dra_sdk.model import JSON

Key = tuple[str, str]
"""Namespace and name."""
_FIRST_PAUSE: Final = 0.5  # seconds, after a watch that failed
_LONGEST_PAUSE: Final = 10.0
_VERSION: Final = "resourceVersion"
_FIELDS: Final = "managedFields"
_HEARTBEAT: Final = "lastHeartbeatTime"


@dataclass(slots=True)
class _Collection:
    """One collection: its objects, and the version from which to watch."""

    objects: dict[Key, JSON] = field(default_factory=dict)
    version: str = ""
    stream: EventStream | None = None


class Collections:
    """The objects of some collections, and whether they change.

    `start` reads all of them; `wait` tells that something has changed since the last `wait`. A change of nothing but
    the version, the managed fields or a heartbeat is none. All methods are for one thread.
    """

    def __init__(self, api: KubeApi, paths: Iterable[str]) -> None:
        self._api = api
        self._collections: Mapping[str, _Collection] = {path: _Collection() for path in paths}
        self._changed = Condition()
        self._pending = False
        self._closed = False
        self._error: Exception | None = None
        self._threads: list[Thread] = []

    def start(self, *, follow: bool = True) -> None:
        """List all; ApiError if one cannot be listed. Then watch them, unless `follow` is False."""
        for path in self._collections:
            self._list(path)
        self._pending = False
        for path in self._collections if follow else ():
            thread = Thread(target=self._run, args=(path,), name=f"watch {path}")
            self._threads.append(thread)
            thread.start()

    def items(self, path: str) -> list[JSON]:
        """Return the objects of a collection, in the order of their names."""
        with self._changed:
            return [item for _, item in sorted(self._collections[path].objects.items())]

    def wait(self, timeout: float | None, *, calm: float, at_most: float) -> bool:
        """Wait until something changes, then until nothing has for `calm` seconds, `at_most` seconds in all.

        False after `timeout` seconds without a change. ApiError if a collection cannot be followed any more.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._error is not None, timeout)
            until = time.monotonic() + at_most
            changed = self._pending
            while self._pending and self._error is None and time.monotonic() < until:
                self._pending = False
                self._changed.wait_for(lambda: self._pending or self._error is not None, calm)
            self._pending = False
            if self._error is not None:
                raise self._error
            return changed

    def close(self) -> None:
        """End all watches, and wait for their threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            streams = [collection.stream for collection in self._collections.values() if collection.stream]
        for stream in streams:
            stream.close()
        for thread in self._threads:
            thread.join()

    # -- the thread of one collection

    def _run(self, path: str) -> None:
        pause = _FIRST_PAUSE
        while not self._closed:
            try:
                if not self._collections[path].version:
                    self._list(path)
                heard = self._watch(path)
            except GoneError:
                self._collections[path].version, heard = "", True
            except Exception as error:  # noqa: BLE001 (raised by `wait`, in the thread that waits)
                if not (isinstance(error, ApiError) and error.temporary):
                    with self._changed:
                        self._error = self._error or error
                        self._changed.notify_all()
                    return
                heard = False
            pause = _FIRST_PAUSE if heard else min(2 * pause, _LONGEST_PAUSE)
            with self._changed:
                self._changed.wait_for(lambda: self._closed, pause)

    def _list(self, path: str) -> None:
        listed = self._api.list(path)
        objects = {_key(item): _without_managed_fields(item) for item in listed["items"]}
        with self._changed:
            collection = self._collections[path]
            before = {key: _content(item) for key, item in collection.objects.items()}
            collection.objects, collection.version = objects, str(listed["metadata"]["resourceVersion"])
            if before != {key: _content(item) for key, item in objects.items()}:
                self._tell()

    def _watch(self, path: str) -> bool:
        """Follow one watch until it ends. Return whether there was an event, also a bookmark."""
        collection = self._collections[path]
        stream = self._api.watch(path, resource_version=collection.version)
        with self._changed:
            collection.stream = stream
            closed = self._closed
        if closed:
            stream.close()
        heard = False
        try:
            for event in stream:
                heard = True
                self._event(collection, str(event["type"]), event["object"])
        finally:
            with self._changed:
                collection.stream = None
            stream.close()
        return heard

    def _event(self, collection: _Collection, kind: str, item: JSON) -> None:
        with self._changed:
            collection.version = str(item["metadata"]["resourceVersion"])
            if kind == "BOOKMARK":
                return
            before = collection.objects.pop(_key(item), None)
            if kind != "DELETED":
                collection.objects[_key(item)] = _without_managed_fields(item)
            if before is None or kind == "DELETED" or _content(before) != _content(item):
                self._tell()

    def _tell(self) -> None:
        self._pending = True
        self._changed.notify_all()


def _key(item: JSON) -> Key:
    return str(item["metadata"].get("namespace") or ""), str(item["metadata"]["name"])


def _without_managed_fields(item: JSON) -> JSON:
    """Remove who owns which field, which is most of many objects and not used here, and return the object."""
    item["metadata"].pop(_FIELDS, None)
    return item


def _content(item: JSON) -> JSON:
    """Return the object without what changes although nothing happens."""
    metadata = {name: value for name, value in item["metadata"].items() if name != _VERSION}
    content: JSON = {**item, "metadata": metadata}
    status: Any = item.get("status")
    if isinstance(status, dict) and isinstance(status.get("conditions"), list):
        conditions = [
            {name: value for name, value in condition.items() if name != _HEARTBEAT}
            for condition in status["conditions"]
        ]
        content["status"] = {**status, "conditions": conditions}
    return content
