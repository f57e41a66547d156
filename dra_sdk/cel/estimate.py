"""Estimating the worst case of what an expression can cost, without running it.

The API server refuses an expression whose estimate is above the limit. The sizes of the parts of a device are those
that Kubernetes declares. Source: cel-go, checker/cost.go (0.26, Kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from dra_sdk.cel.checker import Checked
from dra_sdk.cel.environment import Shape
from dra_sdk.cel.library.overloads import (
    ANY_SIZE,
    MAX,
    NEW_LIST,
    NEW_MAP,
    ONE,
    CallEstimate,
    Overload,
    Range,
    exactly,
)
from dra_sdk.cel.syntax import Bind, CallNode, Comprehension, Expr, Ident, ListNode, Literal, MapNode, Scoped, Select
from dra_sdk.cel.types import SCALARS, Type, TypeKind, is_optional

_FREE: Final = exactly(0)


def estimate(checked: Checked) -> Range:
    """Return the least and the most that evaluating the expression costs."""
    return _Estimator(checked).cost(checked.tree)


class _EntrySizes(NamedTuple):
    """How large the keys and the values of a container can be.

    is_list: whether the container is a list.
    key: the size of a key or index.
    value: the size of a value or item.
    """

    is_list: bool
    key: Range
    value: Range


@dataclass(slots=True)
class _Variable:
    shape: Shape | None
    size: Range | None
    entry: _EntrySizes | None = None


@dataclass(slots=True)
class _Call:
    """A call with its operands, as the cost of a function sees it."""

    estimator: _Estimator
    operands: list[Expr]

    @property
    def count(self) -> int:
        return len(self.operands)

    def size(self, index: int) -> Range:
        return self.estimator.size(self.operands[index]) or ANY_SIZE

    def known_size(self, index: int) -> Range | None:
        return self.estimator.size(self.operands[index])

    def item_size(self, index: int) -> Range:
        shape = self.estimator.shapes.get(self.operands[index])
        return Range(0, shape.value.size) if shape and shape.value else ANY_SIZE

    def type(self, index: int) -> Type:
        return self.estimator.checked.types[self.operands[index]]

    def constant(self, index: int) -> Any:
        operand = self.operands[index]
        return operand.value if isinstance(operand, Literal) else None


class _Estimator(Scoped[_Variable]):
    def __init__(self, checked: Checked) -> None:
        environment = checked.environment
        self._variables = self._roots = {environment.variable: _Variable(environment.shape, None)}
        self.checked = checked
        self.shapes: dict[Expr, Shape | None] = {}
        self._sizes: dict[Expr, Range] = {}
        self._entries: dict[Expr, _EntrySizes] = {}
        self._costs: dict[type[Expr], Callable[[Any], Range]] = {
            Literal: lambda _node: _FREE,
            Ident: self._ident,
            Select: self._select,
            CallNode: self._call,
            ListNode: self._list,
            MapNode: self._map,
            Bind: self._bind,
            Comprehension: self._comprehension,
        }

    def cost(self, node: Expr) -> Range:
        """Return what a node and everything below it costs."""
        return self._costs[type(node)](node)

    def size(self, node: Expr) -> Range | None:
        """Return how large the value of a node can be, None if nothing is known."""
        if node in self._sizes:
            return self._sizes[node]
        if (size := _literal_size(node)) is not None:
            return exactly(size)
        if shape := self.shapes.get(node):
            return Range(0, shape.size)
        kind = self.checked.types[node]
        if (kind.params[0] if is_optional(kind) else kind) in SCALARS:
            return ONE
        variable = self._variable(node)
        return variable.size if variable else None

    def _variable(self, node: Expr) -> _Variable | None:
        if not isinstance(node, Ident):
            return None
        return (self._roots if node.root else self._variables).get(node.name)

    def _entry(self, node: Expr) -> _EntrySizes | None:
        variable = self._variable(node)
        return self._entries.get(node) or (variable.entry if variable else None)

    def _ident(self, node: Ident) -> Range:
        variable = self._variable(node)
        self.shapes[node] = variable.shape if variable else None
        return ONE

    def _select(self, node: Select) -> Range:
        if node in self.checked.named_types:
            return ONE
        cost = self.cost(node.operand)
        if node.test:
            return cost
        shape = self.shapes.get(node.operand)
        self.shapes[node] = shape.fields.get(node.name, shape.any_field) if shape else None
        # A selection on a value of unknown type is free in the estimate of Kubernetes, though not when it runs.
        known = self.checked.types[node.operand].kind in {TypeKind.MAP, TypeKind.STRUCT, TypeKind.PARAM}
        return cost.plus(ONE) if known else cost

    def _list(self, node: ListNode) -> Range:
        cost = exactly(NEW_LIST)
        for item in node.items:
            cost = cost.plus(self.cost(item))
        self._entries[node] = _EntrySizes(True, ONE, self._union(node.items))
        return cost

    def _map(self, node: MapNode) -> Range:
        cost = exactly(NEW_MAP)
        for child in node.children():
            cost = cost.plus(self.cost(child))
        keys, values = [key for key, _ in node.entries], [value for _, value in node.entries]
        self._entries[node] = _EntrySizes(False, self._union(keys), self._union(values))
        return cost

    def _union(self, nodes: list[Expr]) -> Range:
        total = Range(MAX if nodes else 0, 0)
        for node in nodes:
            total = total.union(self.size(node) or ANY_SIZE)
        return total

    def _bind(self, node: Bind) -> Range:
        # Kubernetes expands a binding into a loop over an empty list, and counts that list.
        cost = exactly(NEW_LIST).plus(self.cost(node.value))
        bound = _Variable(self.shapes.get(node.value), self.size(node.value), self._entry(node.value))
        with self._scope({node.name: bound}):
            cost = cost.plus(self.cost(node.result))
            size, entry = self.size(node.result), self._entry(node.result)
        self._remember(node, size, entry)
        return cost

    def _remember(self, node: Expr, size: Range | None, entry: _EntrySizes | None) -> None:
        if size is not None:
            self._sizes[node] = size
        if entry is not None:
            self._entries[node] = entry

    def _comprehension(self, node: Comprehension) -> Range:
        cost = self.cost(node.items).plus(self.cost(node.start))
        accumulator = _Variable(self.shapes.get(node.start), self.size(node.start), self._entry(node.start))
        count = self.size(node.items) or ANY_SIZE
        with self._scope({node.accumulator: accumulator}):
            with self._scope(self._loop_variables(node)):
                once = self.cost(node.condition).plus(self.cost(node.step))
                step = self._entry(node.step)
            cost = cost.plus(self.cost(node.result))
        if isinstance(node.start, Literal):
            self._remember(node, self.size(node.start), None)
        else:
            self._remember(node, count, step)
        return cost.plus(count.times(once))

    def _loop_variables(self, node: Comprehension) -> dict[str, _Variable]:
        entry, shape = self._entry(node.items), self.shapes.get(node.items)
        is_list = entry.is_list if entry else self.checked.types[node.items].kind is TypeKind.LIST
        key = _Variable(None if is_list else shape and shape.key, entry.key if entry else None)
        value = _Variable(shape and shape.value, entry.value if entry else None)
        if node.variable2:
            return {node.variable: key, node.variable2: value}
        return {node.variable: value if is_list else key}

    def _call(self, node: CallNode) -> Range:
        if node.function == "dyn":
            cost = self.cost(node.args[0]).plus(ONE)
            self._remember(node, self.size(node.args[0]), self._entry(node.args[0]))
            return cost
        operands = node.operands()
        costs: list[Range] = []
        for operand in operands:
            costs.append(self.cost(operand))  # noqa: PERF401 (a comprehension costs a stack frame)
        if node.function in {"_&&_", "_||_"}:
            return Range(costs[0].low, costs[0].plus(costs[1]).high)
        if node.function == "_?_:_":
            return self._conditional(node, costs)
        total, size = self._estimates(node, operands)
        for operand_cost in costs:
            total = total.plus(operand_cost)
        if size is not None:
            self._sizes[node] = size
        return total

    def _conditional(self, node: CallNode, costs: list[Range]) -> Range:
        yes, no = node.args[1:]
        self._sizes[node] = (self.size(yes) or ANY_SIZE).union(self.size(no) or ANY_SIZE)
        first, second = self._entry(yes), self._entry(no)
        if first and second:
            self._entries[node] = _joined(first, second)
        return costs[0].plus(costs[1].union(costs[2]))

    def _estimates(self, node: CallNode, operands: list[Expr]) -> tuple[Range, Range | None]:
        """Return the cost and the size of the result over all overloads that may be called."""
        site = _Call(self, operands)
        total, size = Range(MAX, 0), None
        for overload in self.checked.overloads[node]:
            worst = overload.cost.estimate(site)
            total = total.union(worst.cost)
            size = self._result_size(node, overload, worst, size)
        return total, size

    def _result_size(self, node: CallNode, overload: Overload, worst: CallEstimate, size: Range | None) -> Range | None:
        if worst.size is not None:
            size = worst.size if size is None else size.union(worst.size)
        if node.function == "_[_]" and overload.params[0].kind in {TypeKind.LIST, TypeKind.MAP}:
            entry, shape = self._entry(node.args[0]), self.shapes.get(node.args[0])
            size = entry.value if entry else None
            self.shapes[node] = shape.value if shape else None
        if node.function == "_+_" and overload.result.kind is TypeKind.LIST:
            first, second = (self._entry(operand) for operand in node.args)
            if first and second:
                self._entries[node] = _joined(first, second)
        return self.size(node) if size is None else size


def _joined(first: _EntrySizes, second: _EntrySizes) -> _EntrySizes:
    return _EntrySizes(first.is_list, first.key.union(second.key), first.value.union(second.value))


def _literal_size(node: Expr) -> int | None:
    if isinstance(node, Literal):
        return len(node.value) if isinstance(node.value, str | bytes) else 1
    if isinstance(node, ListNode):
        return len(node.items)
    return len(node.entries) if isinstance(node, MapNode) else None
