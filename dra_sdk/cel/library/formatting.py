"""`format` of strings, as cel-go's string library has it before version 4.

Source: cel-go, ext/formatting.go. Numbers are written as golang.org/x/text writes them in American English, and `%.3e`
takes 3 for the width, not for the precision, because cel-go does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite, isnan
from typing import Any, Final, NamedTuple

from dra_sdk.cel.comparison import Count
from dra_sdk.cel.library.overloads import STRING as PER_CHARACTER
from dra_sdk.cel.library.overloads import CallEstimate, CallSite, Cost, Overload, method, walk
from dra_sdk.cel.library.standard import to_string
from dra_sdk.cel.library.strings import ESCAPES
from dra_sdk.cel.library.times import text_of_duration, text_of_timestamp
from dra_sdk.cel.syntax import Expr, ListNode, MapNode
from dra_sdk.cel.types import DYN, STRING, Type, TypeKind, list_of
from dra_sdk.cel.values import Duration, EvaluationError, Timestamp, UInt, check_size, is_list, type_of

_DEFAULT_PRECISION: Final = 6
_MAX_DIGITS: Final = 18
_PRECISION: Final = re.compile(r"(?:\.(?P<digits>[0-9]*))?", re.ASCII)
_INFINITE: Final = ("NaN", "Infinity", "-Infinity")
_TIMES: Final = "\N{MULTIPLICATION SIGN}"
_SUPERSCRIPTS: Final = str.maketrans("0123456789-+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺")
_LAST_SHORT: Final = 0xFFFF
_DELETE: Final = 0x7F
_ANY_TEXT: Final = frozenset(
    {"int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type"}
    | {"google.protobuf.Timestamp", "google.protobuf.Duration"}
)
_TEXT_WANTED: Final = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
_NUMBER: Final = frozenset({"double", "string"})
#: The types of operands that each clause takes, and how errors name them.
_CLAUSES: Final[Mapping[str, tuple[frozenset[str], str]]] = {
    "s": (_ANY_TEXT, f"string clause can only be used on {_TEXT_WANTED}"),
    "d": (frozenset({"int", "uint"}), "decimal clause can only be used on integers"),
    "f": (_NUMBER, "fixed-point clause can only be used on doubles"),
    "e": (_NUMBER, "scientific clause can only be used on doubles"),
    "b": (frozenset({"int", "uint", "bool"}), "only integers and bools can be formatted as binary"),
    "x": (frozenset({"int", "uint", "string", "bytes"}),
          "only integers, byte buffers, and strings can be formatted as hex"),
    "o": (frozenset({"int", "uint"}), "octal clause can only be used on integers"),
}  # fmt: skip


class Clause(NamedTuple):
    """One clause of a template, such as `%.2f`.

    kind: the letter, such as `f`; `X` for hexadecimal in upper case.
    precision: the number after the dot; None if there is none.
    """

    kind: str
    precision: int | None


def clauses(template: str) -> Iterator[str | Clause]:
    """Yield the literal texts and the clauses of a template; EvaluationError where a clause is wrong."""
    end = 0
    while (start := template.find("%", end)) >= 0:
        yield template[end:start]
        if start + 1 == len(template):
            raise EvaluationError("unexpected end of string")
        if template[start + 1] == "%":
            yield "%"
            end = start + 2
            continue
        match = _PRECISION.match(template, start + 1)
        assert match is not None
        kind = template[match.end() : match.end() + 1]
        yield _clause(match["digits"], kind)
        end = match.end() + 1
    yield template[end:]


def _clause(digits: str | None, kind: str) -> Clause:
    prefix = "could not parse formatting clause: "
    if not kind:
        raise EvaluationError(f"{prefix}error while parsing precision: could not find end of precision specifier")
    if digits is not None and (not digits or len(digits.lstrip("0")) > _MAX_DIGITS):
        raise EvaluationError(f"{prefix}error while parsing precision: {digits!r} is no integer of 64 bits")
    if kind not in _CLAUSES and kind != "X":
        raise EvaluationError(f'{prefix}unrecognized formatting clause "{kind}"')
    return Clause(kind, None if digits is None else int(digits))


def check_format(template: str, operands: Sequence[Expr], types: Mapping[Expr, Type]) -> tuple[Expr | None, str] | None:
    """Check a literal template against the types of its operands.

    Returns the operand that is wrong, None if it is none of them, and the problem; None if nothing is wrong.
    """
    used = 0
    try:
        for part in clauses(template):
            if isinstance(part, str):
                continue
            if used == len(operands):
                return None, f"index {used} out of range"
            if wrong := _wrong_operand(part, operands[used], types):
                wanted = _CLAUSES[part.kind.lower()][1]
                return wrong, f"error during formatting: {wanted}, was given {types[wrong].name}"
            used += 1
    except EvaluationError as error:
        return None, str(error)
    if len(operands) > used:
        return None, f"too many arguments supplied to string.format (expected {used}, got {len(operands)})"
    return None


def _wrong_operand(clause: Clause, operand: Expr, types: Mapping[Expr, Type]) -> Expr | None:
    pending = [operand]
    while pending:
        node = pending.pop()
        kind = types[node]
        if kind.kind is not TypeKind.DYN and kind.name not in _CLAUSES[clause.kind.lower()][0]:
            return node
        if clause.kind == "s" and isinstance(node, ListNode | MapNode):
            pending += reversed(node.children())
    return None


def _format(count: Count, template: str, operands: Sequence[Any]) -> str:
    pieces: list[str] = []
    used, length = 0, 0
    for part in clauses(template):
        if isinstance(part, str):
            pieces.append(part)
            continue
        if used >= len(operands):
            raise EvaluationError(f"index {used} out of range")
        pieces.append(_formatted(count, part, operands[used]))
        length += len(pieces[-1])
        check_size(length)
        used += 1
    return "".join(pieces)


def _formatted(count: Count, clause: Clause, value: Any) -> str:
    kinds, wants = _CLAUSES[clause.kind.lower()]
    kind = type_of(value).name
    if kind not in kinds or (kinds is _NUMBER and kind == "string" and value not in _INFINITE):
        raise EvaluationError(f"error during formatting: {wants}, was given {kind}")
    match clause.kind:
        case "s":
            return "".join(_text(count, value))
        case "d":
            return str(int(value))
        case "f":
            return _fixed(float(value), clause.precision)
        case "e":
            return _scientific(float(value), clause.precision)
        case "b" | "o":
            return format(int(value), clause.kind)
    raw = value.encode() if isinstance(value, str) else value
    text = raw.hex() if isinstance(raw, bytes) else format(int(raw), "x")
    return text.upper() if clause.kind == "X" else text


def _fixed(value: float, precision: int | None) -> str:
    if not isfinite(value):
        return _not_finite(value)
    digits = _DEFAULT_PRECISION if precision is None else precision
    check_size(digits)
    return f"{value:,.{digits}f}" if value else f"{0.0:.{digits}f}"


def _scientific(value: float, width: int | None) -> str:
    width = _DEFAULT_PRECISION if width is None else width
    check_size(width)
    if not isfinite(value):
        return _not_finite(value).rjust(width)
    mantissa, exponent = f"{value or 0.0:.{_DEFAULT_PRECISION}e}".split("e")
    return f"{mantissa}{_TIMES}10{exponent.lstrip('+').translate(_SUPERSCRIPTS)}".rjust(width)


def _not_finite(value: float) -> str:
    return "NaN" if isnan(value) else "∞" if value > 0 else "-∞"


def _text(count: Count, value: Any) -> Iterator[str]:
    """Yield the pieces of a value as `%s` writes it: as it is at the top, as a literal of CEL inside a list or map."""
    if not isinstance(value, Mapping) and not is_list(value):
        yield _plain(value)
        return
    length = 0
    pending: list[Any] = [_Inside(value)]
    while pending:
        piece = pending.pop()
        if isinstance(piece, _Inside):
            if not isinstance(piece.value, Mapping) and not is_list(piece.value):
                piece = _literal(piece.value)
            else:
                inside = list(_inside(piece.value))
                count(1 + len(inside))
                pending += reversed(inside)
                continue
        length += len(piece)
        check_size(length)
        yield piece


class _Inside(NamedTuple):
    """A value that is still to be written as a literal."""

    value: Any


def _inside(value: Any) -> Iterator[str | _Inside]:
    if not isinstance(value, Mapping):
        yield "["
        for index, item in enumerate(value):
            yield from (", ", _Inside(item)) if index else (_Inside(item),)
        yield "]"
        return
    yield "{"
    for index, (key, item) in enumerate(sorted(((_key(key), item) for key, item in value.items()), key=_first)):
        yield from (", ", key, ":", _Inside(item)) if index else (key, ":", _Inside(item))
    yield "}"


def _first(entry: tuple[str, Any]) -> str:
    return entry[0]


def _key(key: Any) -> str:
    if isinstance(key, str):
        return _quoted(key)
    if isinstance(key, bool | int):
        return to_string(key)
    kind = type_of(key).name
    raise EvaluationError(f"error during formatting: no formatting function for map key of type {kind}")


def _plain(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, Timestamp):
        return text_of_timestamp(value)
    if isinstance(value, Duration):
        return text_of_duration(value)
    return value.name if isinstance(value, Type) else to_string(value)


def _literal(value: Any) -> str:
    kind = type_of(value).name
    if kind not in _ANY_TEXT:
        raise EvaluationError(f"error during formatting: no formatting function for {kind}")
    if isinstance(value, float):
        return f"{value:.{_DEFAULT_PRECISION}f}" if isfinite(value) else f'"{_go_infinity(value)}"'
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bytes):
        return "b" + _quoted(to_string(value))
    if isinstance(value, Timestamp | Duration):
        return f'{"timestamp" if isinstance(value, Timestamp) else "duration"}("{_plain(value)}")'
    return str(int(value)) if isinstance(value, UInt) else _plain(value)


def _go_infinity(value: float) -> str:
    return "NaN" if isnan(value) else "+Inf" if value > 0 else "-Inf"


def _quoted(text: str) -> str:
    """Return a text in quotes as strconv.Quote of Go writes it."""
    return '"' + "".join(char if char.isprintable() and char not in '\\"' else _escaped(char) for char in text) + '"'


def _escaped(character: str) -> str:
    code = ord(character)
    if code in ESCAPES:
        return ESCAPES[code]
    if code < ord(" ") or code == _DELETE:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= _LAST_SHORT else f"\\U{code:08x}"


def _estimate(site: CallSite) -> CallEstimate:
    return CallEstimate(site.size(0).scaled(PER_CHARACTER))


def declared() -> Iterator[Overload]:
    """Declare `format`."""
    yield method("format", (STRING, list_of(DYN)), STRING, _format, Cost(_estimate, walk().actual), counted=True)
