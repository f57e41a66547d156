from __future__ import annotations

import pytest

from dra_sdk.tools.simulator.resources import CATALOG
from dra_sdk.tools.simulator.routes import parse
from dra_sdk.tools.simulator.statuses import StatusError


@pytest.mark.parametrize(
    ("method", "url", "meaning"),
    [
        ("GET", "/api/v1/nodes", ("list", "nodes", "", "", "")),
        ("GET", "/api/v1/nodes?watch=true", ("watch", "nodes", "", "", "")),
        ("GET", "/api/v1/nodes/n", ("get", "nodes", "", "n", "")),
        ("PUT", "/api/v1/nodes/n/status", ("update", "nodes", "", "n", "status")),
        ("POST", "/api/v1/namespaces", ("create", "namespaces", "", "", "")),
        ("DELETE", "/api/v1/namespaces/x", ("delete", "namespaces", "", "x", "")),
        ("PATCH", "/api/v1/namespaces/x/status", ("patch", "namespaces", "", "x", "status")),
        ("GET", "/api/v1/namespaces/x/pods/p", ("get", "pods", "x", "p", "")),
        ("GET", "/api/v1/pods", ("list", "pods", "", "", "")),
        ("DELETE", "/apis/resource.k8s.io/v1/resourceslices", ("deletecollection", "resourceslices", "", "", "")),
        ("GET", "/apis/resource.k8s.io/v1/resourceslices/a%3Ab", ("get", "resourceslices", "", "a:b", "")),
        ("GET", "/apis/resource.k8s.io/v1", ("get", "", "", "", "")),
        ("GET", "/api/v1/nodes/n/proxy", ("get", "", "", "", "")),
        ("GET", "/api/v1/namespaces/x/nodes", ("get", "", "", "", "")),
        ("POST", "/version", ("post", "", "", "", "")),
        ("GET", "/", ("get", "", "", "", "")),
    ],
)
def test_urls(method: str, url: str, meaning: tuple[str, ...]) -> None:
    target = parse(CATALOG, method, url)
    assert (target.verb, target.plural, target.namespace, target.name, target.subresource) == meaning


def test_parameters() -> None:
    target = parse(CATALOG, "GET", "/api/v1/nodes?watch=1&limit=5&fieldSelector=a%3Db&empty=")
    assert target.flag("watch")
    assert not target.flag("other")
    assert (target.number("limit"), target.number("empty"), target.number("other")) == (5, None, None)
    assert target.query["fieldSelector"] == "a=b"
    with pytest.raises(StatusError, match="must be a number"):
        target.number("fieldSelector")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/api/v1/nodes"),
        ("POST", "/api/v1/nodes/n"),
        ("DELETE", "/api/v1/nodes/n/status"),
        ("HEAD", "/api/v1/nodes"),
    ],
)
def test_verbs_that_are_not_there(method: str, path: str) -> None:
    with pytest.raises(StatusError) as caught:
        parse(CATALOG, method, path)
    assert caught.value.code == 405


def test_paths_lead_back() -> None:
    for resource in CATALOG:
        namespace = "x" if resource.namespaced else ""
        target = parse(CATALOG, "GET", resource.path(namespace, "n"))
        assert (target.resource, target.namespace, target.name) == (resource, namespace, "n")
