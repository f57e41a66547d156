"""The syntax tree of a CEL expression, macros already expanded.

Nodes compare by identity, so that what later stages learn about one (its type, its cost) is kept beside the tree.
`offset` is the place in the source that an error names.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

ACCUMULATOR: Final = "@result"
"""The variable in which a comprehension collects; no expression can name it."""


@dataclass(slots=True, eq=False)
class Node:
    """One expression."""

    offset: int

    def children(self) -> list[Node]:
        """The expressions right below this one, in source order."""
        return []


@dataclass(slots=True, eq=False)
class Literal(Node):
    """A constant."""

    value: Any


@dataclass(slots=True, eq=False)
class Ident(Node):
    """A variable or a name of a type."""

    name: str


@dataclass(slots=True, eq=False)
class Select(Node):
    """`operand.name`; with `test`, `has(operand.name)`."""

    operand: Node
    name: str
    test: bool = False

    def children(self) -> list[Node]:
        """The expressions right below this one."""
        return [self.operand]


@dataclass(slots=True, eq=False)
class Call(Node):
    """A function, method or operator; `_&&_`, `_[_]` and so on name operators."""

    function: str
    args: list[Node]
    target: Node | None = None

    def operands(self) -> list[Node]:
        """The arguments, the target of a method first."""
        return self.args if self.target is None else [self.target, *self.args]

    def children(self) -> list[Node]:
        """The expressions right below this one."""
        return self.operands()


@dataclass(slots=True, eq=False)
class ListNode(Node):
    """`[a, ?b]`; `optional` holds the indices of the items with a question mark."""

    items: list[Node]
    optional: frozenset[int] = frozenset()

    def children(self) -> list[Node]:
        """The expressions right below this one."""
        return self.items


@dataclass(slots=True, eq=False)
class MapNode(Node):
    """`{key: value, ?key: optional}`."""

    entries: list[tuple[Node, Node]]
    optional: frozenset[int] = frozenset()

    def children(self) -> list[Node]:
        """The expressions right below this one."""
        return [each for entry in self.entries for each in entry]


@dataclass(slots=True, eq=False)
class Fold(Node):
    """What a macro such as `all` becomes: a loop that updates an accumulator.

    For each item of `items`: stop unless `condition`, then `accumulator = step`; the value is `result`. With
    `variable2`, the variables are index and item, or key and value.
    """

    items: Node
    variable: str
    variable2: str
    accumulator: str
    start: Node
    condition: Node
    step: Node
    result: Node

    def children(self) -> list[Node]:
        """The expressions right below this one."""
        return [self.items, self.start, self.condition, self.step, self.result]


@dataclass(slots=True, eq=False)
class Bind(Node):
    """`cel.bind(name, value, result)`; the value is computed when it is first needed."""

    name: str
    value: Node
    result: Node

    def children(self) -> list[Node]:
        """The expressions right below this one."""
        return [self.value, self.result]


def copied(node: Node) -> Node:
    """A tree of its own that says the same, for macros that use an argument twice."""
    return deepcopy(node)


def depth(node: Node) -> int:
    """How many levels the tree has; found without recursion, because it guards the recursion of later stages."""
    deepest, level = 0, [node]
    while level:
        deepest += 1
        level = [child for each in level for child in each.children()]
    return deepest
