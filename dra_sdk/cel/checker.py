"""Checking the types of an expression before it runs.

The first problem that is found is reported. Source: the CEL language definition (cel-spec), section "Gradual Type
Checking"; cel-go, checker/checker.go, for the order in which overloads are tried, and the validators of Kubernetes'
environment (cel/validator.go): one type in a literal list or map, and literal templates of `format`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dra_sdk.cel import types
from dra_sdk.cel.environment import TYPE_NAMES, Environment
from dra_sdk.cel.errors import CelCompileError, CelUnknownFunctionError
from dra_sdk.cel.library.formatting import check_format
from dra_sdk.cel.library.overloads import Overload
from dra_sdk.cel.syntax import (
    Bind,
    CallNode,
    Comprehension,
    Expr,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Scoped,
    Select,
    qualified_name,
)
from dra_sdk.cel.types import BOOL, DYN, INT, Type, TypeKind, Unifier, is_dyn, is_optional, list_of, map_of, optional_of
from dra_sdk.cel.values import type_of


@dataclass(slots=True)
class Checked:
    """A tree with what the checker found out about it.

    source: the text of the expression.
    tree: its syntax tree.
    environment: what it may refer to.
    types: the type of each node.
    overloads: the overloads that each call may need.
    named_types: the types that names and selections such as `int` or `net.IP` stand for.
    """

    source: str
    tree: Expr
    environment: Environment
    types: dict[Expr, Type] = field(default_factory=dict)
    overloads: dict[CallNode, tuple[Overload, ...]] = field(default_factory=dict)
    named_types: dict[Expr, Type] = field(default_factory=dict)


def check(source: str, tree: Expr, environment: Environment) -> Checked:
    """Check a condition; CelCompileError if its types do not fit or its value cannot be true or false.

    A call such as `sets.contains(a, b)` becomes a call of the function `sets.contains`, without a target.
    """
    checked = check_any(source, tree, environment)
    _check_result(checked)
    return checked


def check_any(source: str, tree: Expr, environment: Environment) -> Checked:
    """Check an expression of any type."""
    checker = _Checker(source, tree, environment)
    checker.visit(tree)
    checked = checker.checked
    checked.types = {node: checker.unifier.resolve(kind, final=True) for node, kind in checked.types.items()}
    if checker.has_literals:
        _Literals(checked).check(tree)
    return checked


def _check_result(checked: Checked) -> None:
    result = checked.types[checked.tree]
    if result not in {BOOL, checked.environment.unknown}:
        problem = f"must evaluate to bool or the unknown type, not {result}"
        raise CelCompileError.at(checked.source, problem, checked.tree.offset)


class _Checker(Scoped[Type]):
    def __init__(self, source: str, tree: Expr, environment: Environment) -> None:
        self._variables = {environment.variable: environment.kind}
        self.checked = Checked(source, tree, environment)
        self.unifier = Unifier()
        #: Whether there is anything that `_Literals` checks.
        self.has_literals = False
        self._environment = environment
        self._kinds: dict[type[Expr], Callable[[Any], Type]] = {
            Literal: lambda node: type_of(node.value),
            Ident: self._ident,
            Select: self._select,
            CallNode: self._call,
            ListNode: self._list,
            MapNode: self._map,
            Bind: self._bind,
            Comprehension: self._comprehension,
        }

    def visit(self, node: Expr) -> Type:
        """Check one node and everything below it; return its type."""
        kind = self._kinds[type(node)](node)
        self.checked.types[node] = kind
        return kind

    def _error(self, problem: str, node: Expr) -> CelCompileError:
        return CelCompileError.at(self.checked.source, problem, node.offset)

    def _ident(self, node: Ident) -> Type:
        if node.name in self._variables and not node.root:
            return self._variables[node.name]
        if node.name == self._environment.variable:
            return self._environment.kind
        return self._type_name(node, node) or self._undeclared(node.name, node)

    def _type_name(self, node: Expr, head: Ident | None) -> Type | None:
        """Return the type of a type that a name such as `int` or `net.IP` stands for, None if it stands for none."""
        name = qualified_name(node)
        if head is None or name not in TYPE_NAMES:
            return None
        if self._environment.since_1_37 and head.name in self._variables:
            if not head.root:
                return None
            raise self._error(f"reference to undefined type: .{name}", node)
        self.checked.named_types[node] = TYPE_NAMES[name]
        return types.type_of(TYPE_NAMES[name])

    def _undeclared(self, name: str, node: Expr) -> Type:
        raise self._error(f"undeclared reference to '{name}'", node)

    def _select(self, node: Select) -> Type:
        named = None if node.test else self._type_name(node, _head(node))
        if named is not None:
            return named
        kind = self._field(node, node.operand, node.name)
        return BOOL if node.test else self.unifier.resolve(kind)

    def _field(self, node: Expr, operand: Expr, name: str) -> Type:
        kind = self.unifier.resolve(self.visit(operand))
        target = kind.params[0] if is_optional(kind) else kind
        if target.kind is TypeKind.MAP:
            result = target.params[1]
        elif (fields := self._environment.structs.get(target)) is not None:
            if name not in fields:
                raise self._error(f"undefined field '{name}'", node)
            result = fields[name]
        elif is_dyn(target) or target.kind is TypeKind.PARAM:
            self.unifier.fit((DYN,), (target,))
            result = DYN
        else:
            raise self._error(f"type '{target}' does not support field selection", node)
        return optional_of(result) if is_optional(kind) else result

    def _call(self, node: CallNode) -> Type:
        if node.function == "_?._":
            return self._optional_select(node)
        functions = self._environment.functions
        if node.target and (prefix := qualified_name(node.target)) and f"{prefix}.{node.function}" in functions:
            node.function, node.target = f"{prefix}.{node.function}", None
        if node.function not in functions:
            problem = f"undeclared reference to '{node.function}'"
            raise CelUnknownFunctionError.at(self.checked.source, problem, node.offset)
        operands = node.operands()
        for operand in operands:
            self.visit(operand)
        if node.function in {"_&&_", "_||_"}:
            for operand in operands:
                self._fit(operand, BOOL)
        return self._resolve(node)

    def _optional_select(self, node: CallNode) -> Type:
        operand, name = node.args
        assert isinstance(name, Literal)
        self.visit(name)
        kind = self._field(node, operand, str(name.value))
        self.checked.overloads[node] = self._environment.functions[node.function]
        return self.unifier.resolve(kind if is_optional(kind) else optional_of(kind))

    def _resolve(self, node: CallNode) -> Type:
        operands = node.operands()
        given = tuple(self.checked.types[operand] for operand in operands)
        matching: list[Overload] = []
        result: Type | None = None
        for overload in self._environment.functions[node.function]:
            if overload.method != (node.target is not None):
                continue
            *params, kind = self.unifier.instantiate((*overload.params, overload.result))
            if not self.unifier.fit(given, tuple(params)):
                continue
            matching.append(overload)
            kind = self.unifier.resolve(kind)
            # Overloads that fit alike and give different results leave it to the evaluation.
            result = kind if result is None or result == kind else DYN
        if result is None:
            shown = ", ".join(str(self.unifier.resolve(kind, final=True)) for kind in given)
            raise self._error(f"found no matching overload for '{node.function}' applied to '({shown})'", node)
        self.checked.overloads[node] = tuple(matching)
        return result

    def _list(self, node: ListNode) -> Type:
        self.has_literals = True
        for item in node.items:
            self.visit(item)
        return list_of(self._joined(node.items, node.optional))

    def _map(self, node: MapNode) -> Type:
        self.has_literals = True
        for child in node.children():
            self.visit(child)
        keys = self._joined([key for key, _ in node.entries], frozenset())
        return map_of(keys, self._joined([value for _, value in node.entries], node.optional))

    def _bind(self, node: Bind) -> Type:
        with self._scope({node.name: self.visit(node.value)}):
            return self.visit(node.result)

    def _joined(self, items: Sequence[Expr], optional: frozenset[int]) -> Type:
        """Return the type of all items; a mixture is dyn here, and `_Literals` refuses it where Kubernetes does."""
        joined: Type | None = None
        for index, item in enumerate(items):
            kind = self.checked.types[item]
            if index in optional:
                kind = self._unwrapped(kind, item)
            joined = kind if joined is None else self.unifier.join(joined, kind) or DYN
        return joined or self.unifier.fresh()

    def _unwrapped(self, kind: Type, item: Expr) -> Type:
        if is_optional(kind):
            return kind.params[0]
        if is_dyn(kind):
            return kind
        raise self._error(f"expected type '{optional_of(kind)}' but found '{kind}'", item)

    def _comprehension(self, node: Comprehension) -> Type:
        items = self.unifier.resolve(self.visit(node.items))
        start = self.visit(node.start)
        variables = self._variables_of(node, items)
        with self._scope({node.accumulator: start}):
            with self._scope(variables):
                self._expect(node.condition, BOOL)
                self._expect(node.step, start)
            return self.unifier.resolve(self.visit(node.result))

    def _variables_of(self, node: Comprehension, items: Type) -> dict[str, Type]:
        if items.kind is TypeKind.LIST:
            first, second = (INT, items.params[0]) if node.variable2 else (items.params[0], DYN)
        elif items.kind is TypeKind.MAP:
            first, second = items.params
        elif items.kind in {TypeKind.DYN, TypeKind.ERROR, TypeKind.PARAM}:
            self.unifier.fit((DYN,), (items,))
            first = second = DYN
        else:
            problem = f"expression of type '{items}' cannot be range of a comprehension (must be list, map, or dynamic)"
            raise self._error(problem, node.items)
        return {node.variable: first, **({node.variable2: second} if node.variable2 else {})}

    def _expect(self, node: Expr, wanted: Type) -> None:
        self.visit(node)
        self._fit(node, wanted)

    def _fit(self, node: Expr, wanted: Type) -> None:
        kind = self.checked.types[node]
        if not self.unifier.fit((wanted,), (kind,)):
            shown = (self.unifier.resolve(shown_type, final=True) for shown_type in (wanted, kind))
            raise self._error("expected type '{}' but found '{}'".format(*shown), node)


class _Literals:
    """Checks literals, once all types are known."""

    def __init__(self, checked: Checked) -> None:
        self._checked = checked

    def check(self, tree: Expr) -> None:
        """Check every literal list and map, except within the operands of `format`, and every template of `format`."""
        pending = [(tree, False)]
        while pending:
            node, mixed = pending.pop()
            if isinstance(node, ListNode) and not mixed:
                self._one_type(node.items, node.optional)
            elif isinstance(node, MapNode) and not mixed:
                self._one_type([key for key, _ in node.entries], frozenset())
                self._one_type([value for _, value in node.entries], node.optional)
            elif isinstance(node, CallNode) and node.function == "format":
                self._template(node)
                mixed = True
            pending += [(child, mixed) for child in reversed(node.children())]

    def _one_type(self, items: Sequence[Expr], optional: frozenset[int]) -> None:
        kinds = [self._checked.types[item] for item in items]
        kinds = [kind.params[0] if index in optional and kind.params else kind for index, kind in enumerate(kinds)]
        for item, kind in zip(items, kinds, strict=True):
            if kind != kinds[0]:
                problem = f"expected type '{kinds[0]}' but found '{kind}'"
                raise CelCompileError.at(self._checked.source, problem, item.offset)

    def _template(self, node: CallNode) -> None:
        template, operands = node.target, node.args[0] if node.args else None
        if not isinstance(template, Literal) or not isinstance(template.value, str):
            return
        if isinstance(operands, ListNode) and (
            bad := check_format(template.value, operands.items, self._checked.types)
        ):
            place, problem = bad
            raise CelCompileError.at(self._checked.source, problem, (place or node).offset)


def _head(node: Expr) -> Ident | None:
    """Return the name that a selection begins with."""
    while isinstance(node, Select):
        node = node.operand
    return node if isinstance(node, Ident) else None
