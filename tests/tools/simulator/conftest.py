from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from dra_sdk.testing.waiting import LONG
from dra_sdk.tools.simulator.local import LocalClient
from dra_sdk.tools.simulator.objects import ObjectStore
from dra_sdk.tools.simulator.resources import ResourceType
from dra_sdk.tools.simulator.server import ApiServer

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


class Http:
    """urllib as an API client: a status and a decoded body for every request."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server

    def __call__(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", **headers: str
    ) -> tuple[int, Any]:
        code, _, answer = self.full(method, path, body, content_type, **headers)
        return code, answer

    def full(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", **headers: str
    ) -> tuple[int, dict[str, str], Any]:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.server.url + path, data, method=method)
        if data is not None:
            request.add_header("Content-Type", content_type)
        for name, value in headers.items():
            request.add_header(name.replace("_", "-"), value)
        try:
            with urllib.request.urlopen(request, timeout=LONG) as response:
                return response.status, dict(response.headers), _decoded(response)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), _decoded(error)


def _decoded(response: Any) -> Any:
    text = response.read()
    return json.loads(text) if response.headers["Content-Type"] == "application/json" else text.decode()


@pytest.fixture
def store() -> ObjectStore:
    return ObjectStore()


@pytest.fixture
def local(store: ObjectStore) -> LocalClient:
    client = LocalClient(store)
    client.create("namespaces", {"metadata": {"name": "default"}})
    return client


@pytest.fixture
def server(store: ObjectStore, local: LocalClient) -> Iterator[ApiServer]:
    with ApiServer(store) as running:
        yield running


@pytest.fixture
def http(server: ApiServer) -> Http:
    return Http(server)


def slice_object(name: str = "", *, driver: str = "gpu.example.com", node: str = "node-1", **spec: Any) -> Any:
    metadata = {"name": name} if name else {"generateName": "00000-gpu-"}
    return {"metadata": metadata, "spec": {"driver": driver, "nodeName": node, "pool": {"name": node}, **spec}}


def claim_object(name: str = "claim-1", **metadata: Any) -> Any:
    return {"metadata": {"name": name, "namespace": "default", **metadata}, "spec": {"devices": {}}}


def closed(connection: socket.socket) -> bool:
    """Whether the server has closed a connection, properly or not."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        return True
    return True


def path_of(resource: ResourceType, namespace: str, name: str = "") -> str:
    """The URL path of the collection, or of one object."""
    parts = ["", "apis", resource.group, resource.version] if resource.group else ["", "api", resource.version]
    if resource.namespaced and namespace:
        parts += ["namespaces", namespace]
    return "/".join([*parts, resource.plural, *filter(None, [name])])
