"""Stored versions of objects, the latest changes of each kind, and the watchers that receive them.

A `StoredObject` is one version of one object and never changes. It keeps its encoded form, so that a get, a list and a
watch event need no encoding. A `WatchCache` holds the last changes of one kind; a watch that starts further back gets
410. Source: k8s.io/apiserver pkg/storage/cacher.
"""

from __future__ import annotations

import json
import queue
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dra_sdk.model import JSON
from dra_sdk.tools.simulator import statuses
from dra_sdk.tools.simulator.resources import ResourceType
from dra_sdk.tools.simulator.selectors import ObjectSelector


def encode(value: Any) -> bytes:
    """Return compact JSON, UTF-8."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class StoredObject:
    """One stored version of one object.

    `object` is shared and must not be changed; `copy()` gives one that may be changed. `item` is the object without
    `apiVersion` and `kind`, as in the lists of a real server.
    """

    __slots__ = ("_body", "name", "namespace", "object", "resource", "version")

    def __init__(self, resource: ResourceType, obj: JSON, version: int) -> None:
        metadata = {**obj["metadata"], "resourceVersion": str(version)}
        rest = {key: value for key, value in obj.items() if key not in {"apiVersion", "kind", "metadata"}}
        body = {"metadata": metadata, **rest}
        self.resource = resource
        self.version = version
        self.namespace: str = metadata.get("namespace", "")
        self.name: str = metadata["name"]
        self.object: JSON = {"kind": resource.kind, "apiVersion": resource.api_version, **body}
        self._body = encode(body)[1:]

    @property
    def encoded(self) -> bytes:
        """The object as JSON."""
        head = f'{{"kind":"{self.resource.kind}","apiVersion":"{self.resource.api_version}",'
        return head.encode() + self._body

    @property
    def item(self) -> bytes:
        """The object as an item of a list."""
        return b"{" + self._body

    def copy(self) -> JSON:
        """Return a copy that may be changed."""
        copied: JSON = json.loads(self.encoded)
        return copied

    def at(self, version: int) -> StoredObject:
        """Return the same with another resourceVersion, as in the last event of a deleted object."""
        return StoredObject(self.resource, self.object, version)


@dataclass(frozen=True, slots=True)
class WatchCacheEvent:
    """One write.

    version: the resourceVersion of the write.
    before: the object before it, None for a create.
    after: the object after it, None for a delete.
    """

    version: int
    before: StoredObject | None
    after: StoredObject | None


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event of a watch.

    type: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR.
    version: the resourceVersion of the write or bookmark, 0 for an ERROR.
    encoded: the object, or for an ERROR a Status, as JSON.
    """

    type: str
    version: int
    encoded: bytes

    @property
    def object(self) -> JSON:
        """The object, decoded; it may be changed."""
        decoded: JSON = json.loads(self.encoded)
        return decoded

    @property
    def line(self) -> bytes:
        """The event as a line of a watch response."""
        return b'{"type":"' + self.type.encode() + b'","object":' + self.encoded + b"}\n"


class Watcher:
    """One open watch; iterates over its events until it is closed. Made by `ObjectStore.watch`.

    Writes up to the version `after` are left out.
    """

    def __init__(self, resource: ResourceType, selector: ObjectSelector, *, after: int = 0) -> None:
        self.resource = resource
        self.selector = selector
        self._after = after
        self._events: queue.SimpleQueue[WatchEvent | None] = queue.SimpleQueue()
        self.closed = False

    def offer(self, write: WatchCacheEvent) -> None:
        """Queue the event that this write is for the watch's selection, if any."""
        if write.version <= self._after:
            return
        before = write.before if write.before and self.selector.matches(write.before.object) else None
        after = write.after if write.after and self.selector.matches(write.after.object) else None
        if after:
            self.put(WatchEvent("MODIFIED" if before else "ADDED", write.version, after.encoded))
        elif before:
            self.put(WatchEvent("DELETED", write.version, before.at(write.version).encoded))

    def put(self, event: WatchEvent) -> None:
        """Queue one event."""
        self._events.put(event)

    def bookmark(self, version: int, *, initial_end: bool = False) -> None:
        """Queue a bookmark: every event up to `version` has been queued; `initial_end` ends the initial events."""
        metadata: JSON = {"resourceVersion": str(version), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        obj = {"kind": self.resource.kind, "apiVersion": self.resource.api_version, "metadata": metadata}
        self.put(WatchEvent("BOOKMARK", version, encode(obj)))

    def fail(self, error: statuses.StatusError) -> None:
        """Queue an ERROR event and close the watch."""
        self.put(WatchEvent("ERROR", 0, encode(error.status)))
        self.close()

    def next(self, timeout: float | None = None) -> WatchEvent | None:
        """Return the next event; None after `timeout` seconds or when the watch is closed."""
        if self.closed and self._events.empty():
            return None
        try:
            return self._events.get(timeout=timeout)
        except queue.Empty:
            return None

    def close(self) -> None:
        """End the watch; events that are queued are still delivered."""
        self.closed = True
        self._events.put(None)

    def __iter__(self) -> Iterator[WatchEvent]:
        while (event := self.next()) is not None:
            yield event


class WatchCache:
    """The last `size` writes of one kind."""

    def __init__(self, size: int) -> None:
        self._events: deque[WatchCacheEvent] = deque(maxlen=size)
        self._dropped = 0  # the resourceVersion up to which writes are no longer here

    def append(self, event: WatchCacheEvent) -> None:
        """Add a write; at `size` writes the oldest is dropped."""
        if len(self._events) == self._events.maxlen:
            self._dropped = self._events[0].version if self._events else event.version
        self._events.append(event)

    def since(self, version: int) -> list[WatchCacheEvent]:
        """Return the writes after `version`; `StatusError` 410 if some of them were dropped."""
        if version < self._dropped:
            raise statuses.expired(f"too old resource version: {version} ({self._dropped})")
        return [event for event in self._events if event.version > version]

    def drop(self, version: int) -> None:
        """Drop all writes, the last of which was `version`, as etcd compaction does."""
        self._events.clear()
        self._dropped = version
