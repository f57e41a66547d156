"""Counts, lists that are cut, and guesses at misspelt words."""

from __future__ import annotations

import pytest

from dra_sdk.texts import closest, counted, did_you_mean, limited, shortened


@pytest.mark.parametrize(("number", "text"), [(0, "0 pods"), (1, "1 pod"), (2, "2 pods")])
def test_counted(number, text):
    assert counted(number, "pod") == text


@pytest.mark.parametrize(
    ("items", "text"),
    [((), ""), (("a",), "a"), (("a", "b"), "a, b"), (("a", "b", "c"), "a, b and 1 more"), ("abcde", "a, b and 3 more")],
)
def test_shortened(items, text):
    assert shortened(items, 2) == text


@pytest.mark.parametrize(
    ("items", "noun", "lines"),
    [
        ((), "", []),
        ("ab", "problem", ["a", "b"]),
        ("abc", "", ["a", "b", "and 1 more"]),
        ("abc", "problem", ["a", "b", "and 1 more problem"]),
        ("abcd", "problem", ["a", "b", "and 2 more problems"]),
    ],
)
def test_limited(items, noun, lines):
    assert limited(items, 2, noun) == lines


@pytest.mark.parametrize(
    ("word", "choice"),
    [("labels", "labels"), ("lables", "labels"), ("RESOURCECLAIMS", "resourceClaims"), ("spec", None)],
)
def test_the_choice_that_is_most_like_a_word(word, choice):
    choices = ["labels", "resourceClaims"]
    assert closest(word, choices) == choice
    assert did_you_mean(word, choices) == (f"; did you mean {choice}?" if choice else "")
