"""The interface of an API client that other packages use; `KubeClient`, the simulator and tests implement it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from dra_sdk.model import JSON

Params = Mapping[str, str]
"""Query parameters, such as `fieldSelector`."""


class EventStream(Protocol):
    """A running watch: an iterator of events `{"type": ..., "object": ...}`.

    BOOKMARK events are included. Iterating raises ApiError: GoneError (list again) or UnreachableError (the connection
    broke off). It ends when the server ends the watch, or after `close`.
    """

    def __iter__(self) -> Iterator[JSON]: ...

    def close(self) -> None:
        """End the watch at once. Safe from any thread, and more than once."""


class KubeApi(Protocol):
    """Raw JSON access to an API server. Every method may be called from any thread and raises ApiError."""

    def get(self, path: str, params: Params | None = None) -> JSON:
        """Read one object."""

    def list(self, path: str, params: Params | None = None) -> JSON:
        """Read a whole collection: a List with all `items` and the `metadata.resourceVersion` to watch from."""

    def create(self, path: str, body: JSON, *, dry_run: bool = False) -> JSON:
        """Create an object in the collection `path`; returns it as stored, or with `dry_run` as it would be."""

    def update(self, path: str, body: JSON) -> JSON:
        """Replace an object; with `metadata.resourceVersion` only if it is unchanged. Returns it as stored."""

    def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None) -> None:
        """Delete an object. ConflictError if `uid` or `resource_version` is given and differs from the stored one."""

    def watch(self, path: str, params: Params | None = None, *, resource_version: str) -> EventStream:
        """Follow the changes of a collection after `resource_version`."""
