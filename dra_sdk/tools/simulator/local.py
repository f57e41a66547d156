"""The API server as seen from inside the process: dicts in, dicts out, no HTTP.

For tests, benchmarks and the parts of the simulator that stand for other clients of the API server (the kubelet, the
scheduler). None of it shows in the request log, and no fault rule applies to it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeVar

from dra_sdk.tools.simulator import selectors
from dra_sdk.tools.simulator.history import encode
from dra_sdk.tools.simulator.statuses import StatusError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dra_sdk.model import JSON
    from dra_sdk.tools.simulator.history import Watch
    from dra_sdk.tools.simulator.objects import ObjectStore

JsonObjects = list["JSON"]
T = TypeVar("T")


class LocalClient:
    """Reads and writes objects by plural name, as in `get("resourceclaims", "claim-1", "default")`.

    Every method may raise `statuses.StatusError`; every object that comes back is the caller's own.
    """

    def __init__(self, store: ObjectStore, manager: str = "simulator") -> None:
        self.store = store
        self.manager = manager

    def create(self, plural: str, obj: JSON, namespace: str = "") -> JSON:
        """Creates an object."""
        return self.store.create(self.store.catalog[plural], _own(obj), namespace, manager=self.manager).copy()

    def get(self, plural: str, name: str, namespace: str = "") -> JSON:
        """One object."""
        return self.store.get(self.store.catalog[plural], name, namespace).copy()

    def list(self, plural: str, namespace: str = "", *, fields: str = "", labels: str = "") -> JsonObjects:
        """The objects in the selection, ordered by namespace and name."""
        resource = self.store.catalog[plural]
        selector = selectors.parse(resource, namespace=namespace, fields=fields, labels=labels)
        return [entry.copy() for entry in self.store.list(resource, selector)[0]]

    def update(self, plural: str, obj: JSON) -> JSON:
        """Replaces everything but the status."""
        return self.store.update(self.store.catalog[plural], _own(obj), manager=self.manager).copy()

    def update_status(self, plural: str, obj: JSON) -> JSON:
        """Replaces only the status."""
        return self.store.update(
            self.store.catalog[plural], _own(obj), subresource="status", manager=self.manager
        ).copy()

    def patch(self, plural: str, patch: JSON, name: str, namespace: str = "", *, subresource: str = "") -> JSON:
        """JSON merge patch."""
        resource = self.store.catalog[plural]
        return self.store.patch(
            resource, _own(patch), name, namespace, subresource=subresource, manager=self.manager
        ).copy()

    def apply(self, plural: str, config: JSON, *, manager: str, force: bool = False, subresource: str = "") -> JSON:
        """Server-side apply; name and namespace are those of `config`."""
        metadata = config["metadata"]
        return self.store.apply(
            self.store.catalog[plural],
            _own(config),
            metadata["name"],
            metadata.get("namespace", ""),
            manager=manager,
            force=force,
            subresource=subresource,
        ).copy()

    def delete(
        self,
        plural: str,
        name: str,
        namespace: str = "",
        *,
        uid: str | None = None,
        version: str | None = None,
    ) -> JSON:
        """Deletes an object and returns what it was last."""
        resource = self.store.catalog[plural]
        return self.store.delete(resource, name, namespace, uid=uid, version=version).copy()

    def delete_collection(self, plural: str, *, fields: str = "", labels: str = "") -> JsonObjects:
        """Deletes every object in the selection and returns them."""
        resource = self.store.catalog[plural]
        selector = selectors.parse(resource, fields=fields, labels=labels)
        return [entry.copy() for entry in self.store.delete_collection(resource, selector)]

    def watch(self, plural: str, *, version: int | None = None, fields: str = "", labels: str = "") -> Watch:
        """Opens a watch; hand it to `close` when done."""
        resource = self.store.catalog[plural]
        return self.store.watch(resource, selectors.parse(resource, fields=fields, labels=labels), version=version)

    def close(self, watch: Watch) -> None:
        """Ends a watch."""
        self.store.unwatch(watch)


def persistently(write: Callable[[], T]) -> T:
    """What `write` gives, which reads objects and writes them: done anew where somebody else wrote them in between."""
    while True:
        try:
            return write()
        except StatusError as error:
            if error.reason != "Conflict":
                raise


def _own(obj: JSON) -> JSON:
    own: JSON = json.loads(encode(obj))
    return own
