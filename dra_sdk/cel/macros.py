"""The macros of CEL: calls that are replaced by other syntax before anything is checked.

The expansions are those of cel-go, because costs are defined on what a macro expands to. Source: cel-spec, section
"Macros"; cel-go's `cel.bind`, optional types, two-variable comprehensions and `sortBy`, which are in Kubernetes' base
environment or in that of device selectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dra_sdk.cel.errors import CelCompileError
from dra_sdk.cel.syntax import (
    ACCUMULATOR,
    Bind,
    CallNode,
    Comprehension,
    Expr,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Select,
    copied,
    depth,
)

_SORT_INPUT: Final = "@sort_input"
_MAX_COPIED: Final = 24
#: The name of the accumulator before cel-go 0.23, which cel-go still refuses as a variable.
_FORMER_ACCUMULATOR: Final = "__result__"


def expand(source: str, call: CallNode) -> Expr | None:
    """Return what a call expands to, None if it is no macro; CelCompileError if a macro's arguments are wrong."""
    macro = _MACROS.get((call.function, len(call.args), call.target is not None))
    if macro is None or (call.function == "bind" and not _is_namespace(source, call.target)):
        return None
    return macro(_Use(source, call))


def _is_namespace(source: str, node: Expr | None) -> bool:
    """Return whether a node is the name `cel` without a leading dot."""
    return isinstance(node, Ident) and node.name == "cel" and not source[: node.offset].rstrip().endswith(".")


class _Use:
    """One use of a macro, with methods that make nodes at its place in the source."""

    def __init__(self, source: str, call: CallNode) -> None:
        self.source, self.args, self.at = source, call.args, call.offset
        self.target: Expr = call.target or call

    def variable(self, index: int, problem: str = "argument must be a simple name") -> str:
        """Return the name of the variable that an argument introduces."""
        node = self.args[index]
        if not isinstance(node, Ident):
            raise CelCompileError.at(self.source, problem, node.offset)
        return node.name

    def loop_variables(self, *, pair: bool) -> tuple[str, str]:
        """Return the names of the one or two variables of a loop; the second may be empty."""
        names = [self.variable(index) for index in range(1 + pair)]
        for index, name in enumerate(names):
            if name in {ACCUMULATOR, _FORMER_ACCUMULATOR}:
                problem = f"iteration variable {name} overwrites accumulator variable"
                raise CelCompileError.at(self.source, problem, self.args[index].offset)
        if pair and names[0] == names[1]:
            raise CelCompileError.at(self.source, f"duplicate variable name: {names[1]}", self.args[1].offset)
        return names[0], names[1] if pair else ""

    def accumulator(self) -> Expr:
        return Ident(self.at, ACCUMULATOR)

    def constant(self, value: Any) -> Expr:
        return Literal(self.at, value)

    def call(self, function: str, *args: Expr) -> Expr:
        return CallNode(self.at, function, list(args))

    def method(self, target: Expr, function: str, *args: Expr) -> Expr:
        return CallNode(self.at, function, list(args), target)

    def loop(self, start: Expr, condition: Expr, step: Expr, result: Expr | None = None, *, pair: bool = False) -> Expr:
        """Return a loop over the target."""
        first, second = self.loop_variables(pair=pair)
        result = result or self.accumulator()
        return Comprehension(self.at, self.target, first, second, ACCUMULATOR, start, condition, step, result)


def _has(use: _Use) -> Expr:
    operand = use.args[0]
    if not isinstance(operand, Select) or operand.test:
        raise CelCompileError.at(use.source, "invalid argument to has() macro", operand.offset)
    return Select(use.at, operand.operand, operand.name, test=True)


def _all(use: _Use, *, pair: bool = False) -> Expr:
    condition = use.call("@not_strictly_false", use.accumulator())
    step = use.call("_&&_", use.accumulator(), use.args[-1])
    return use.loop(use.constant(value=True), condition, step, pair=pair)


def _exists(use: _Use, *, pair: bool = False) -> Expr:
    condition = use.call("@not_strictly_false", use.call("!_", use.accumulator()))
    step = use.call("_||_", use.accumulator(), use.args[-1])
    return use.loop(use.constant(value=False), condition, step, pair=pair)


def _exists_one(use: _Use, *, pair: bool = False) -> Expr:
    more = use.call("_+_", use.accumulator(), use.constant(1))
    step = use.call("_?_:_", use.args[-1], more, use.accumulator())
    result = use.call("_==_", use.accumulator(), use.constant(1))
    return use.loop(use.constant(0), use.constant(value=True), step, result, pair=pair)


def _collect(use: _Use, item: Expr, only: Expr | None, *, pair: bool = False) -> Expr:
    """Return a loop that makes a list of `item` for each element for which `only` holds."""
    step = use.call("_+_", use.accumulator(), ListNode(use.at, [item]))
    if only is not None:
        step = use.call("_?_:_", only, step, use.accumulator())
    return use.loop(ListNode(use.at, []), use.constant(value=True), step, pair=pair)


def _map(use: _Use) -> Expr:
    return _collect(use, use.args[-1], use.args[1] if len(use.args) == 3 else None)  # noqa: PLR2004 (with a filter)


def _filter(use: _Use) -> Expr:
    return _collect(use, Ident(use.args[0].offset, use.variable(0)), use.args[1])


def _transform_list(use: _Use) -> Expr:
    return _collect(use, use.args[-1], use.args[2] if len(use.args) == 4 else None, pair=True)  # noqa: PLR2004


def _transform_map(use: _Use) -> Expr:
    insert = use.call("cel.@mapInsert", use.accumulator(), Ident(use.at, use.variable(0)), use.args[-1])
    return _insert(use, insert)


def _transform_map_entry(use: _Use) -> Expr:
    return _insert(use, use.call("cel.@mapInsert", use.accumulator(), use.args[-1]))


def _insert(use: _Use, step: Expr) -> Expr:
    if len(use.args) == 4:  # noqa: PLR2004 (with a filter)
        step = use.call("_?_:_", use.args[2], step, use.accumulator())
    return use.loop(MapNode(use.at, []), use.constant(value=True), step, pair=True)


def _bind(use: _Use) -> Expr:
    name = use.variable(0, "cel.bind() variable names must be simple identifiers")
    return Bind(use.at, name, use.args[1], use.args[2])


def _if_present(use: _Use, wrap: Callable[[Expr], Expr]) -> Expr:
    name = use.variable(0, "variable name must be a simple identifier")
    if depth(use.target) > _MAX_COPIED:
        raise CelCompileError.at(
            use.source, f"optMap() on an operand of more than {_MAX_COPIED} levels: each level doubles the tree", use.at
        )
    value = use.method(copied(use.target), "value")
    bound = wrap(Bind(use.at, name, value, use.args[1]))
    return use.call("_?_:_", use.method(use.target, "hasValue"), bound, use.call("optional.none"))


def _sort_by(use: _Use) -> Expr:
    target, use.target = use.target, Ident(use.at, _SORT_INPUT)
    result = use.method(Ident(use.at, _SORT_INPUT), "@sortByAssociatedKeys", _map(use))
    return Bind(use.at, _SORT_INPUT, target, result)


_MACROS: Final[dict[tuple[str, int, bool], Callable[[_Use], Expr]]] = {
    ("has", 1, False): _has,
    ("all", 2, True): _all,
    ("exists", 2, True): _exists,
    ("exists_one", 2, True): _exists_one,
    **{("map", count, True): _map for count in (2, 3)},
    ("filter", 2, True): _filter,
    ("bind", 3, True): _bind,
    ("optMap", 2, True): lambda use: _if_present(use, lambda value: use.call("optional.of", value)),
    ("optFlatMap", 2, True): lambda use: _if_present(use, lambda value: value),
    ("sortBy", 2, True): _sort_by,
    ("all", 3, True): lambda use: _all(use, pair=True),
    ("exists", 3, True): lambda use: _exists(use, pair=True),
    **{(name, 3, True): lambda use: _exists_one(use, pair=True) for name in ("exists_one", "existsOne")},
    **{("transformList", count, True): _transform_list for count in (3, 4)},
    **{("transformMap", count, True): _transform_map for count in (3, 4)},
    **{("transformMapEntry", count, True): _transform_map_entry for count in (3, 4)},
}
