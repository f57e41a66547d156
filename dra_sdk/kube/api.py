"""What other packages need of an API client, so that tests and the simulator can stand in for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from dra_sdk.model import JSON

Params = Mapping[str, str]
"""Query parameters, such as `fieldSelector`."""


class EventStream(Protocol):
    """A running watch: an iterator of events `{"type": ..., "object": ...}`.

    BOOKMARK events are among them. Iterating raises ApiError (GoneError: list again; UnreachableError: broken off) and
    ends where the server ended the watch or `close` was called.
    """

    def __iter__(self) -> Iterator[JSON]: ...

    def close(self) -> None:
        """End the watch at once; may be called from any thread, and more than once."""


class KubeApi(Protocol):
    """Raw JSON access to an API server. Every method may be called from any thread and raises ApiError."""

    def get(self, path: str, params: Params | None = None) -> JSON:
        """Read one object."""

    def list(self, path: str, params: Params | None = None) -> JSON:
        """Read a whole collection: a List with all `items` and the `metadata.resourceVersion` to watch from."""

    def create(self, path: str, body: JSON) -> JSON:
        """Create an object in the collection `path`; returns it as stored."""

    def update(self, path: str, body: JSON) -> JSON:
        """Replace an object; with `metadata.resourceVersion` only if it is unchanged. Returns it as stored."""

    def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None) -> None:
        """Delete an object, where given only if it still has this uid and resourceVersion (else ConflictError)."""

    def watch(self, path: str, params: Params | None = None, *, resource_version: str) -> EventStream:
        """Follow the changes of a collection after `resource_version`."""
