"""cel-python beside this package: drawn expressions, and what both say about them.

cel-python follows the CEL specification, not cel-go with Kubernetes' libraries, and has errors of its own. Expressions
are drawn from what both have in common; `KNOWN` lists the contradictions that remain, each with its reason.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import celpy
from celpy.celparser import CELParseError
from celpy.evaluation import CELEvalError
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from dra_sdk import cel
from dra_sdk.cel.errors import CelCompileError
from dra_sdk.cel.parser import parse

DRIVER: Final = "gpu.example.com"
ATTRIBUTES: Final[dict[str, Any]] = {"index": 3, "model": "A100 PCIe", "healthy": True, "ports": [3, 1, 2]}
VIEW: Final = cel.DeviceView(DRIVER, ATTRIBUTES)
NO_ANSWER: Final = "no answer"


@contextmanager
def celpy_environment() -> Iterator[celpy.Environment]:
    """Give an environment of cel-python; making one raises Python's recursion limit for the whole process.

    Its log is off, because it logs each error of an evaluation with arguments that have no text.
    """
    before, log, handler = sys.getrecursionlimit(), logging.getLogger("celpy"), logging.NullHandler()
    log.addHandler(handler)
    log.propagate = False
    try:
        yield celpy.Environment()
    finally:
        log.propagate = True
        log.removeHandler(handler)
        sys.setrecursionlimit(before)


def our_answer(expression: str) -> bool | str | None:
    """Return what this package says about the device; None if types do not fit, which cel-python does not check."""
    try:
        return cel.compile(expression).matches(VIEW)
    except CelCompileError:
        return None
    except cel.CelRuntimeError:
        return NO_ANSWER


def their_answer(environment: celpy.Environment, expression: str) -> bool | str:
    """Return what cel-python says about the device."""
    device = celpy.json_to_cel({"driver": DRIVER, "attributes": {DRIVER: ATTRIBUTES}})
    try:
        verdict = environment.program(environment.compile(expression)).evaluate({"device": device})
    except (CELEvalError, IndexError):  # an error in `exists` within an error ends in an IndexError
        return NO_ANSWER
    return bool(verdict) if isinstance(verdict, celpy.celtypes.BoolType | bool) else NO_ANSWER


def we_parse(expression: str) -> bool:
    """Return whether this package takes a text for an expression."""
    try:
        parse(expression)
    except CelCompileError:
        return False
    return True


def they_parse(environment: celpy.Environment, expression: str) -> bool:
    """Return whether cel-python takes a text for an expression."""
    try:
        environment.compile(expression)
    except CELParseError:
        return False
    return True


#: What only one of the two takes for an expression, each with the reason. A contradiction must be one of these.
ONLY_WE_PARSE: Final = (
    (r"\.\?|\[\s*\?|\{\s*\?|,\s*\?", "cel-python has no optional syntax"),
    (r",\s*[\]}]", "cel-python takes no trailing comma, cel-go does"),
    (r"\d\s*\.\s*[A-Za-z_]", "cel-python takes `1.` for a number, cel-go for a number and a dot"),
)
#: The same by what this package says is wrong.
ONLY_THEY_PARSE: Final = (
    (r"invalid argument to has\(\) macro", "cel-python looks at the argument of has() only when it runs"),
    (
        r"must be (?:a )?simple (?:name|identifiers?)",
        "the same for variables",
    ),
    (r"duplicate variable name|overwrites accumulator variable", "the same for the names of variables"),
    (r"reserved identifier|found 'in'|found None|found True|found False", "cel-python takes reserved words as names"),
    (r"found 'in\w+'", "cel-python takes `ina` for `in a`"),
    (r"no message type|cannot make messages", "cel-python parses messages, which a selector does not have"),
    (r"invalid (?:int|uint|double) literal", "cel-python has no limits of numbers in its parser"),
    (r"unable to unescape string|stands for a character", "cel-python takes every escape"),
    (r"""["'] starts no token""", "cel-python takes an escaped quote for the end of a string"),
    (r"expected a name", "cel-python takes `1.` for a number"),
    (r"found '[-!]', expected an expression", "cel-python mixes prefix operators"),
    (r"nested deeper than|more than \d+ levels", "cel-python has no limit of nesting"),
)


#: Where their answers differ: a pattern of the expression, our answer, their answer, and the reason. The drawn
#: expressions leave out what is known to differ in general: string(1.0) and string(true) are written as Python writes
#: them, numbers do not compare across their types, and a negative index counts from the end.
KNOWN_ANSWERS: Final = (
    (r"\.contains\(", None, NO_ANSWER, "a sum of strings has no method `contains` in cel-python"),
    (r"\{'a':", NO_ANSWER, None, "cel-python keeps an error as the value of a map entry"),
    (r" in \[\]", None, NO_ANSWER, "Kubernetes knows that nothing is in an empty literal, whatever is looked for"),
    (
        r"\.(map|filter|exists_one)\(.*(&&|\|\|)|(&&|\|\|).*\.(map|filter|exists_one)\(",
        None,
        NO_ANSWER,
        "in cel-python, && and || do not absorb an error in a comprehension",
    ),
)


def explained_answer(expression: str, ours: bool | str, theirs: bool | str) -> str:
    """Return why the answers of the two differ, empty if no reason is known."""
    for pattern, our_answer, their_answer, reason in KNOWN_ANSWERS:
        if re.search(pattern, expression) and our_answer in {None, ours} and their_answer in {None, theirs}:
            return reason
    return ""


def explained(expression: str) -> str:
    """Return why only one of the two parses a text, empty if no reason is known."""
    try:
        parse(expression)
    except CelCompileError as error:
        return next((reason for pattern, reason in ONLY_THEY_PARSE if re.search(pattern, error.problem)), "")
    return next((reason for pattern, reason in ONLY_WE_PARSE if re.search(pattern, expression)), "")


_TEXTS: Final = ("''", "'a'", "'A100'", "'é'", f'device.attributes["{DRIVER}"].model', "device.driver")
_INTS: Final = ("0", "1", "-7", "3", "9223372036854775807", f'device.attributes["{DRIVER}"].index')
_BOOLS: Final = ("true", "false", f'device.attributes["{DRIVER}"].healthy')
_LISTS: Final = ("[]", "[1, 2, 3]", "[3, 1]", f'device.attributes["{DRIVER}"].ports')
_SHAPES: Final[dict[str, tuple[str, ...]]] = {
    "int": (
        "({int} + {int})", "({int} - {int})", "({int} * {int})", "({int} / {int})", "({int} % {int})", "-({int})",
        "size({text})", "size({list})", "({bool} ? {int} : {int})", "{list}[0]", "{list}[7]", "int(string({int}))",
    ),
    "text": ("({text} + {text})", "string({int})", "({bool} ? {text} : {text})"),
    "list": (
        "{list}.map(x, x + {int})", "{list}.filter(x, x > {int})", "({list} + {list})", "[{int}, {int}]",
        "{list}.map(x, {int})",
    ),
    "bool": (
        "{int} == {int}", "{int} != {int}", "{int} < {int}", "{int} >= {int}", "{text} == {text}", "{text} != {text}",
        "{text} < {text}", "{text}.startsWith({text})", "{text}.endsWith({text})", "{text}.contains({text})",
        "({bool} && {bool})", "({bool} || {bool})", "!({bool})", "({bool} ? {bool} : {bool})", "{int} in {list}",
        "{list} == {list}", "{list}.all(x, x > {int})", "{list}.exists(x, x == {int})",
        "{list}.exists_one(x, x < {int})", "'model' in device.attributes[\"" + DRIVER + "\"]",
        "has(device.attributes[\"" + DRIVER + "\"].index)", "{{'a': {int}}}.a == {int}", "'a' in {{'a': {int}}}",
        "{text}.matches('^[A-Z]')", "bool('true')",
    ),
}  # fmt: skip
_LEAVES: Final = {"int": _INTS, "text": _TEXTS, "bool": _BOOLS, "list": _LISTS}
_HOLE: Final = re.compile(r"\{(int|text|bool|list)\}")


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """Draw a well-typed expression that is true or false, of functions that both packages have."""

    def drawn(kind: str, depth: int) -> str:
        if not depth or (kind != "bool" and draw(st.booleans())):
            return draw(st.sampled_from(_LEAVES[kind]))
        shape = draw(st.sampled_from(_SHAPES[kind]))
        return _HOLE.sub(lambda hole: drawn(hole[1], depth - 1), shape).replace("{{", "{").replace("}}", "}")

    return drawn("bool", draw(st.integers(1, 4)))


_SPLINTERS: Final = (
    *"()[]{}.,'\"?:!&|=<>+-*/%01axé \n\\#@_", "in", "&&", "||", "true", "null", "0x", "1.", "e5", "if", "r'", "b'", "u",
    ".?", "[?", "//", "has(", "1e400", "9223372036854775808",
)  # fmt: skip


def damaged() -> SearchStrategy[str]:
    """Draw an expression in which up to three characters are replaced or something was inserted."""

    def applied(expression: str, changes: list[tuple[int, str, bool]]) -> str:
        for place, splinter, replaces in changes:
            at = place % (len(expression) + 1)
            expression = expression[:at] + splinter + expression[at + replaces :]
        return expression

    change = st.tuples(st.integers(0, 10_000), st.sampled_from(_SPLINTERS), st.booleans())
    return st.builds(applied, expressions(), st.lists(change, max_size=3))


def compare_answers(environment: celpy.Environment, expression: str) -> None:
    """Assert that both answer alike or the reason is known; leaves out expressions whose types do not fit."""
    ours = our_answer(expression)
    assume(ours is not None)
    assert ours is not None
    theirs = their_answer(environment, expression)
    assert ours == theirs or explained_answer(expression, ours, theirs), f"{expression}: {ours} here, {theirs} there"


def compare_verdicts(environment: celpy.Environment, written: str) -> None:
    """Assert that both take a text for an expression, or both do not, or the reason is known."""
    assert we_parse(written) == they_parse(environment, written) or explained(written), written
