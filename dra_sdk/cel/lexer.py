"""The tokens of CEL, with their place in the source.

Source: the CEL language definition (cel-spec), section "Syntax": literals, identifiers, reserved words, comments.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from dra_sdk.cel.errors import CelCompileError
from dra_sdk.cel.values import INT64, UINT64, UInt

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
    r"|(?P<raw>[bB]?[rR][bB]?(?:\"{3}[\s\S]*?\"{3}|'{3}[\s\S]*?'{3}|\"[^\"\n\r]*\"|'[^'\n\r]*'))"
    rf"|(?P<string>{_STRING}{_RAW})"
    r"|(?P<float>(?:\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?))"
    r"|(?P<uint>(?:0x[0-9a-fA-F]+|\d+)[uU])"
    r"|(?P<int>0x[0-9a-fA-F]+|\d+)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<operator>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])",
    re.ASCII | re.DOTALL,
)
_ESCAPE: Final = re.compile(
    r"\\(?:(?P<plain>[abfnrtv\\?\"'`])|[xX](?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})"
    r"|(?P<octal>[0-3][0-7]{2})|(?P<bad>[\s\S]?))"
)
_PLAIN: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class Token(NamedTuple):
    """One token; `kind` is an operator's own text, `name`, `literal` or `end`."""

    kind: str
    value: Any
    offset: int

    @property
    def shown(self) -> str:
        """How an error names it."""
        return "the end of the expression" if self.kind == "end" else repr(self.value)


def tokens(source: str) -> list[Token]:
    """All tokens, the last of kind `end`; CelCompileError for what is none."""
    found, offset = [], 0
    while offset < len(source):
        match = _TOKEN.match(source, offset)
        if match is None:
            raise CelCompileError.at(source, f"Syntax error: {source[offset]!r} starts no token", offset)
        if match.lastgroup != "space":
            found.append(_token(source, str(match.lastgroup), match.group(), offset))
        offset = match.end()
    return [*found, Token("end", "", len(source))]


def _token(source: str, group: str, text: str, offset: int) -> Token:
    if group == "operator":
        return Token(text, text, offset)
    if group == "name":
        return Token("literal", _KEYWORDS[text], offset) if text in _KEYWORDS else Token("name", text, offset)
    if group in {"raw", "string"}:
        return Token("literal", _text(source, text, offset, raw=group == "raw"), offset)
    if group == "float":
        return Token("literal", float(text), offset)
    digits = text.rstrip("uU")
    # What has more digits than any 64 bits is only too large; Python refuses to read it at all.
    number = int(digits, 16) if digits[:2] == "0x" else int(digits.lstrip("0")[:_MAX_DIGITS] or "0")
    if group == "uint":
        if number > UINT64:
            raise CelCompileError.at(source, "invalid uint literal: more than 64 bits", offset)
        return Token("literal", UInt(number), offset)
    # The parser decides whether a minus before it makes 2**63 a legal number.
    return Token("integer", number, offset)


def signed(source: str, token: Token, *, negative: bool) -> int:
    """The value of an integer token with its sign; CelCompileError if it has no 64 bits."""
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
    if raw:
        return body.encode() if is_bytes else body
    if is_bytes:
        return b"".join(_pieces(source, body, offset, is_bytes=True))
    return b"".join(_pieces(source, body, offset, is_bytes=False)).decode()


def _pieces(source: str, body: str, offset: int, *, is_bytes: bool) -> list[bytes]:
    pieces, end = [], 0
    for match in _ESCAPE.finditer(body):
        pieces.append(body[end : match.start()].encode())
        end = match.end()
        problem = "unable to unescape string"
        if match["bad"] is not None:
            raise CelCompileError.at(source, f"Syntax error: {problem}: {match.group()!r}", offset)
        if match["plain"]:
            pieces.append(_PLAIN.get(match["plain"], match["plain"]).encode())
            continue
        code = int(match["octal"], 8) if match["octal"] else int(match["x"] or match["u"] or match["U"], 16)
        if is_bytes and not (match["u"] or match["U"]):
            pieces.append(bytes([code]))
        elif code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:  # noqa: PLR2004 (Unicode's own limits)
            raise CelCompileError.at(source, f"Syntax error: {problem}: {match.group()!r} is no character", offset)
        else:
            pieces.append(chr(code).encode())
    return [*pieces, body[end:].encode()]
