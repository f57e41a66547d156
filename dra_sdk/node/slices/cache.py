"""The slices of one driver as the API server has them, known from watches and from our own writes.

A watch reports a write late, so the result of a write is stored at once, and older events are ignored. A late event
never brings back a deleted slice; its UID is remembered. Safe for threads.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from threading import Lock
from typing import Final

from dra_sdk.model import JSON

_REMEMBERED: Final = 1000


class Scope(Enum):
    """Slices of our node, with `spec.nodeName`, or slices for several nodes."""

    NODE = "node"
    CLUSTER = "cluster"

    @classmethod
    def of(cls, item: JSON) -> Scope:
        """Return the scope of a slice."""
        return cls.NODE if item["spec"].get("nodeName") else cls.CLUSTER


@dataclass(frozen=True, slots=True)
class SliceSelection:
    """The slices of one scope that a driver manages.

    scope: the scope.
    field_selector: selects them in the server, and perhaps others.
    accepts: whether a selected slice is one of them.
    """

    scope: Scope
    field_selector: str
    accepts: Callable[[JSON], bool]


def select(scope: Scope, driver: str, node_name: str | None) -> SliceSelection:
    """Return the slices of one scope that a driver manages.

    The drivers of all nodes share the cluster's scope, so there each of them manages the slices whose owner is its
    Node. A driver without node manages all of them.
    """
    wanted = node_name if scope is Scope.NODE else ""

    def accepts(item: JSON) -> bool:
        spec = item["spec"]
        if spec.get("driver") != driver or (spec.get("nodeName") or "") != wanted:
            return False
        return scope is Scope.NODE or node_name is None or _is_owned(item, node_name)

    return SliceSelection(scope, f"spec.driver={driver},spec.nodeName={wanted}", accepts)


class SliceCache:
    """The slices of one driver, by name."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._slices: dict[str, JSON] = {}
        self._deleted: OrderedDict[str, None] = OrderedDict()
        self._written: set[str] = set()

    def of_pool(self, pool: str) -> list[JSON]:
        """Return the slices of one pool. Do not change them."""
        with self._lock:
            return [item for item in self._slices.values() if pool_of(item) == pool]

    def pools(self) -> set[str]:
        """Return the names of all pools that have a slice."""
        with self._lock:
            return set(map(pool_of, self._slices.values()))

    def share(self, pool: str, specs: Iterable[JSON]) -> None:
        """Replace devices by equal ones of `specs`, so that memory holds them once; after a restart they are equal."""
        known = {_first_device(spec): spec["devices"] for spec in specs if spec.get("devices")}
        with self._lock:
            for item in self._slices.values():
                devices = known.get(_first_device(item["spec"]))
                if devices is not None and pool_of(item) == pool and devices == item["spec"]["devices"]:
                    item["spec"]["devices"] = devices

    def before_list(self, scope: Scope) -> None:
        """Call this before a list of the scope is read: later writes may be missing in the list."""
        with self._lock:
            known = self._slices
            self._written = {name for name in self._written if name in known and Scope.of(known[name]) is not scope}

    def listed(self, scope: Scope, items: Iterable[JSON], version: str) -> None:
        """Store a whole list. A slice that is not in it no longer exists, unless we wrote it after `before_list`."""
        with self._lock:
            for name in [name for name, item in self._slices.items() if Scope.of(item) is scope]:
                if name not in self._written or not _newer(self._slices[name], version):
                    del self._slices[name]
            for item in items:
                self._keep(item)

    def put(self, item: JSON) -> None:
        """Store a slice as the API server stored it for us."""
        with self._lock:
            self._written.add(item["metadata"]["name"])
            self._keep(item)

    def seen(self, kind: str, item: JSON) -> bool:
        """Store an event of a watch; False if it brings nothing new."""
        with self._lock:
            if kind == "DELETED":
                return self._drop(item)
            known = self._slices.get(item["metadata"]["name"])
            if known and _identity(known) == _identity(item):  # the event of our own write
                return False
            if known and known["spec"] == item["spec"]:  # one copy is enough
                item["spec"] = known["spec"]
            return self._keep(item)

    def lost(self, name: str) -> bool:
        """Forget a slice that is no longer ours; False if it is unknown."""
        with self._lock:
            return self._slices.pop(name, None) is not None

    def forget(self, item: JSON) -> None:
        """Forget a slice that we deleted, or found deleted."""
        with self._lock:
            self._drop(item)

    def _keep(self, item: JSON) -> bool:
        metadata = item["metadata"]
        known = self._slices.get(metadata["name"])
        if metadata.get("uid") in self._deleted or (known and _newer(known, metadata.get("resourceVersion"))):
            return False
        metadata.pop("managedFields", None)  # not used, and often the larger part of an object
        self._slices[metadata["name"]] = item
        return True

    def _drop(self, item: JSON) -> bool:
        metadata = item["metadata"]
        if uid := metadata.get("uid"):
            self._deleted[uid] = None
            while len(self._deleted) > _REMEMBERED:
                self._deleted.popitem(last=False)
        known = self._slices.get(metadata["name"])
        if known is None or known["metadata"].get("uid") != uid:
            return False
        del self._slices[metadata["name"]]
        self._written.discard(metadata["name"])
        return True


def pool_of(item: JSON) -> str:
    """Return the name of the pool that a slice belongs to."""
    return str(item["spec"]["pool"]["name"])


def _first_device(spec: JSON) -> str:
    return str((spec.get("devices") or [{}])[0].get("name", ""))


def _identity(item: JSON) -> tuple[str | None, str | None]:
    return item["metadata"].get("uid"), item["metadata"].get("resourceVersion")


def _newer(item: JSON, version: str | None) -> bool:
    """Return whether a slice is newer than a resourceVersion: within one kind of object these are ordered numbers."""
    ours = item["metadata"].get("resourceVersion")
    return bool(ours and version and ours.isdigit() and version.isdigit() and int(ours) > int(version))


def _is_owned(item: JSON, node_name: str) -> bool:
    references = item["metadata"].get("ownerReferences") or []
    return any(reference.get("kind") == "Node" and reference.get("name") == node_name for reference in references)
