"""Drawn expressions: any text is evaluated or refused, and cel-python says the same where its rules are the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import celpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_sdk import cel
from tests.cel.second_opinion import (
    VIEW,
    celpy_environment,
    compare_answers,
    compare_verdicts,
    damaged,
    expressions,
)
from tests.fuzz.strategies import fuzz, odd_text, text


@pytest.fixture(scope="module")
def environment() -> Iterator[celpy.Environment]:
    with celpy_environment() as made:
        yield made


@fuzz(1500)
@given(expressions())
def test_answers_are_those_of_cel_python(environment: celpy.Environment, expression: str) -> None:
    compare_answers(environment, expression)


@fuzz(4000)
@given(damaged())
def test_verdicts_of_the_parser_are_those_of_cel_python(environment: celpy.Environment, written: str) -> None:
    compare_verdicts(environment, written)


@fuzz(3000)
@given(st.one_of(damaged(), text, odd_text), st.booleans())
def test_any_text_is_evaluated_or_refused(written: str, newer: bool) -> None:
    with suppress(cel.CelError):
        selector = cel.compile(written, cel.Features(since_1_37=newer))
        assert selector.max_cost >= 0
        assert isinstance(selector.matches(VIEW), bool)
