from __future__ import annotations

import json
import time
import urllib.request
from typing import Any

import pytest

from dra_sdk.testing.waiting import LONG
from dra_sdk.tools.simulator.local import LocalClient
from dra_sdk.tools.simulator.request import RequestInfo, RequestLog
from dra_sdk.tools.simulator.resources import CATALOG
from dra_sdk.tools.simulator.server import ApiServer
from dra_sdk.tools.simulator.statuses import StatusError
from tests.tools.simulator.conftest import CLAIMS, SLICES, Http, claim_object, path_of, slice_object


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
def test_what_method_and_url_ask_for(method: str, url: str, meaning: tuple[str, ...]) -> None:
    info = RequestInfo.of(CATALOG, method, url)
    assert (info.verb, info.plural, info.namespace, info.name, info.subresource) == meaning


def test_query_parameters() -> None:
    info = RequestInfo.of(CATALOG, "GET", "/api/v1/nodes?watch=1&limit=5&fieldSelector=a%3Db&empty=")
    assert info.flag("watch")
    assert not info.flag("other")
    assert (info.number("limit"), info.number("empty"), info.number("other")) == (5, None, None)
    assert info.query["fieldSelector"] == "a=b"
    with pytest.raises(StatusError, match="must be a number"):
        info.number("fieldSelector")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/api/v1/nodes"),
        ("POST", "/api/v1/nodes/n"),
        ("DELETE", "/api/v1/nodes/n/status"),
        ("HEAD", "/api/v1/nodes"),
    ],
)
def test_a_verb_that_the_resource_does_not_have(method: str, path: str) -> None:
    with pytest.raises(StatusError) as caught:
        RequestInfo.of(CATALOG, method, path)
    assert caught.value.code == 405


def test_the_path_of_an_object_leads_to_it() -> None:
    for resource in CATALOG:
        namespace = "x" if resource.namespaced else ""
        info = RequestInfo.of(CATALOG, "GET", path_of(resource, namespace, "n"))
        assert (info.resource, info.namespace, info.name) == (resource, namespace, "n")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("resourceVersionMatch=Exact", "resourceVersionMatch"),
        ("resourceVersionMatch=Roughly&resourceVersion=1", "resourceVersionMatch"),
        ("resourceVersionMatch=Exact&resourceVersion=0", "resourceVersionMatch"),
        ("resourceVersionMatch=Exact&resourceVersion=1&continue=abc", "resourceVersionMatch"),
        ("sendInitialEvents=true", "sendInitialEvents"),
        ("watch=true&sendInitialEvents=true", "resourceVersionMatch"),
        ("watch=true&resourceVersionMatch=NotOlderThan", "resourceVersionMatch"),
    ],
)
def test_options_that_do_not_go_together(http: Http, query: str, field: str) -> None:
    code, status = http("GET", f"{SLICES}?{query}")
    assert (code, status["reason"], status["details"]["kind"]) == (422, "Invalid", "ListOptions")
    assert status["details"]["causes"][0]["field"] == field


def test_version_zero_is_any_version(http: Http, local: LocalClient) -> None:
    local.create("resourceslices", slice_object("a"))
    assert http("GET", f"{SLICES}/a?resourceVersion=0")[0] == 200
    assert len(http("GET", f"{SLICES}?resourceVersion=0")[1]["items"]) == 1
    assert len(http("GET", f"{SLICES}?resourceVersion=1&resourceVersionMatch=NotOlderThan")[1]["items"]) == 1


def test_a_version_that_is_not_reached_yet(http: Http, local: LocalClient) -> None:
    local.create("resourceslices", slice_object("a"))
    assert http("GET", f"{SLICES}/a?resourceVersion=9999")[0] == 504
    assert http("GET", f"{SLICES}?resourceVersion=9999")[0] == 504


def test_a_list_at_an_earlier_version(http: Http, local: LocalClient) -> None:
    kept = local.create("resourceslices", slice_object("a"))
    local.create("resourceslices", slice_object("b"))
    version = local.store.version
    local.patch("resourceslices", {"metadata": {"labels": {"x": "y"}}}, "a")
    local.delete("resourceslices", "b")
    local.create("resourceslices", slice_object("c"))
    code, earlier = listed(http, version)
    assert (code, earlier["metadata"]["resourceVersion"]) == (200, str(version))
    assert [item["metadata"]["name"] for item in earlier["items"]] == ["a", "b"]
    assert earlier["items"][0]["metadata"] == kept["metadata"]
    local.store.expire_history()
    code, status = listed(http, version)
    assert (code, status["reason"]) == (410, "Expired")


def listed(http: Http, version: int) -> tuple[int, Any]:
    return http("GET", f"{SLICES}?resourceVersion={version}&resourceVersionMatch=Exact")


def test_a_page_of_a_list_that_has_expired(http: Http, local: LocalClient) -> None:
    for name in "abc":
        local.create("resourceslices", slice_object(name))
    _, page = http("GET", f"{SLICES}?limit=2")
    local.create("resourceslices", slice_object("d"))
    local.store.expire_history()
    code, status = http("GET", f"{SLICES}?limit=2&continue={page['metadata']['continue']}")
    assert (code, status["reason"]) == (410, "Expired")


def test_every_request_is_recorded(server: ApiServer, http: Http) -> None:
    http("POST", CLAIMS, claim_object(), User_Agent="driver/1")
    http("GET", f"{CLAIMS}/claim-1/status")
    http("GET", f"{SLICES}/a")
    http("GET", "/version")
    records = server.log.records()
    created, status, missing, version = (record.request for record in records)
    assert (created.verb, created.plural) == ("create", "resourceclaims")
    assert (records[0].code, records[0].user_agent) == (201, "driver/1")
    assert (status.verb, status.namespace, status.name, status.subresource) == ("get", "default", "claim-1", "status")
    assert (missing.plural, records[2].code) == ("resourceslices", 404)
    assert (version.verb, version.resource, version.path) == ("get", None, "/version")


def test_an_open_watch_is_one_record_however_long_it_lasts(server: ApiServer, local: LocalClient) -> None:
    with urllib.request.urlopen(f"{server.url}{SLICES}?watch=true", timeout=LONG) as stream:
        local.create("resourceslices", slice_object("a"))
        assert json.loads(stream.readline())["type"] == "ADDED"
        assert [(record.request.verb, record.code) for record in server.log.records()] == [("watch", 200)]
        mark = time.monotonic()
        assert server.log.records(since=mark) == []


def test_records_are_selected_and_cleared(server: ApiServer, http: Http) -> None:
    http("GET", SLICES)
    http("GET", f"{SLICES}/a")
    http("GET", CLAIMS)
    assert len(server.log.records("list")) == 2
    assert len(server.log.records(resource="resource*")) == 3
    assert len(server.log.records("list", "resourceclaims")) == 1
    server.log.clear()
    assert server.log.records() == []


def test_the_log_has_a_limit(server: ApiServer, http: Http) -> None:
    http("GET", SLICES)
    (record,) = server.log.records()
    log = RequestLog(size=2)
    for _ in range(5):
        log.append(record)
    assert len(log.records()) == 2
