from __future__ import annotations

import pytest

from dra_sdk.cel.errors import CelCompileError
from dra_sdk.cel.lexer import tokens
from dra_sdk.cel.values import UInt


def values(source: str) -> list[object]:
    return [token.value for token in tokens(source)[:-1]]


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("1", 1),
        ("0x1F", 31),
        ("007", 7),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("'a'", "a"),
        ('"a\'b"', "a'b"),
        (r"'\n\t\\\'\x41\u00e9\U0001F600\101'", "\n\t\\'Aé😀A"),
        ("r'\\n'", "\\n"),
        ("'''a\nb'c'''", "a\nb'c"),
        ('"""a\r\nb"""', "a\nb"),
        ("b'a\\xff'", b"a\xff"),
        ("b'é'", "é".encode()),
        ("br'\\n'", b"\\n"),
        ("`a-b/c.d e_1`", "a-b/c.d e_1"),
        ("true", True),
        ("null", None),
        ("trueish", "trueish"),
    ],
)
def test_one_token(source: str, value: object):
    assert values(source) == [value]
    assert type(values(source)[0]) is type(value)


def test_an_unsigned_number_has_a_type_of_its_own():
    assert [type(value) for value in values("7u 0x7U")] == [UInt, UInt]


def test_spaces_and_comments_are_nothing():
    assert values("a // b\n\t+ c//d") == ["a", "+", "c"]


def test_places():
    assert [(token.offset, token.end) for token in tokens("a  &&'b'")] == [(0, 1), (3, 5), (5, 8), (8, 8)]


@pytest.mark.parametrize("prefix", ["rb", "Rb", "rB"])
def test_a_raw_text_of_bytes_begins_with_b(prefix: str):
    assert values(f'{prefix}"a"') == [prefix, "a"]
    assert values(f'{prefix[::-1]}"a"') == [b"a"]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("#", "'#' starts no token"),
        ("'abc", '"\'" starts no token'),
        ("'a\nb'", '"\'" starts no token'),
        ("a & b", "'&' starts no token"),
        (r"'\q'", "unable to unescape"),
        (r"'\uD800'", "no character"),
        (r"'\U00110000'", "no character"),
        ("18446744073709551616u", "invalid uint literal"),
        ("1e400", "invalid double literal"),
        ("b'\\u00ff'", "stands for a character, and bytes have none"),
        ("b'\\U0001F600'", "stands for a character, and bytes have none"),
        ("`a$`", "'`' starts no token"),
    ],
)
def test_what_is_no_token(source: str, problem: str):
    with pytest.raises(CelCompileError, match="line 1") as caught:
        tokens(source)
    assert problem in str(caught.value)
