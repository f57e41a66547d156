"""The error tree: what the docstring draws is what the classes are."""

from __future__ import annotations

import inspect
import re
from typing import Any

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
    raised_at,
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


def test_where_an_author_raised_is_the_last_line_of_the_authors_own() -> None:
    code = "from pathlib import Path\n\n\ndef read():\n    Path('/absent').read_text()\n\n\ndef hook():\n    read()\n"
    space: dict[str, Any] = {"__name__": "my_driver.inner"}
    exec(compile(code, "/somewhere/my_driver/inner.py", "exec"), space)
    with pytest.raises(FileNotFoundError) as caught:
        space["hook"]()
    inside = caught.value.__traceback__
    assert inside
    assert raised_at(caught.value.with_traceback(inside.tb_next)) == " (inner.py, line 5)"


def test_nothing_is_said_of_an_error_that_no_author_raised() -> None:
    assert raised_at(ValueError("never raised")) == ""
    with pytest.raises(DraError) as caught:
        raise DraError("a sentence of its own")
    assert raised_at(caught.value) == ""
    with pytest.raises(ValueError, match="invalid literal") as caught_too:
        int("x")
    assert re.fullmatch(r" \(test_errors.py, line \d+\)", raised_at(caught_too.value))
