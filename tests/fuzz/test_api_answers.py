"""Answers of an API server, or of whatever sits in its place: what is HTTP arrives whole, the rest is an error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_sdk.errors import ApiError
from dra_sdk.kube.http import HttpError, HttpResponse
from dra_sdk.kube.status import error_of, error_of_event
from dra_sdk.kube.watching import Watch
from dra_sdk.testing.waiting import LONG
from tests.fuzz.documents import STATUS
from tests.fuzz.strategies import damaged, files, fuzz, noisy, values

DATES = [
    "Wed, 21 Oct 2026 07:28:00 GMT", "Wed, 21 Oct 2026 07:28:00 -0000", "Wed, 21 Oct 9999 07:28:00 GMT",
    "Wed, 21 Oct 9999999999999999999 07:28:00 GMT", "1 Jan 1 00:00:00 +99999999999999999999", "Mon, 00 Jan 0000",
]  # fmt: skip
SECONDS = ["1", "0", "-1", "1.5", "9" * 30, "9" * 5000, "²", "٣", "", " 3 ", "inf", "nan", "1e400", "\xb2\xb3"]
LONGEST = 86400.0
header_values = st.one_of(st.sampled_from(DATES + SECONDS), st.text(max_size=20))
headers = st.fixed_dictionaries({}, optional={"Retry-After": header_values, "Date": header_values})
statuses = st.one_of(st.integers(0, 999), st.sampled_from([400, 401, 403, 404, 409, 410, 422, 429, 500, 503]))


def assert_fit(error: ApiError, status: int) -> None:
    assert error.status == status
    assert str(error).startswith("get x: the API server answered ")
    assert error.retry_after is None or 0 <= error.retry_after <= LONGEST


@fuzz(700)
@given(statuses, files(STATUS), headers)
def test_answers_with_an_error(status: int, body: bytes, fields: Mapping[str, str]) -> None:
    assert_fit(error_of("get x", status, body, fields, "as somebody"), status)


def test_an_answer_that_is_nested_too_deeply() -> None:
    assert_fit(error_of("get x", 500, b"[" * 100_000, {}), 500)


@fuzz(300)
@given(st.one_of(damaged(STATUS), values))
def test_error_events(status: Any) -> None:
    error = error_of_event("get x", status)
    assert_fit(error, error.status)


class Stream:
    """A socket whose other side sends this, in pieces of this size, and hangs up."""

    def __init__(self, content: bytes, size: int) -> None:
        self.left, self.size = content, size

    def settimeout(self, seconds: float) -> None:
        """It never waits."""

    def recv(self, _most: int) -> bytes:
        piece, self.left = self.left[: self.size], self.left[self.size :]
        return piece

    def shutdown(self, _how: int) -> None:
        """Nothing is open."""

    def close(self) -> None:
        """Nothing is open."""


LIMIT = 100_000


def head(content: bytes, size: int) -> HttpResponse:
    """The answer that this content, received in pieces of this size, begins with."""
    response = HttpResponse(Stream(content, size), LIMIT)  # type: ignore[arg-type]
    response.read_head(monotonic() + LONG)
    return response


def receive(content: bytes, size: int) -> tuple[HttpResponse, bytes]:
    """The same with its body."""
    response = head(content, size)
    return response, response.read(monotonic() + LONG)


def answer(status: str, fields: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + body


with_body = st.integers(200, 599).filter(lambda status: status not in {204, 304})  # which end with their head
bodies = st.binary(max_size=60)
sizes = st.integers(1, 50)
GOOD = answer("200 OK", {"Content-Type": "application/json", "Content-Length": "2"}, b"{}")
CHUNKS = answer("200 OK", {"Transfer-Encoding": "chunked"}, b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n")


@fuzz(400)
@given(bodies, sizes, st.sampled_from(["Content-Length", "content-length", "CONTENT-LENGTH"]), with_body)
def test_plain_answers_arrive_whole(body: bytes, size: int, name: str, status: int) -> None:
    found, data = receive(answer(f"{status} Fine", {"Date": "today", name: str(len(body))}, body), size)
    assert (found.status, data, found.headers["date"]) == (status, body, "today")


@fuzz(400)
@given(st.lists(st.binary(min_size=1, max_size=40)), sizes, st.sampled_from(["", ";a=b", ";x", ';x="y z"']))
def test_answers_in_chunks_arrive_whole(parts: list[bytes], size: int, extension: str) -> None:
    chunks = [b"%X%s\r\n%s\r\n" % (len(part), extension.encode(), part) for part in parts]
    content = answer("200 OK", {"Transfer-Encoding": "chunked"}, b"".join(chunks) + b"0\r\n\r\n")
    found, data = receive(content, size)
    assert (found.status, data) == (200, b"".join(parts))


odd_lengths = st.sampled_from(["", "-1", "+2", "2 ", "0x2", "²", "\xb2", "2, 2", "1e1", "9" * 30, "9" * 5000, "1", "3"])
odd_statuses = st.sampled_from(["200", "20", "2000 OK", "", "abc OK", "\xb2\xb3\xb9 OK", "200 ", " 200 OK", "999999"])
encodings = st.fixed_dictionaries(
    {}, optional={"Transfer-Encoding": st.just("chunked"), "Content-Encoding": st.just("gzip")}
)


@fuzz(700)
@given(
    st.one_of(
        st.binary(max_size=200),
        noisy(GOOD),
        noisy(CHUNKS),
        st.builds(
            lambda status, length, more, body: answer(status, {"Content-Length": length, **more}, body),
            odd_statuses,
            odd_lengths,
            encodings,
            bodies,
        ),
    ),
    sizes,
)
def test_other_answers_are_refused_or_arrive_whole(content: bytes, size: int) -> None:
    with suppress(HttpError):
        found, data = receive(content, size)
        assert content.startswith(b"HTTP/1.1 ")
        assert 200 <= found.status <= 999
        assert data in content or b"chunked" in content.lower()


@pytest.mark.parametrize(
    "content",
    [b"x", b"HTTP/1.1 200 OK\r\nX: y\r\n", b"HTTP/1.1 200 OK\r\nX: y", GOOD + b"x", GOOD[:-3] + b"9999999\r\n\r\n"],
    ids=["nothing of HTTP", "fields", "one field", "two answers", "a body"],
)
def test_an_answer_without_an_end_is_refused(content: bytes) -> None:
    with pytest.raises(HttpError):
        receive(content + b"x" * 1_000_000, 65536)


LINE = json.dumps({"type": "ADDED", "object": {"metadata": {"name": "x", "resourceVersion": "1"}}}).encode() + b"\n"
ERROR = json.dumps({"type": "ERROR", "object": STATUS}).encode() + b"\n"
HEAD = answer("200 OK", {"Content-Type": "application/json"}, b"")


@fuzz(400)
@given(st.one_of(noisy(LINE * 2), noisy(ERROR), files({"type": "ERROR", "object": STATUS}), st.binary()), sizes)
def test_watches(content: bytes, size: int) -> None:
    seen: list[Any] = []
    with suppress(ApiError):
        seen.extend(Watch(head(HEAD + content, size), "watch x", LONG))
    assert all(isinstance(event["type"], str) and isinstance(event["object"], dict) for event in seen)
