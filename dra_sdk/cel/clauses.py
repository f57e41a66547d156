"""The conjuncts of an expression, one by one: which was false for a device, and which values it saw.

A selector is a conjunction more often than not, and "false" alone tells nobody which part to change. Each clause is an
expression of its own with everything else blanked out, so that its offsets, and with them lines and columns, are those
of the whole. Clauses are found through brackets and `cel.bind`; where the top is `||` or `?:` there is one clause.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from dra_sdk.cel.checker import Checked, check
from dra_sdk.cel.device import DeviceView
from dra_sdk.cel.environment import Features, environment
from dra_sdk.cel.errors import CelCompileError, CelRuntimeError
from dra_sdk.cel.expression import MAX_COST
from dra_sdk.cel.lexer import Token, tokens
from dra_sdk.cel.parser import parse
from dra_sdk.cel.readings import Probe, Reading, culprit, probes
from dra_sdk.cel.selector import compile  # noqa: A004 (the word for it)

_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_EVERYTHING = Features()


@dataclass(frozen=True, slots=True)
class Finding:
    """What one clause says of one device: `holds` is None where it has no answer, and `problem` says why.

    `line` and `column` (from 1) are those of the clause, or of what in it has no answer.
    """

    holds: bool | None
    line: int
    column: int
    readings: tuple[Reading, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Clause:
    """One conjunct: `text` on one line, `expression` that runs alone, the conjunct in it from `offset` to `end`."""

    text: str
    offset: int
    end: int
    expression: str
    features: Features

    @property
    def line(self) -> int:
        """The line it begins on, from 1."""
        return _place(self.expression, self.offset)[0]

    @property
    def column(self) -> int:
        """The column it begins at, from 1."""
        return _place(self.expression, self.offset)[1]

    def holds(self, device: DeviceView, limit: int = MAX_COST) -> bool | None:
        """Whether it holds for a device; None where it has no answer, or one that costs more than `limit`."""
        try:
            return compile(self.expression, self.features).evaluate(device, limit).match
        except CelRuntimeError:
            return None

    def find(self, device: DeviceView) -> Finding:
        """Whether it holds, and the values it saw."""
        problem, offset, holds = "", self.offset, None
        try:
            holds = compile(self.expression, self.features).matches(device)
        except CelRuntimeError as error:
            problem, offset = error.problem, culprit(self.checked(), device, self.offset)
        return Finding(holds, *_place(self.expression, offset), self.readings(device), problem)

    def readings(self, device: DeviceView) -> tuple[Reading, ...]:
        """The values it sees."""
        return tuple(each.read(device) for each in _probes(self.expression, self.features))

    def checked(self) -> Checked:
        """Its syntax tree with types; offsets are those of the whole expression."""
        return _checked(self.expression, self.features)


@lru_cache(maxsize=1024)
def clauses(expression: str, features: Features = _EVERYTHING) -> tuple[Clause, ...]:
    """The conjuncts in source order, at least one; CelCompileError if the expression is wrong."""
    compile(expression, features)
    whole = tokens(expression)[:-1]
    found = tuple(_clause(expression, part, kept, features) for part, kept in _split(expression, whole, []))
    try:
        for each in found:
            compile(each.expression, features)
    except CelCompileError:
        # A conjunct whose own type is not known to be bool compiles only beside others.
        return (_clause(expression, whole, [], features),)
    return found


@lru_cache(maxsize=1024)
def _checked(expression: str, features: Features) -> Checked:
    return check(expression, parse(expression), environment(features))


@lru_cache(maxsize=1024)
def _probes(expression: str, features: Features) -> tuple[Probe, ...]:
    return probes(_checked(expression, features))


Span = tuple[int, int]


def _clause(source: str, part: Sequence[Token], kept: Sequence[Span], features: Features) -> Clause:
    start, end = part[0].offset, _end(source, part)
    blank = [each if each.isspace() else " " for each in source]
    for first, last in (*kept, (start, end)):
        blank[first:last] = source[first:last]
    return Clause(" ".join(source[start:end].split()), start, end, "".join(blank), features)


def _split(source: str, part: Sequence[Token], kept: list[Span]) -> Iterator[tuple[Sequence[Token], list[Span]]]:
    """The conjuncts of a run of tokens, each with what of the source around it must stay."""
    inner = _unwrapped(part)
    if body := _bind_body(inner):
        last = inner[-1].offset
        yield from _split(source, body, [*kept, (inner[0].offset, body[0].offset), (last, last + 1)])
        return
    pieces = _pieces(inner)
    if len(pieces) == 1:
        yield (inner if len(kept) else part), kept
        return
    for each in pieces:
        yield from _split(source, each, kept)


def _unwrapped(part: Sequence[Token]) -> Sequence[Token]:
    """Without brackets around all of it."""
    while part and part[0].kind == "(" and _closing(part, 0) == len(part) - 1:
        part = part[1:-1]
    return part


def _bind_body(part: Sequence[Token]) -> Sequence[Token] | None:
    """The third argument of a `cel.bind` that is all there is."""
    words = [each.value for each in part[:4]]
    if words != ["cel", ".", "bind", "("] or part[0].kind != "name" or _closing(part, 3) != len(part) - 1:
        return None
    commas = [index for index, token in _top(part[4:-1]) if token.kind == ","]
    return part[4 + commas[1] + 1 : -1]


def _pieces(part: Sequence[Token]) -> list[Sequence[Token]]:
    """Split at `&&`, unless something that binds less tightly stands beside it."""
    cuts = []
    for index, token in _top(part):
        if token.kind == "||" or (token.kind == "?" and part[index - 1].kind != "."):
            return [part]
        if token.kind == "&&":
            cuts.append(index)
    starts, ends = [0, *(each + 1 for each in cuts)], [*cuts, len(part)]
    return [part[start:end] for start, end in zip(starts, ends, strict=True)]


def _top(part: Sequence[Token]) -> Iterator[tuple[int, Token]]:
    """The tokens outside of all brackets, with their index."""
    depth = 0
    for index, token in enumerate(part):
        depth -= token.kind in _CLOSE
        if not depth:
            yield index, token
        depth += token.kind in _OPEN


def _closing(part: Sequence[Token], opening: int) -> int:
    """The index of the bracket that closes the one at `opening`."""
    return opening + [index for index, _ in _top(part[opening:])][1]


def _end(source: str, part: Sequence[Token]) -> int:
    """Where the last token ends: a token knows its beginning only, and spaces and comments may follow it."""
    last = part[-1]
    following = [each.offset for each in tokens(source) if each.offset > last.offset]
    text = source[last.offset : following[0] if following else len(source)]
    cuts = [index for index in range(len(text)) if text.startswith("//", index)]
    for cut in (*cuts, len(text)):
        try:
            alone = len(tokens(text[:cut])) == 2  # noqa: PLR2004 (itself and the end)
        except CelCompileError:
            continue  # a // within a string
        if alone:
            return last.offset + len(text[:cut].rstrip())
    return last.offset + len(text)


def _place(expression: str, offset: int) -> tuple[int, int]:
    before = expression[:offset]
    return before.count("\n") + 1, offset - before.rfind("\n")
