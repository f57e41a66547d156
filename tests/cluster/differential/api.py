"""Requests to the API server, fast enough for tens of thousands of them, and refusals field by field."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

from urllib3 import HTTPSConnectionPool

from tests.cluster.differential.case import JSON
from tests.cluster.harness.api import Api
from tests.cluster.harness.errors import HarnessError
from tests.cluster.harness.waiting import TIMEOUT

_GROUPS: Final = {
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
    "DeviceTaintRule": "/apis/resource.k8s.io/v1beta2/devicetaintrules",
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "ResourceSlice": "/apis/resource.k8s.io/v1/resourceslices",
}
_NAMESPACED: Final = {
    "Pod": ("/api/v1", "pods"),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets"),
    "ResourceClaim": ("/apis/resource.k8s.io/v1", "resourceclaims"),
    "ResourceClaimTemplate": ("/apis/resource.k8s.io/v1", "resourceclaimtemplates"),
}
_CONNECTIONS: Final = 64
_REFUSED: Final = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
"""Statuses of a refusal. A server answers 404 for a kind that it does not serve."""


@dataclass(frozen=True)
class Refusal:
    """Why the API server refuses an object.

    It has a pair of field and type for each problem, and none if the server could not decode the object.
    """

    fields: frozenset[tuple[str, str]]
    message: str


class Requests:
    """Requests of the administrator. It is safe for threads."""

    def __init__(self, api: Api) -> None:
        address = urlsplit(api.server)
        assert address.hostname is not None
        self._pool = HTTPSConnectionPool(
            address.hostname, address.port, maxsize=_CONNECTIONS, ssl_context=api.trust, timeout=TIMEOUT
        )

    def close(self) -> None:
        """Closes all connections."""
        self._pool.close()

    def create(self, obj: JSON) -> JSON | Refusal:
        """Creates an object; returns it as stored, or why it is refused."""
        path = collection(obj["kind"], obj["metadata"].get("namespace"))
        status, said = self.send("POST", f"{path}?fieldValidation=Strict", obj)
        if status in _REFUSED:
            return refusal(said)
        return _good(status, said)

    def get(self, kind: str, namespace: str | None, name: str) -> JSON:
        """Returns an object."""
        return _good(*self.send("GET", f"{collection(kind, namespace)}/{name}"))

    def find(self, kind: str, namespace: str | None, name: str) -> JSON | None:
        """Returns an object; None if it does not exist."""
        status, said = self.send("GET", f"{collection(kind, namespace)}/{name}")
        return None if status == HTTPStatus.NOT_FOUND else _good(status, said)

    def patch(self, kind: str, namespace: str | None, name: str, change: JSON, *, status: bool = False) -> JSON:
        """Merges a change into an object, or into its status."""
        path = f"{collection(kind, namespace)}/{name}{'/status' if status else ''}"
        return _good(*self.send("PATCH", path, change, "application/merge-patch+json"))

    def delete(self, kind: str, namespace: str | None, name: str, *, finalized: bool = False) -> None:
        """Deletes an object at once; a `finalized` one despite its finalizers. It need not exist."""
        path = f"{collection(kind, namespace)}/{name}"
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        if finalized:
            change = {"metadata": {"finalizers": None}}
            self._good_or_gone("PATCH", path, change, "application/merge-patch+json")
        self._good_or_gone("DELETE", path, options)

    def _good_or_gone(self, method: str, path: str, body: JSON, content: str = "application/json") -> None:
        status, said = self.send(method, path, body, content)
        if status != HTTPStatus.NOT_FOUND:
            _good(status, said)

    def send(
        self, method: str, path: str, body: JSON | None = None, content: str = "application/json"
    ) -> tuple[int, JSON]:
        """Sends a request; returns the status and the JSON of the answer."""
        headers = {"Accept": "application/json", "Content-Type": content}
        # Compact and sorted, as the server writes it after a patch: it compares opaque parameters byte by byte.
        text = None if body is None else json.dumps(body, separators=(",", ":"), sort_keys=True)
        answer = self._pool.request(method, path, body=text, headers=headers)
        try:
            return answer.status, json.loads(answer.data)
        except ValueError:
            return answer.status, {"message": answer.data.decode(errors="replace")}


def collection(kind: str, namespace: str | None = None) -> str:
    """Returns the path of all objects of a kind."""
    if kind in _GROUPS:
        return _GROUPS[kind]
    group, plural = _NAMESPACED[kind]
    return f"{group}/{plural}" if namespace is None else f"{group}/namespaces/{namespace}/{plural}"


def _good(status: int, said: JSON) -> JSON:
    if status not in (HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.ACCEPTED):
        raise HarnessError(f"the API server answered {status}: {said.get('message', said)}")
    return said


def refusal(said: JSON) -> Refusal:
    """Returns the refusal in a meta/v1 Status."""
    causes: list[dict[str, Any]] = (said.get("details") or {}).get("causes") or []
    fields = frozenset((cause.get("field", ""), cause["reason"].removeprefix("FieldValue")) for cause in causes)
    return Refusal(fields, str(said.get("message", "")))
