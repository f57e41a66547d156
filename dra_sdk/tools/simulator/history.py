"""Stored versions of objects, the bounded log of changes, and the watches that read it.

An `Entry` is one version of one object and never changes: the server keeps its encoded form, so that a get, a list and
a watch event cost no encoding. A `History` remembers so many changes per kind; a watch from further back gets 410.
"""

from __future__ import annotations

import json
import queue
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dra_sdk.tools.simulator import statuses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dra_sdk.model import JSON
    from dra_sdk.tools.simulator.resources import ResourceType
    from dra_sdk.tools.simulator.selectors import Selector


def encode(value: Any) -> bytes:
    """Compact JSON, UTF-8."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class Entry:
    """One stored version of one object.

    `object` is shared and must not be changed; `copy()` gives one that may be. `encoded` is the whole object, `item`
    the object without `apiVersion` and `kind`, as the items of a typed list come from a real server.
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
        """A copy that the caller owns."""
        copied: JSON = json.loads(self.encoded)
        return copied

    def at(self, version: int) -> Entry:
        """The same content under another resourceVersion, as the last event of a deleted object has it."""
        return Entry(self.resource, self.object, version)


@dataclass(frozen=True, slots=True)
class Change:
    """One write: `before` is None for a create, `after` is None for a delete."""

    version: int
    before: Entry | None
    after: Entry | None


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """What a watch delivers. `type` is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR; `encoded` its object as JSON."""

    type: str
    version: int
    encoded: bytes

    @property
    def object(self) -> JSON:
        """The object, decoded; the caller owns it."""
        decoded: JSON = json.loads(self.encoded)
        return decoded

    @property
    def line(self) -> bytes:
        """The event as a line of a watch response."""
        return b'{"type":"' + self.type.encode() + b'","object":' + self.encoded + b"}\n"


class Watch:
    """One open watch: an iterator of `WatchEvent` that ends when it is closed. Made by `ObjectStore.watch`.

    Changes up to the version `after` are not told.
    """

    def __init__(self, resource: ResourceType, selector: Selector, *, after: int = 0) -> None:
        self.resource = resource
        self.selector = selector
        self._after = after
        self._events: queue.SimpleQueue[WatchEvent | None] = queue.SimpleQueue()
        self.closed = False

    def offer(self, change: Change) -> None:
        """Queues what this change looks like from inside the selection, if anything."""
        if change.version <= self._after:
            return
        was = change.before if change.before and self.selector.matches(change.before.object) else None
        now = change.after if change.after and self.selector.matches(change.after.object) else None
        if now:
            self.put(WatchEvent("MODIFIED" if was else "ADDED", change.version, now.encoded))
        elif was:
            self.put(WatchEvent("DELETED", change.version, was.at(change.version).encoded))

    def put(self, event: WatchEvent) -> None:
        """Queues one event."""
        self._events.put(event)

    def bookmark(self, version: int, *, initial_end: bool = False) -> None:
        """Queues a bookmark: everything up to `version` has been delivered."""
        metadata: JSON = {"resourceVersion": str(version), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        obj = {"kind": self.resource.kind, "apiVersion": self.resource.api_version, "metadata": metadata}
        self.put(WatchEvent("BOOKMARK", version, encode(obj)))

    def fail(self, error: statuses.StatusError) -> None:
        """Queues an ERROR event and ends the watch."""
        self.put(WatchEvent("ERROR", 0, encode(error.status)))
        self.close()

    def next(self, timeout: float | None = None) -> WatchEvent | None:
        """The next event, or None after `timeout` seconds or once the watch is closed."""
        if self.closed and self._events.empty():
            return None
        try:
            return self._events.get(timeout=timeout)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Ends the watch; events queued before are still delivered."""
        self.closed = True
        self._events.put(None)

    def __iter__(self) -> Iterator[WatchEvent]:
        while (event := self.next()) is not None:
            yield event


class History:
    """The last `window` changes of one kind."""

    def __init__(self, window: int) -> None:
        self._changes: deque[Change] = deque(maxlen=window)
        self._forgotten = 0

    def append(self, change: Change) -> None:
        """Remembers a change, forgetting the oldest one where the window is full."""
        if len(self._changes) == self._changes.maxlen:
            self._forgotten = self._changes[0].version if self._changes else change.version
        self._changes.append(change)

    def since(self, version: int) -> list[Change]:
        """The changes after `version`; `StatusError` 410 where some of them are forgotten."""
        if version < self._forgotten:
            raise statuses.expired(f"too old resource version: {version} ({self._forgotten})")
        return [change for change in self._changes if change.version > version]

    def forget(self, version: int) -> None:
        """Drops everything up to `version`, as etcd compaction does."""
        self._changes.clear()
        self._forgotten = version
