from __future__ import annotations

import json

import pytest

from dra_sdk.errors import ApiError, ConflictError, GoneError, InvalidError, NotFoundError
from dra_sdk.kube.status import error_of, error_of_event


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, NotFoundError),
        (409, ConflictError),
        (410, GoneError),
        (422, InvalidError),
        (403, ApiError),
        (500, ApiError),
    ],
)
def test_each_status_has_its_error(status: int, kind: type[ApiError]):
    body = json.dumps({"kind": "Status", "message": "it is so", "reason": "Because", "code": status}).encode()
    error = error_of("get nodes n1", status, body, {})
    assert type(error) is kind
    assert (error.status, error.reason, error.retry_after) == (status, "Because", None)
    assert str(error) == f"get nodes n1: the API server answered {status} Because: it is so"


def test_an_answer_that_is_no_status_is_quoted():
    error = error_of("get nodes n1", 502, b"<html>bad gateway</html>", {})
    assert str(error) == "get nodes n1: the API server answered 502 Bad Gateway: <html>bad gateway</html>"
    assert str(error_of("x", 599, b"", {})) == "x: the API server answered 599 error"
    assert str(error_of("x", 500, b"[1]", {})) == "x: the API server answered 500 Internal Server Error: [1]"


@pytest.mark.parametrize(
    ("headers", "details", "seconds"),
    [
        ({"retry-after": "7"}, {}, 7.0),
        ({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT", "date": "Fri, 31 Dec 1999 23:59:49 GMT"}, {}, 10.0),
        ({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}, {}, None),
        ({"retry-after": "soon", "date": "Fri, 31 Dec 1999 23:59:49 GMT"}, {}, None),
        ({}, {"retryAfterSeconds": 3}, 3.0),
        ({"retry-after": "1"}, {"retryAfterSeconds": 3}, 1.0),
    ],
)
def test_retry_after(headers: dict[str, str], details: dict[str, int], seconds: float | None):
    error = error_of("get nodes n1", 429, json.dumps({"message": "slow down", "details": details}).encode(), headers)
    assert error.retry_after == seconds


def test_who_we_are_is_told_only_where_it_matters():
    assert "(logged in as x)" in str(error_of("a", 401, b"{}", {}, "logged in as x"))
    assert "(logged in as x)" in str(error_of("a", 403, b"{}", {}, "logged in as x"))
    assert "logged in" not in str(error_of("a", 500, b"{}", {}, "logged in as x"))


def test_the_error_of_a_watch_event():
    error = error_of_event("watch nodes", {"code": 410, "reason": "Expired", "message": "too old"})
    assert isinstance(error, GoneError)
    assert str(error) == "watch nodes: the API server answered 410 Expired: too old"
    assert error_of_event("watch nodes", {}).status == 0
