"""Changes to an expression that make it select more: without one clause, or with another constant in it.

Nothing here says that a change helps; whoever proposes one tries it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from dra_sdk.cel.clauses import Clause
from dra_sdk.cel.errors import CelCompileError
from dra_sdk.cel.lexer import tokens
from dra_sdk.cel.readings import shown
from dra_sdk.cel.selector import compile  # noqa: A004 (the word for it)
from dra_sdk.cel.syntax import Bind, Call, Literal, Node
from dra_sdk.cel.values import Semver
from dra_sdk.model.quantity import Quantity

_MAKERS: Final = frozenset({"quantity", "semver"})
_COMPARISONS: Final = frozenset({"_==_", "_<_", "_<=_", "_>_", "_>=_"})


@dataclass(frozen=True, slots=True)
class Edit:
    """A changed expression, and which text in it was replaced by which."""

    expression: str
    before: str
    after: str


def without(expression: str, clause: Clause) -> Edit:
    """The expression with `true` in place of a clause."""
    return Edit(f"{expression[: clause.offset]}true{expression[clause.end :]}", clause.text, "true")


def compared_with(expression: str, clause: Clause, value: Any) -> Edit | None:
    """The expression with the one constant that a clause compares something with replaced by a value.

    None if the clause has no constant of the value's kind (text, a number, a quantity, a version), or several.
    """
    found = [each for each in _constants(clause.checked().tree) if clause.offset <= each.offset < clause.end]
    found = [each for each in found if _same_kind(each, value)]
    if len(found) != 1:
        return None
    offset = found[0].literal.offset
    end = _end(expression, offset)
    before, after = expression[offset:end], _written(value)
    changed = f"{expression[:offset]}{after}{expression[end:]}"
    try:
        compile(changed, clause.features)
    except CelCompileError:
        return None
    return Edit(changed, before.strip("\"'"), after.strip('"')) if changed != expression else None


@dataclass(frozen=True, slots=True)
class _Constant:
    """A literal, and the function such as `quantity` that makes something of it."""

    literal: Literal
    maker: str

    @property
    def offset(self) -> int:
        return self.literal.offset


def _constants(node: Node) -> Iterator[_Constant]:
    """The literals that something of the device is compared with, and the arguments of `quantity` and `semver`."""
    if isinstance(node, Call) and node.function in _MAKERS and isinstance(node.args[0], Literal):
        yield _Constant(node.args[0], node.function)
        return
    if isinstance(node, Call) and node.function in _COMPARISONS and not any(map(_is_order, node.args)):
        yield from (_Constant(each, "") for each in node.args if isinstance(each, Literal))
    for each in [node.result] if isinstance(node, Bind) else node.children():
        yield from _constants(each)


def _is_order(node: Node) -> bool:
    """Whether it is the -1, 0 or 1 of compareTo, which is held against a 0 that nobody means to change."""
    return isinstance(node, Call) and node.function == "compareTo"


def _same_kind(constant: _Constant, value: Any) -> bool:
    if isinstance(value, Quantity | Semver):
        return constant.maker == ("semver" if isinstance(value, Semver) else "quantity")
    fits = isinstance(value, str | int) and not isinstance(value, bool)
    return fits and type(value) is type(constant.literal.value) and not constant.maker


def _written(value: Any) -> str:
    return f'"{shown(value)}"' if isinstance(value, Quantity | Semver) else json.dumps(value)


def _end(expression: str, offset: int) -> int:
    """Where the token at an offset ends."""
    sign = expression[offset] == "-"
    following = [each.offset for each in tokens(expression) if each.offset > offset][sign:]
    return offset + len(expression[offset : following[0]].rstrip())
