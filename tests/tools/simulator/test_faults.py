from __future__ import annotations

import socket
import urllib.error
from contextlib import closing
from http.client import HTTPConnection, HTTPException

import pytest

from dra_sdk.testing.waiting import wait
from dra_sdk.tools.simulator import statuses
from dra_sdk.tools.simulator.faults import Delay, FaultRule, FaultRules, Reject, Reset
from dra_sdk.tools.simulator.local import LocalClient
from dra_sdk.tools.simulator.request import RequestInfo
from dra_sdk.tools.simulator.resources import CATALOG
from dra_sdk.tools.simulator.server import ApiServer
from tests.tools.simulator.conftest import CLAIMS, SLICES, Http, claim_object, slice_object

BROKEN = (ConnectionError, HTTPException, urllib.error.URLError)


def test_too_many_requests_for_a_while(server: ApiServer, http: Http) -> None:
    rule = FaultRule(Reject(statuses.too_many_requests(3)), verb="create", resource="resourceslices", times=2)
    server.faults.add(rule)
    code, headers, status = http.full("POST", SLICES, slice_object("a"))
    assert (code, headers["Retry-After"], status["details"]) == (429, "3", {"retryAfterSeconds": 3})
    assert http("GET", SLICES)[0] == 200
    assert [http("POST", SLICES, slice_object("a"))[0] for _ in range(2)] == [429, 201]
    assert rule.hits == 2


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (statuses.internal_error("boom"), 500, "InternalError"),
        (statuses.unavailable(), 503, "ServiceUnavailable"),
        (statuses.forbidden(CATALOG["resourceslices"], "a", "no RBAC"), 403, "Forbidden"),
        (statuses.conflict(CATALOG["resourceslices"], "a"), 409, "Conflict"),
        (statuses.expired("too old"), 410, "Expired"),
    ],
)
def test_errors(server: ApiServer, http: Http, error: statuses.StatusError, code: int, reason: str) -> None:
    server.faults.add(FaultRule(Reject(error), resource="resourceslices"))
    for _ in range(3):
        answered, status = http("GET", f"{SLICES}/a")
        assert (answered, status["code"], status["reason"]) == (code, code, reason)
    server.faults.clear()
    assert http("GET", f"{SLICES}/a")[0] == 404


def test_a_connection_is_reset_before_the_write(server: ApiServer, http: Http, local: LocalClient) -> None:
    server.faults.add(FaultRule(Reset(), verb="create", times=1))
    with pytest.raises(BROKEN):
        http("POST", SLICES, slice_object("a"))
    assert not local.list("resourceslices")
    assert http("POST", SLICES, slice_object("a"))[0] == 201


def test_a_connection_is_reset_after_the_write(server: ApiServer, http: Http, local: LocalClient) -> None:
    server.faults.add(FaultRule(Reset(after_serving=True), verb="create", times=1))
    with pytest.raises(BROKEN):
        http("POST", SLICES, slice_object("a"))
    assert local.get("resourceslices", "a")
    assert server.log.records()[-1].code == 0


@pytest.mark.parametrize("after", [False, True])
def test_a_reset_is_a_tcp_reset_without_a_byte(server: ApiServer, local: LocalClient, after: bool) -> None:
    server.faults.add(FaultRule(Reset(after_serving=after), verb="list"))
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(f"GET {SLICES} HTTP/1.1\r\n\r\n".encode())
        with pytest.raises(ConnectionResetError):
            connection.recv(1)


def test_a_watch_is_refused_or_cut(server: ApiServer, http: Http) -> None:
    server.faults.add(FaultRule(Reject(statuses.expired("gone")), verb="watch", times=1))
    server.faults.add(FaultRule(Reset(after_serving=True), verb="watch"))
    assert http("GET", f"{SLICES}?watch=true")[0] == 410
    with pytest.raises(BROKEN):
        http("GET", f"{SLICES}?watch=true")
    assert server.store.watches == ()


def test_latency(server: ApiServer, http: Http) -> None:
    rule = server.faults.add(FaultRule(Delay(0.2), verb="get", times=1))
    http("GET", f"{SLICES}/a")
    http("GET", f"{SLICES}/a")
    slow, _ = server.log.records("get")
    assert slow.seconds >= 0.2
    assert rule.hits == 1


def test_stopping_does_not_wait_for_latency(server: ApiServer, http: Http) -> None:
    rule = server.faults.add(FaultRule(Delay(3600), verb="list"))
    with closing(HTTPConnection("127.0.0.1", server.port)) as connection:
        connection.request("GET", SLICES)
        wait(lambda: rule.hits)
        server.stop()
        # The request is answered, only sooner.
        assert connection.getresponse().status == 200


def test_effects_add_up_and_a_fault_is_only_for_http(server: ApiServer, http: Http, local: LocalClient) -> None:
    server.faults.add(FaultRule(Delay(0.05)))
    server.faults.add(FaultRule(Reject(statuses.unavailable())))
    assert http("GET", SLICES)[0] == 503
    assert server.log.records("list")[0].seconds >= 0.05
    assert local.list("resourceslices") == []


def test_a_rule_may_name_the_subresource_and_the_object(server: ApiServer, http: Http) -> None:
    http("POST", CLAIMS, claim_object())
    patch, merge = {"status": {}}, "application/merge-patch+json"
    server.faults.add(
        FaultRule(
            Reject(statuses.unavailable()), verb="patch", name="claim-*", namespace="default", subresource="status"
        )
    )
    assert http("PATCH", f"{CLAIMS}/claim-1", {}, merge)[0] == 200
    assert http("PATCH", f"{CLAIMS}/claim-1/status", patch, merge)[0] == 503


def test_a_rule_counts_its_requests() -> None:
    faults = FaultRules()
    rule = faults.add(FaultRule(Delay(1), verb="get", skip=1, times=2))
    request = RequestInfo("get", "/", CATALOG["resourceslices"])
    assert [len(faults.hit(request)) for _ in range(5)] == [0, 1, 1, 0, 0]
    assert faults.hit(RequestInfo("list", "/")) == []
    faults.remove(rule)
    assert faults.hit(request) == []
