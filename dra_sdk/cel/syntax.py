"""The syntax tree of a CEL expression, macros already expanded.

Nodes compare by identity: later stages keep what they learn about a node (its type, its cost) in tables beside the
tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Generic, TypeVar

ACCUMULATOR: Final = "@result"
"""The accumulator of every comprehension; no expression can name it."""


@dataclass(slots=True, eq=False)
class Expr:
    """One expression.

    offset: where in the source an error about this node points.
    """

    offset: int

    def children(self) -> list[Expr]:
        """Return the expressions directly below this one, in source order."""
        return []


ExprT = TypeVar("ExprT", bound=Expr)
_V = TypeVar("_V")


class Scoped(Generic[_V]):
    """Walks through a tree, and has something about each variable that is visible where it is."""

    _variables: dict[str, _V]

    @contextmanager
    def _scope(self, variables: dict[str, _V]) -> Iterator[None]:
        before = self._variables
        self._variables = {**before, **variables}
        yield
        self._variables = before


@dataclass(slots=True, eq=False)
class Literal(Expr):
    """A constant.

    value: its value.
    """

    value: Any


@dataclass(slots=True, eq=False)
class Ident(Expr):
    """A variable or the name of a type.

    name: the name, without a leading dot.
    root: whether a leading dot says that no local variable is meant (since 1.37).
    """

    name: str
    root: bool = False


@dataclass(slots=True, eq=False)
class Select(Expr):
    """`operand.name`, or `has(operand.name)`.

    operand: what is selected from.
    name: the name of the field or key.
    test: whether this is `has(operand.name)`.
    """

    operand: Expr
    name: str
    test: bool = False

    def children(self) -> list[Expr]:
        """Return the expressions directly below this one."""
        return [self.operand]


@dataclass(slots=True, eq=False)
class CallNode(Expr):
    """A call of a function, a method or an operator.

    function: its name; operators have names such as `_&&_` and `_[_]`.
    args: the arguments, without the target of a method.
    target: the target of a method, None for a function or an operator.
    """

    function: str
    args: list[Expr]
    target: Expr | None = None

    def operands(self) -> list[Expr]:
        """Return the arguments, the target of a method first."""
        return self.args if self.target is None else [self.target, *self.args]

    def children(self) -> list[Expr]:
        """Return the expressions directly below this one."""
        return self.operands()


@dataclass(slots=True, eq=False)
class ListNode(Expr):
    """`[a, ?b]`.

    items: the items.
    optional: the indices of the items with a question mark.
    """

    items: list[Expr]
    optional: frozenset[int] = frozenset()

    def children(self) -> list[Expr]:
        """Return the expressions directly below this one."""
        return self.items


@dataclass(slots=True, eq=False)
class MapNode(Expr):
    """`{key: value, ?key: optional}`.

    entries: pairs of key and value.
    optional: the indices of the entries with a question mark.
    """

    entries: list[tuple[Expr, Expr]]
    optional: frozenset[int] = frozenset()

    def children(self) -> list[Expr]:
        """Return the expressions directly below this one."""
        return [part for entry in self.entries for part in entry]


@dataclass(slots=True, eq=False)
class Comprehension(Expr):
    """A loop over a list or a map that updates an accumulator; macros such as `all` expand to it.

    items: what is iterated: the items of a list, the keys of a map.
    variable: the variable for each item; with `variable2`, for each index or key.
    variable2: the variable for the items of a list or the values of a map; empty if there is one variable only.
    accumulator: the variable that holds the result so far.
    start: the first value of the accumulator.
    condition: evaluated before each item; the loop ends when it is false.
    step: the next value of the accumulator.
    result: the value of the whole comprehension.
    """

    items: Expr
    variable: str
    variable2: str
    accumulator: str
    start: Expr
    condition: Expr
    step: Expr
    result: Expr

    def children(self) -> list[Expr]:
        """Return the expressions directly below this one."""
        return [self.items, self.start, self.condition, self.step, self.result]


@dataclass(slots=True, eq=False)
class Bind(Expr):
    """`cel.bind(name, value, result)`; the value is computed when it is first needed.

    name: the variable.
    value: its value.
    result: the expression that may use the variable.
    """

    name: str
    value: Expr
    result: Expr

    def children(self) -> list[Expr]:
        """Return the expressions directly below this one."""
        return [self.value, self.result]


def qualified_name(node: Expr | None) -> str:
    """Return `a.b.c` for a node of names and selections only, else an empty text."""
    names: list[str] = []
    while isinstance(node, Select) and not node.test:
        names.append(node.name)
        node = node.operand
    return ".".join([node.name, *reversed(names)]) if isinstance(node, Ident) else ""


def copied(node: ExprT) -> ExprT:
    """Return a copy of a tree with nodes of its own, for macros that use an argument twice."""
    changed: dict[str, Any] = {}
    for name in _FIELDS[type(node)]:
        value = getattr(node, name)
        if isinstance(value, Expr):
            changed[name] = copied(value)
        elif isinstance(node, MapNode) and name == "entries":
            changed[name] = [(copied(key), copied(content)) for key, content in node.entries]
        elif isinstance(value, list):
            changed[name] = [copied(item) for item in value]
    return replace(node, **changed)


def depth(node: Expr) -> int:
    """Return how many levels a tree has, without recursion: this guards the recursion of later stages."""
    deepest, level = 0, [node]
    while level:
        deepest += 1
        level = [child for parent in level for child in parent.children()]
    return deepest


_FIELDS: Final[dict[type[Expr], tuple[str, ...]]] = {
    kind: tuple(field.name for field in fields(kind))
    for kind in (Literal, Ident, Select, CallNode, ListNode, MapNode, Comprehension, Bind)
}
