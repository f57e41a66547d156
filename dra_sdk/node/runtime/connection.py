"""The API client of a process, made when it is first needed: that takes longer than registering with the kubelet."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

from dra_sdk.errors import ClaimError
from dra_sdk.kube import paths
from dra_sdk.kube.client import KubeClient
from dra_sdk.wire.dra import ClaimRef

FETCH_SECONDS = 10.0  # how long a claim is read again while the API server is busy, out of the kubelet's 45


class Connection:
    """Shares one client among the services of a process. Safe for threads."""

    def __init__(self, connect: Callable[[], KubeClient]) -> None:
        self._connect = connect
        self._lock = Lock()
        self._client: KubeClient | None = None

    def get(self) -> KubeClient:
        """The client; raises what connecting raised, and tries again at the next call."""
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def fetch(self, ref: ClaimRef) -> dict[str, Any]:
        """GET one ResourceClaim; ClaimError where `ref` can be none's."""
        try:
            path = paths.resource_claim(ref.namespace, ref.name)
        except ValueError as error:
            raise ClaimError(str(error)) from error
        return self.get().get(path, patience=FETCH_SECONDS)

    def close(self, _timeout: float = 0.0) -> None:
        """Close the client if there is one."""
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None
