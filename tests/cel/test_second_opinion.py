"""cel-python as a second opinion: the same texts parse and have the same answers, or the reason is known."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import celpy
import pytest
from hypothesis import given

from tests.cel.second_opinion import (
    KNOWN_ANSWERS,
    NO_ANSWER,
    ONLY_THEY_PARSE,
    ONLY_WE_PARSE,
    celpy_environment,
    compare_answers,
    compare_verdicts,
    damaged,
    explained,
    explained_answer,
    expressions,
    our_answer,
    their_answer,
    they_parse,
    we_parse,
)
from tests.fuzz.strategies import fuzz


@pytest.fixture(scope="module")
def environment() -> Iterator[celpy.Environment]:
    with celpy_environment() as made:
        yield made


def test_the_recursion_limit_of_this_process_is_restored() -> None:
    before = sys.getrecursionlimit()
    with celpy_environment():
        pass
    assert sys.getrecursionlimit() == before


@fuzz(150)
@given(expressions())
def test_answers_are_the_same(environment: celpy.Environment, expression: str) -> None:
    compare_answers(environment, expression)


@fuzz(300)
@given(damaged())
def test_the_same_texts_are_expressions(environment: celpy.Environment, text: str) -> None:
    compare_verdicts(environment, text)


@pytest.mark.parametrize(
    "text",
    [
        "a.?b", "a[?b]", "[?a]", "{?a: b}", "[1,]", "[,]", "{1: 2,}", "1.foo()", "has(1)", "[1].all(1, true)",
        "cel.bind(1, 2, 3)", "[1].all(x, x, true)", "if", "a.in", "a inb", "A{}", "9223372036854775808", "1e400",
        "'\\q'", "b'\\u00ff'", "1.", "!-1", "'a\\'",
    ],
)  # fmt: skip
def test_known_contradictions_about_texts_are_still_there(environment: celpy.Environment, text: str) -> None:
    assert we_parse(text) != they_parse(environment, text)
    assert explained(text)


@pytest.mark.parametrize(
    ("expression", "ours", "theirs"),
    [
        ("('a' + 'b').contains('a')", True, NO_ANSWER),
        ("'a' in {'a': 1 / 0}", NO_ANSWER, True),
        ("1 / 0 in []", False, NO_ANSWER),
        ("'b' < 'a' && [1].exists_one(x, x < 1 / 0)", False, NO_ANSWER),
    ],
)
def test_known_contradictions_about_answers_are_still_there(
    environment: celpy.Environment, expression: str, ours: bool | str, theirs: bool | str
) -> None:
    assert (our_answer(expression), their_answer(environment, expression)) == (ours, theirs)
    assert explained_answer(expression, ours, theirs)


@pytest.mark.parametrize(
    ("expression", "theirs"),
    [
        ("string(1.0) == '1'", False),
        ("string(true) == 'true'", False),
        ("1 == 1.0 || dyn(1) == 1.0", NO_ANSWER),
        ("[1, 2][-1] == 2", True),
    ],
)
def test_what_is_not_drawn_because_it_differs_in_general(
    environment: celpy.Environment, expression: str, theirs: bool | str
) -> None:
    assert their_answer(environment, expression) == theirs
    assert our_answer(expression) != theirs


def test_each_contradiction_has_a_reason() -> None:
    assert all(reason for *_, reason in (*ONLY_WE_PARSE, *ONLY_THEY_PARSE, *KNOWN_ANSWERS))
