from __future__ import annotations

import json
import urllib.request

from dra_sdk.tools.simulator.local import LocalClient
from dra_sdk.tools.simulator.request_log import RequestLog
from dra_sdk.tools.simulator.server import ApiServer
from tests.tools.simulator.conftest import CLAIMS, SLICES, Http, claim_object, slice_object
from tests.waiting import LONG


def test_every_request_is_recorded(server: ApiServer, http: Http) -> None:
    http("POST", CLAIMS, claim_object(), User_Agent="driver/1")
    http("GET", f"{CLAIMS}/claim-1/status")
    http("GET", f"{SLICES}/a")
    http("GET", "/version")
    created, status, missing, version = server.log.records()
    assert (created.verb, created.resource, created.code, created.user_agent) == (
        "create",
        "resourceclaims",
        201,
        "driver/1",
    )
    assert (status.verb, status.namespace, status.name, status.subresource) == ("get", "default", "claim-1", "status")
    assert (missing.resource, missing.code) == ("resourceslices", 404)
    assert (version.verb, version.resource, version.path) == ("get", "", "/version")


def test_an_open_watch_is_one_record_and_silence_is_none(server: ApiServer, local: LocalClient) -> None:
    with urllib.request.urlopen(f"{server.url}{SLICES}?watch=true", timeout=LONG) as stream:
        local.create("resourceslices", slice_object("a"))
        assert json.loads(stream.readline())["type"] == "ADDED"
        assert [(record.verb, record.code) for record in server.log.records()] == [("watch", 200)]
        mark = server.log.mark()
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


def test_only_so_many_are_remembered(server: ApiServer, http: Http) -> None:
    http("GET", SLICES)
    (record,) = server.log.records()
    log = RequestLog(remembered=2)
    for _ in range(5):
        log.append(record)
    assert len(log.records()) == 2
