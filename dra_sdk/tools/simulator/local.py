"""A client of the API server in the same process: dicts in, dicts out, no HTTP.

For tests, benchmarks, the kubelet emulator and the scheduler. Its calls are not in the request log, and no fault rule
applies to them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from dra_sdk.model import JSON
from dra_sdk.tools.simulator import selectors
from dra_sdk.tools.simulator.objects import ObjectStore, WriteOptions
from dra_sdk.tools.simulator.statuses import StatusError
from dra_sdk.tools.simulator.watch_cache import Watcher, encode

JsonObjects = list[JSON]
T = TypeVar("T")


class LocalClient:
    """Reads and writes objects by plural name, as in `get("resourceclaims", "claim-1", "default")`.

    Every method may raise `statuses.StatusError`. Objects that are returned are copies, which the caller may change.
    `manager` is the field manager of its writes.
    """

    def __init__(self, store: ObjectStore, manager: str = "simulator") -> None:
        self.store = store
        self._options = WriteOptions(manager)

    def create(self, plural: str, obj: JSON, namespace: str = "") -> JSON:
        """Create an object."""
        return self.store.create(self.store.catalog[plural], _copy(obj), namespace, options=self._options).copy()

    def get(self, plural: str, name: str, namespace: str = "") -> JSON:
        """Return one object."""
        return self.store.get(self.store.catalog[plural], name, namespace).copy()

    def list(self, plural: str, namespace: str = "", *, fields: str = "", labels: str = "") -> JsonObjects:
        """Return the objects in the selection, ordered by namespace and name."""
        resource = self.store.catalog[plural]
        selector = selectors.parse(resource, namespace=namespace, fields=fields, labels=labels)
        return [entry.copy() for entry in self.store.list(resource, selector)[0]]

    def update(self, plural: str, obj: JSON) -> JSON:
        """Replace everything but the status."""
        return self.store.update(self.store.catalog[plural], _copy(obj), options=self._options).copy()

    def update_status(self, plural: str, obj: JSON) -> JSON:
        """Replace only the status."""
        options = replace(self._options, subresource="status")
        return self.store.update(self.store.catalog[plural], _copy(obj), options=options).copy()

    def patch(self, plural: str, patch: JSON, name: str, namespace: str = "", *, subresource: str = "") -> JSON:
        """Change an object by a JSON merge patch."""
        options = replace(self._options, subresource=subresource)
        return self.store.patch(self.store.catalog[plural], _copy(patch), name, namespace, options=options).copy()

    def apply(self, plural: str, config: JSON, *, manager: str, force: bool = False, subresource: str = "") -> JSON:
        """Apply `config`, which names the object, on the server's side."""
        name, namespace = config["metadata"]["name"], config["metadata"].get("namespace", "")
        options = WriteOptions(manager, subresource, force=force)
        return self.store.apply(self.store.catalog[plural], _copy(config), name, namespace, options=options).copy()

    def delete(self, plural: str, name: str, namespace: str = "", *, preconditions: JSON | None = None) -> JSON:
        """Delete an object and return its last state."""
        return self.store.delete(self.store.catalog[plural], name, namespace, preconditions=preconditions).copy()

    def delete_collection(self, plural: str, *, fields: str = "") -> JsonObjects:
        """Delete every object in the selection and return them."""
        resource = self.store.catalog[plural]
        selector = selectors.parse(resource, fields=fields)
        return [entry.copy() for entry in self.store.delete_collection(resource, selector)]

    def watch(self, plural: str, *, version: int | None = None, fields: str = "", labels: str = "") -> Watcher:
        """Open a watch for the writes after `version` (None: from the present objects); end it with `close`."""
        resource = self.store.catalog[plural]
        return self.store.watch(resource, selectors.parse(resource, fields=fields, labels=labels), version=version)

    def close(self, watch: Watcher) -> None:
        """End a watch."""
        self.store.unwatch(watch)


def retry_on_conflict(write: Callable[[], T]) -> T:
    """Call `write`, which reads objects and writes them, until no other client has written them in between."""
    while True:
        try:
            return write()
        except StatusError as error:
            if error.reason != "Conflict":
                raise


def _copy(obj: JSON) -> JSON:
    copy: JSON = json.loads(encode(obj))
    return copy
