"""A small client of the API server: JSON in, JSON out, no generated model classes. Safe for threads."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Final

from dra_sdk.errors import ApiError
from dra_sdk.kube.api import Params
from dra_sdk.kube.login import Session, log_in
from dra_sdk.kube.paths import describe
from dra_sdk.kube.source import find_source
from dra_sdk.kube.transport import ApiRequest, ApiTimeouts, Observe, Transport
from dra_sdk.kube.watching import Watch
from dra_sdk.model import JSON

_PAGE: Final = "500"
_TABLE: Final = "application/json;as=Table;g=meta.k8s.io;v=v1"
_WATCH_GRACE: Final = 15.0  # seconds after the end that we asked the server for


class KubeClient:
    """Access to one API server; implements `dra_sdk.kube.api.KubeApi`. Every method raises ApiError."""

    def __init__(
        self,
        log_in: Callable[[], Session],
        *,
        source: str,
        agent: str = "dra-sdk",
        timeouts: ApiTimeouts | None = None,
        observe: Observe | None = None,
    ) -> None:
        self._timeouts = timeouts or ApiTimeouts()
        self._transport = Transport(log_in, source, agent, self._timeouts, observe or (lambda _method, _status: None))
        self._closed = Event()

    @classmethod
    def connect(
        cls,
        kubeconfig: Path | None = None,
        *,
        context: str = "",
        agent: str = "dra-sdk",
        timeouts: ApiTimeouts | None = None,
        observe: Observe | None = None,
    ) -> KubeClient:
        """Log in with `kubeconfig`, or `$KUBECONFIG`, the pod's service account, `~/.kube/config`, in this order.

        `context` is one of the file's, instead of its current one. Sends no request yet; `observe` is called for each.
        SettingsError if there are no readable credentials.
        """
        source = find_source(kubeconfig, context)
        return cls(lambda: log_in(source), source=str(source), agent=agent, timeouts=timeouts, observe=observe)

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return self._transport.server

    def close(self) -> None:
        """Close idle connections and end waits for a retry. Requests in progress end by themselves."""
        self._closed.set()
        self._transport.close()

    def get(self, path: str, params: Params | None = None, *, patience: float = 0.0) -> JSON:
        """Read one object.

        `patience` limits the whole call, in seconds; until then the read is repeated while the server is busy, starting
        or out of reach. Its Retry-After is respected; one beyond the limit raises the error at once.
        """
        deadline, pause = time.monotonic() + patience, 0.1
        while True:
            timeout = deadline - time.monotonic() if patience else float("inf")
            try:
                return self._transport.json(ApiRequest("get", "GET", path, params, timeout=timeout))
            except ApiError as error:
                if not error.temporary:
                    raise
                wait = max(error.retry_after or 0.0, pause * random.uniform(0.8, 1.2))  # noqa: S311 (jitter)
                if time.monotonic() + wait > deadline or self._closed.wait(wait):
                    raise
                pause = min(2 * pause, 2.0)

    def list(self, path: str, params: Params | None = None) -> JSON:
        """Read a whole collection, page by page; GoneError if it changed too much in between (then list again)."""
        pages = list(self._pages(ApiRequest("list", "GET", path, params)))
        return {**pages[-1], "items": [item for page in pages for item in page.get("items") or ()]}

    def table(self, path: str, params: Params | None = None) -> Iterator[JSON]:
        """Yield of each object of a collection what `kubectl get -o wide` prints of it, by the names of the columns.

        That is a small part of what `list` reads. Page by page, as there.
        """
        query = {"includeObject": "None", **(params or {})}
        for page in self._pages(ApiRequest("list", "GET", path, query, accept=_TABLE)):
            names = [column["name"] for column in page.get("columnDefinitions") or ()]
            yield from (dict(zip(names, row["cells"], strict=True)) for row in page.get("rows") or ())

    def create(self, path: str, body: JSON, *, dry_run: bool = False) -> JSON:
        """Create an object in the collection `path`; returns it as stored, or with `dry_run` as it would be."""
        metadata = body.get("metadata", {})
        name = metadata.get("name") or metadata.get("generateName", "") + "…"
        params = {"dryRun": "All"} if dry_run else None
        subject = f"{describe(path)} {name}"
        return self._transport.json(ApiRequest("create", "POST", path, params, body, subject=subject))

    def update(self, path: str, body: JSON) -> JSON:
        """Replace an object. ConflictError if `metadata.resourceVersion` is given and differs from the stored one."""
        return self._json("update", "PUT", path, body=body)

    def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None) -> None:
        """Delete an object. ConflictError if `uid` or `resource_version` is given and differs from the stored one."""
        conditions = {"uid": uid, "resourceVersion": resource_version}
        body: JSON = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if given := {key: value for key, value in conditions.items() if value}:
            body["preconditions"] = given
        self._json("delete", "DELETE", path, body=body)

    def patch(self, path: str, body: JSON) -> JSON:
        """Change the given fields of an object (RFC 7386 merge patch)."""
        return self._json("patch", "PATCH", path, body=body, content_type="application/merge-patch+json")

    def apply(self, path: str, body: JSON, *, field_manager: str) -> JSON:
        """Server-side apply: own the fields of `body` as `field_manager`, also those that others own.

        `body` needs apiVersion, kind and metadata.name. JSON is YAML, which the content type of apply asks for.
        """
        params = {"fieldManager": field_manager, "force": "true"}
        return self._json("apply", "PATCH", path, params, body=body, content_type="application/apply-patch+yaml")

    def watch(self, path: str, params: Params | None = None, *, resource_version: str) -> Watch:
        """Follow the changes of a collection after `resource_version`, with bookmarks.

        Returns when the server has accepted the watch. The server ends it after the watch timeout, plus or minus a
        fifth, so that clients do not return all at once; then watch again from the last resourceVersion.
        """
        seconds = self._timeouts.watch * random.uniform(0.8, 1.2)  # noqa: S311 (jitter)
        query = {
            **(params or {}),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(max(1, round(seconds))),
        }
        request = ApiRequest("watch", "GET", path, query)
        return Watch(self._transport.stream(request), request.action, silence=seconds + _WATCH_GRACE)

    def _pages(self, request: ApiRequest) -> Iterator[JSON]:
        query = {"limit": _PAGE, **(request.params or {})}
        page = self._transport.json(request._replace(params=query))
        yield page
        while token := page.get("metadata", {}).get("continue"):
            page = self._transport.json(request._replace(params={**query, "continue": token}))
            yield page

    def _json(
        self,
        verb: str,
        method: str,
        path: str,
        params: Params | None = None,
        *,
        body: JSON | None = None,
        content_type: str = "application/json",
    ) -> JSON:
        return self._transport.json(ApiRequest(verb, method, path, params, body, content_type))
