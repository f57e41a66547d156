"""The conjuncts of an expression: which one is false for a device, which fields it sees, and how it could be relaxed.

Most selectors are conjunctions, and "false" alone does not say which part to change. Each conjunct is an expression of
its own in which everything else is blanked out, so its offsets, lines and columns are those of the whole. Conjuncts are
found inside brackets and `cel.bind`; an expression with `||` or `?:` at the top is one conjunct.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from dra_sdk.cel.checker import Checked, check
from dra_sdk.cel.device import DeviceView
from dra_sdk.cel.environment import Features, environment
from dra_sdk.cel.errors import CelCompileError, CelRuntimeError, position
from dra_sdk.cel.expression import MAX_COST, compile  # noqa: A004 (the field's word)
from dra_sdk.cel.fields import FieldAccess, FieldValue, failing_offset, field_accesses, format_value
from dra_sdk.cel.lexer import Token, tokens
from dra_sdk.cel.parser import parse
from dra_sdk.cel.syntax import Bind, CallNode, Expr, ListNode, Literal
from dra_sdk.cel.values import Semver
from dra_sdk.model.quantity import Quantity

_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_ALL_FEATURES: Final = Features()
_MAKERS: Final = frozenset({"quantity", "semver"})
_COMPARISONS: Final = frozenset({"_==_", "_<_", "_<=_", "_>_", "_>=_"})
_IN: Final = "@in"
Span = tuple[int, int]
"""Where a part of the source begins and ends."""


@dataclass(frozen=True, slots=True)
class ConjunctExplanation:
    """What one conjunct says about one device.

    holds: whether it is true; None if it has no answer.
    line: the line of the conjunct, or of the part without an answer, counted from 1.
    column: the column of the same, counted from 1.
    fields: the fields of the device that it accesses.
    problem: why it has no answer, else empty.
    """

    holds: bool | None
    line: int
    column: int
    fields: tuple[FieldValue, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Conjunct:
    """One conjunct of an expression.

    text: the conjunct on one line.
    offset: where it begins in the whole expression.
    end: where it ends in the whole expression.
    expression: an expression of its own, with everything blanked out that the conjunct does not need.
    features: the features that the expression is compiled for.
    """

    text: str
    offset: int
    end: int
    expression: str
    features: Features

    @property
    def line(self) -> int:
        """The line on which it begins, counted from 1."""
        return position(self.expression, self.offset)[0]

    @property
    def column(self) -> int:
        """The column at which it begins, counted from 1."""
        return position(self.expression, self.offset)[1]

    def holds(self, device: DeviceView, limit: int = MAX_COST) -> bool | None:
        """Return whether it is true for a device; None if it has no answer, or costs more than `limit`."""
        try:
            return compile(self.expression, self.features).evaluate(device, limit).match
        except CelRuntimeError:
            return None

    def explain(self, device: DeviceView) -> ConjunctExplanation:
        """Return whether it is true for a device, and the fields that it accesses."""
        problem, offset, holds = "", self.offset, None
        try:
            holds = compile(self.expression, self.features).matches(device)
        except CelRuntimeError as error:
            problem, offset = error.problem, failing_offset(self.checked(), device, self.offset)
        return ConjunctExplanation(holds, *position(self.expression, offset), self.fields(device), problem)

    def fields(self, device: DeviceView) -> tuple[FieldValue, ...]:
        """Return the fields of a device that it accesses."""
        return tuple(access.on(device) for access in _accesses(self.expression, self.features))

    def checked(self) -> Checked:
        """Return its syntax tree with types; the offsets are those of the whole expression."""
        return _checked(self.expression, self.features)


@lru_cache(maxsize=1024)
def conjuncts(expression: str, features: Features = _ALL_FEATURES) -> tuple[Conjunct, ...]:
    """Return the conjuncts in the order of the source, at least one; CelCompileError if the expression is wrong."""
    compile(expression, features)
    whole = tokens(expression)[:-1]
    parts = tuple(_conjunct(expression, part, kept, features) for part, kept in _split(expression, whole, []))
    try:
        for conjunct in parts:
            compile(conjunct.expression, features)
    except CelCompileError:
        # A conjunct whose own type is not known to be bool compiles only beside others.
        return (_conjunct(expression, whole, [], features),)
    return parts


@lru_cache(maxsize=1024)
def _checked(expression: str, features: Features) -> Checked:
    return check(expression, parse(expression, since_1_37=features.since_1_37), environment(features))


@lru_cache(maxsize=1024)
def _accesses(expression: str, features: Features) -> tuple[FieldAccess, ...]:
    return field_accesses(_checked(expression, features))


def _conjunct(source: str, part: Sequence[Token], kept: Sequence[Span], features: Features) -> Conjunct:
    start, end = part[0].offset, part[-1].end
    blank = [character if character.isspace() else " " for character in source]
    for first, last in (*kept, (start, end)):
        blank[first:last] = source[first:last]
    return Conjunct(" ".join(source[start:end].split()), start, end, "".join(blank), features)


def _split(source: str, part: Sequence[Token], kept: list[Span]) -> Iterator[tuple[Sequence[Token], list[Span]]]:
    """Yield the tokens of each conjunct, with the spans of the source around it that it needs."""
    inner = _without_brackets(part)
    if body := _bind_body(inner):
        last = inner[-1].offset
        yield from _split(source, body, [*kept, (inner[0].offset, body[0].offset), (last, last + 1)])
        return
    pieces = _pieces(inner)
    if len(pieces) == 1:
        yield (inner if len(kept) else part), kept
        return
    for piece in pieces:
        yield from _split(source, piece, kept)


def _without_brackets(part: Sequence[Token]) -> Sequence[Token]:
    """Return tokens without the brackets around all of them."""
    while part and part[0].kind == "(" and _closing(part, 0) == len(part) - 1:
        part = part[1:-1]
    return part


def _bind_body(part: Sequence[Token]) -> Sequence[Token] | None:
    """Return the third argument if the tokens are one call of `cel.bind`."""
    words = [token.value for token in part[:4]]
    if words != ["cel", ".", "bind", "("] or part[0].kind != "name" or _closing(part, 3) != len(part) - 1:
        return None
    commas = [index for index, token in _outside_brackets(part[4:-1]) if token.kind == ","]
    return part[4 + commas[1] + 1 : -1]


def _pieces(part: Sequence[Token]) -> list[Sequence[Token]]:
    """Split tokens at `&&`, unless an operator that binds less tightly stands beside it."""
    cuts = []
    for index, token in _outside_brackets(part):
        if token.kind == "||" or (token.kind == "?" and part[index - 1].kind != "."):
            return [part]
        if token.kind == "&&":
            cuts.append(index)
    starts, ends = [0, *(cut + 1 for cut in cuts)], [*cuts, len(part)]
    return [part[start:end] for start, end in zip(starts, ends, strict=True)]


def _outside_brackets(part: Sequence[Token]) -> Iterator[tuple[int, Token]]:
    """Yield the tokens outside of all brackets with their indices; brackets themselves are outside."""
    depth = 0
    for index, token in enumerate(part):
        depth -= token.kind in _CLOSE
        if not depth:
            yield index, token
        depth += token.kind in _OPEN


def _closing(part: Sequence[Token], opening: int) -> int:
    """Return the index of the bracket that closes the one at `opening`."""
    return opening + [index for index, _ in _outside_brackets(part[opening:])][1]


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of an expression that makes it select more. Whether it helps is for the caller to find out.

    expression: the changed expression.
    before: the text that was replaced.
    after: the text that replaced it.
    """

    expression: str
    before: str
    after: str

    @property
    def text(self) -> str:
        """The change, such as `change "80Gi" to "40Gi"`."""
        return f'change "{self.before}" to "{self.after}"'


def without(expression: str, conjunct: Conjunct) -> Edit:
    """Return the expression with `true` in place of a conjunct."""
    return Edit(f"{expression[: conjunct.offset]}true{expression[conjunct.end :]}", conjunct.text, "true")


def compared_with(expression: str, conjunct: Conjunct, value: Any) -> Edit | None:
    """Return the expression with a value in place of the one constant that a conjunct compares something with.

    None if the conjunct has no constant of the kind of the value (string, int, quantity, version), or several.
    """
    span, tree = range(conjunct.offset, conjunct.end), conjunct.checked().tree
    literals = [literal for literal in _constants(tree) if literal.offset in span and _same_kind(literal, value)]
    if len(literals) != 1:
        return None
    offset = literals[0].offset
    end = _end_of_literal(expression, offset)
    before, after = expression[offset:end], _literal(value)
    changed = f"{expression[:offset]}{after}{expression[end:]}"
    try:
        compile(changed, conjunct.features)
    except CelCompileError:
        return None
    return Edit(changed, before.strip("\"'"), after.strip('"')) if changed != expression else None


@dataclass(frozen=True, slots=True)
class _Constant:
    """A literal, and the function such as `quantity` that it is the argument of."""

    literal: Literal
    maker: str

    @property
    def offset(self) -> int:
        return self.literal.offset


def _constants(node: Expr) -> Iterator[_Constant]:
    """Yield the literals that something is compared with, in lists too, and the arguments of quantity and semver."""
    if isinstance(node, CallNode) and node.function in _MAKERS and isinstance(node.args[0], Literal):
        yield _Constant(node.args[0], node.function)
        return
    if isinstance(node, CallNode) and node.function in _COMPARISONS and not any(map(_is_order, node.args)):
        yield from (_Constant(operand, "") for operand in node.args if isinstance(operand, Literal))
    if isinstance(node, CallNode) and node.function == _IN and isinstance(node.args[1], ListNode):
        yield from (_Constant(item, "") for item in node.args[1].items if isinstance(item, Literal))
    for child in [node.result] if isinstance(node, Bind) else node.children():
        yield from _constants(child)


def _is_order(node: Expr) -> bool:
    """Return whether a node is a call of compareTo: the 0 that its result is compared with must stay."""
    return isinstance(node, CallNode) and node.function == "compareTo"


def _same_kind(constant: _Constant, value: Any) -> bool:
    if isinstance(value, Quantity | Semver):
        return constant.maker == ("semver" if isinstance(value, Semver) else "quantity")
    fits = isinstance(value, str | int) and not isinstance(value, bool)
    return fits and type(value) is type(constant.literal.value) and not constant.maker


def _literal(value: Any) -> str:
    return f'"{format_value(value)}"' if isinstance(value, Quantity | Semver) else json.dumps(value)


def _end_of_literal(expression: str, offset: int) -> int:
    """Return where the literal at an offset ends; a negative number is two tokens."""
    negative = expression[offset] == "-"
    return [token.end for token in tokens(expression) if token.offset >= offset][negative]
