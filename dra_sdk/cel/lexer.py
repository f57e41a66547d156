"""Splitting the text of an expression into tokens.

Source: the CEL language definition (cel-spec), section "Syntax": literals, identifiers, reserved words, comments;
cel-go, parser/gen/CEL.g4, for what the definition leaves open.
"""

from __future__ import annotations

import re
from math import isinf
from typing import Any, Final, NamedTuple

from dra_sdk.cel.errors import CelCompileError
from dra_sdk.cel.values import INT64, UINT64, UInt, go_text

RESERVED: Final = frozenset(
    {"as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop"}
    | {"package", "namespace", "return", "var", "void", "while"}
)
_MAX_DIGITS: Final = 24
_KEYWORDS: Final = {"true": True, "false": False, "null": None}
_STRING: Final = r"""[bB]?(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}"""
_RAW: Final = r"""|"(?:\\.|[^\\"\n\r])*"|'(?:\\.|[^\\'\n\r])*')"""
_TOKEN: Final = re.compile(
    r"(?P<space>[ \t\n\f\r]+|//[^\n]*)"
    r"|(?P<raw>[bB]?[rR](?:\"{3}[\s\S]*?\"{3}|'{3}[\s\S]*?'{3}|\"[^\"\n\r]*\"|'[^'\n\r]*'))"
    rf"|(?P<string>{_STRING}{_RAW})"
    r"|(?P<float>(?:\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?))"
    r"|(?P<uint>(?:0x[0-9a-fA-F]+|\d+)[uU])"
    r"|(?P<int>0x[0-9a-fA-F]+|\d+)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<quoted>`[A-Za-z0-9_.\-/ ]+`)"
    r"|(?P<operator>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])",
    re.ASCII | re.DOTALL,
)
_ESCAPE: Final = re.compile(
    r"\\(?:(?P<plain>[abfnrtv\\?\"'`])|[xX](?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})"
    r"|(?P<octal>[0-3][0-7]{2})|(?P<bad>[\s\S]?))"
)
_PLAIN: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class Token(NamedTuple):
    """One token.

    kind: the operator itself, `name`, `quoted` (a name in backticks), `literal`, `integer` or `end`.
    value: the name or operator as text, or the value of a literal.
    offset: where the token begins.
    end: the offset behind its last character.
    """

    kind: str
    value: Any
    offset: int
    end: int

    @property
    def shown(self) -> str:
        """The token as an error message names it."""
        return "the end of the expression" if self.kind == "end" else repr(self.value)


def tokens(source: str) -> list[Token]:
    """Return all tokens, the last of kind `end`; CelCompileError for text that is no token."""
    read: list[Token] = []
    source = go_text(source)
    offset, match_token = 0, _TOKEN.match
    while offset < len(source):
        match = match_token(source, offset)
        if match is None:
            raise CelCompileError.at(source, f"Syntax error: {source[offset]!r} starts no token", offset)
        group, end = match.lastgroup, match.end()
        if group == "operator":
            text = match.group()
            read.append(Token(text, text, offset, end))
        elif group != "space":
            read.append(_token(source, str(group), match.group(), offset))
        offset = end
    read.append(Token("end", "", len(source), len(source)))
    return read


def _token(source: str, group: str, text: str, offset: int) -> Token:
    end = offset + len(text)
    if group == "name":
        return Token("literal", _KEYWORDS[text], offset, end) if text in _KEYWORDS else Token(group, text, offset, end)
    if group == "quoted":
        return Token(group, text[1:-1], offset, end)
    if group in {"raw", "string"}:
        return Token("literal", _text(source, text, offset, raw=group == "raw"), offset, end)
    if group == "float":
        if isinf(number := float(text)):
            raise CelCompileError.at(source, "invalid double literal: more than a double can hold", offset)
        return Token("literal", number, offset, end)
    digits = text.rstrip("uU")
    # A number with more digits than any 64 bits have is too large; Python refuses to read a very long one.
    whole = int(digits, 16) if digits[:2] == "0x" else int(digits.lstrip("0")[:_MAX_DIGITS] or "0")
    if group == "uint":
        if whole > UINT64:
            raise CelCompileError.at(source, "invalid uint literal: more than 64 bits", offset)
        return Token("literal", UInt(whole), offset, end)
    # The parser knows whether a minus precedes, with which 2**63 is a legal number.
    return Token("integer", whole, offset, end)


def signed(source: str, token: Token, *, negative: bool) -> int:
    """Return the value of an integer token with its sign; CelCompileError if it does not fit in 64 bits."""
    number = -int(token.value) if negative else int(token.value)
    if not -INT64 - 1 <= number <= INT64:
        raise CelCompileError.at(source, "invalid int literal: more than 64 bits", token.offset)
    return number


def _text(source: str, text: str, offset: int, *, raw: bool) -> str | bytes:
    prefix = text[: min(text.index(quote) for quote in "\"'" if quote in text)].lower()
    body = text[len(prefix) :]
    width = 3 if body[:3] in {'"""', "'''"} and len(body) >= 6 else 1  # noqa: PLR2004 (two triple quotes)
    body = body[width:-width].replace("\r\n", "\n")
    is_bytes = "b" in prefix
    if raw or "\\" not in body:
        return body.encode() if is_bytes else body
    unescaped = b"".join(_pieces(source, body, offset, is_bytes=is_bytes))
    return unescaped if is_bytes else unescaped.decode()


def _pieces(source: str, body: str, offset: int, *, is_bytes: bool) -> list[bytes]:
    pieces, end = [], 0
    for match in _ESCAPE.finditer(body):
        pieces.append(body[end : match.start()].encode())
        end = match.end()
        problem = f"Syntax error: unable to unescape string: {match.group()!r}"
        if match["bad"] is not None:
            raise CelCompileError.at(source, problem, offset)
        if match["plain"]:
            pieces.append(_PLAIN.get(match["plain"], match["plain"]).encode())
            continue
        if is_bytes and (match["u"] or match["U"]):
            raise CelCompileError.at(source, f"{problem} stands for a character, and bytes have none", offset)
        code = int(match["octal"], 8) if match["octal"] else int(match["x"] or match["u"] or match["U"], 16)
        if is_bytes:
            pieces.append(bytes([code]))
        elif code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:  # noqa: PLR2004 (the limits of Unicode)
            raise CelCompileError.at(source, f"{problem} is no character", offset)
        else:
            pieces.append(chr(code).encode())
    return [*pieces, body[end:].encode()]
