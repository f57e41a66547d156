"""The error tree: what the docstring draws is what the classes are."""

from __future__ import annotations

import inspect
import re

import pytest

from dra_sdk import errors
from dra_sdk.errors import (
    ApiError,
    ClaimError,
    ConfigError,
    DraError,
    InvalidObjectError,
    PermanentError,
    RetriableError,
)


def drawn() -> dict[str, str]:
    """Each class in the docstring's drawing with its parent there."""
    assert errors.__doc__
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in errors.__doc__.split("```")[1].strip().splitlines():
        match = re.match(r"([│├└─ ]*)([A-Z]\w+)", line)
        assert match, line
        depth = len(match[1]) // 4
        path[depth:] = [match[2]]
        parents[match[2]] = path[depth - 1] if depth else "Exception"
    return parents


def test_the_drawing_shows_the_classes() -> None:
    defined = {
        name: cls.__base__.__name__
        for name, cls in inspect.getmembers(errors, inspect.isclass)
        if cls.__module__ == errors.__name__
    }
    assert drawn() == defined


def test_every_class_says_what_it_means() -> None:
    for name in drawn():
        assert inspect.getdoc(getattr(errors, name)), name


def test_an_invalid_object_lists_every_problem() -> None:
    error = InvalidObjectError("pool gpus", ["device a: x is bad", "device b: y is bad"])
    assert str(error) == "pool gpus: device a: x is bad; device b: y is bad"
    assert error.problems == ["device a: x is bad", "device b: y is bad"]
    assert error.subject == "pool gpus"


@pytest.mark.parametrize(
    ("kind", "retriable"), [(ClaimError, True), (RetriableError, True), (ConfigError, False), (PermanentError, False)]
)
def test_claim_errors_tell_whether_a_retry_helps(kind: type[ClaimError], retriable: bool) -> None:
    assert kind.retriable is retriable
    assert issubclass(kind, DraError)


def test_an_api_error_carries_what_the_server_said() -> None:
    error = ApiError("GET x: too many requests", status=429, reason="TooManyRequests", retry_after=2.5)
    assert (error.status, error.reason, error.retry_after) == (429, "TooManyRequests", 2.5)
    assert str(error) == "GET x: too many requests"
