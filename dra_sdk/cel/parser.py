"""From the text of an expression to its syntax tree.

Source: the CEL language definition (cel-spec), section "Syntax", with the optional syntax (`.?`, `[?`) and the
trailing commas that Kubernetes accepts. Not accepted: construction of messages (`Type{field: 1}`), because a
selector has no message types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dra_sdk.cel.errors import CelCompileError
from dra_sdk.cel.lexer import RESERVED, Token, signed, tokens
from dra_sdk.cel.macros import expand
from dra_sdk.cel.syntax import Call, Ident, ListNode, Literal, MapNode, Node, Select, depth

MAX_NESTING: Final = 50
"""How deep brackets may nest; the tree may then be a few times as deep, because of macros and chains."""
MAX_DEPTH: Final = 150

_BINARY: Final = (
    {"||": "_||_"},
    {"&&": "_&&_"},
    {"<": "_<_", "<=": "_<=_", ">": "_>_", ">=": "_>=_", "==": "_==_", "!=": "_!=_", "in": "@in"},
    {"+": "_+_", "-": "_-_"},
    {"*": "_*_", "/": "_/_", "%": "_%_"},
)
_LOGICAL: Final = 2


def parse(source: str) -> Node:
    """The syntax tree; CelCompileError with line and column if the text is no expression."""
    tree = _Parser(source).whole()
    if depth(tree) > MAX_DEPTH:
        raise CelCompileError.at(source, f"the expression is nested deeper than {MAX_DEPTH} levels", tree.offset)
    return tree


class _Parser:
    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens = tokens(source)
        self._next = 0
        self._nesting = 0

    def whole(self) -> Node:
        """The expression, and nothing after it."""
        tree = self._expression()
        if self._token.kind != "end":
            raise self._unexpected("the end of the expression")
        return tree

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def _advance(self) -> Token:
        self._next += 1
        return self._tokens[self._next - 1]

    def _accept(self, kind: str) -> Token | None:
        return self._advance() if self._token.kind == kind else None

    def _expect(self, kind: str) -> Token:
        if self._token.kind != kind:
            raise self._unexpected(repr(kind) if kind != "name" else "a name")
        return self._advance()

    def _unexpected(self, wanted: str) -> CelCompileError:
        return self._error(f"Syntax error: found {self._token.shown}, expected {wanted}", self._token.offset)

    def _error(self, problem: str, offset: int) -> CelCompileError:
        return CelCompileError.at(self._source, problem, offset)

    def _expression(self) -> Node:
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise self._error(f"brackets nest deeper than {MAX_NESTING} levels", self._token.offset)
        tree = self._binary(0)
        if question := self._accept("?"):
            yes = self._binary(0)
            self._expect(":")
            tree = Call(question.offset, "_?_:_", [tree, yes, self._expression()])
        self._nesting -= 1
        return tree

    def _binary(self, level: int) -> Node:
        if level == len(_BINARY):
            return self._unary()
        operands, operators = [self._binary(level + 1)], []
        while (symbol := self._symbol()) in _BINARY[level]:
            operators.append((self._advance().offset, _BINARY[level][symbol]))
            operands.append(self._binary(level + 1))
        if level < _LOGICAL:
            return _balanced(operands, operators)
        tree = operands[0]
        for (offset, function), operand in zip(operators, operands[1:], strict=True):
            tree = Call(offset, function, [tree, operand])
        return tree

    def _symbol(self) -> str:
        token = self._token
        return "in" if token.kind == "name" and token.value == "in" else token.kind

    def _unary(self) -> Node:
        first = self._token
        if first.kind not in {"!", "-"}:
            return self._member()
        count = 0
        while self._token.kind == first.kind:
            self._advance()
            count += 1
        negative = count % 2 == 1
        if first.kind == "-" and count == 1 and (number := self._negative(first.offset)):
            return self._postfix(number)
        operand = self._member()
        return Call(first.offset, f"{first.kind}_", [operand]) if negative else operand

    def _negative(self, offset: int) -> Node | None:
        token = self._token
        if token.kind == "integer":
            return Literal(offset, signed(self._source, self._advance(), negative=True))
        if token.kind == "literal" and isinstance(token.value, float):
            return Literal(offset, -self._advance().value)
        return None

    def _member(self) -> Node:
        return self._postfix(self._primary())

    def _postfix(self, tree: Node) -> Node:
        while True:
            if dot := self._accept("."):
                tree = self._selection(tree, dot)
            elif bracket := self._accept("["):
                function = "_[?_]" if self._accept("?") else "_[_]"
                tree = Call(bracket.offset, function, [tree, self._expression()])
                self._expect("]")
            else:
                return tree

    def _selection(self, operand: Node, dot: Token) -> Node:
        optional = self._accept("?")
        name = self._expect("name")
        if name.value == "in":
            raise self._error("Syntax error: found 'in', expected a name", name.offset)
        if optional:
            return Call(dot.offset, "_?._", [operand, Literal(name.offset, name.value)])
        if bracket := self._accept("("):
            return self._call(bracket, name, operand)
        return Select(dot.offset, operand, name.value)

    def _call(self, bracket: Token, name: Token, target: Node | None) -> Node:
        args, _ = self._items(")", self._expression)
        call = Call(bracket.offset, name.value, args, target)
        return expand(self._source, call) or call

    def _items(self, end: str, item: Callable[[], Node]) -> tuple[list[Node], frozenset[int]]:
        """Comma-separated items up to a closing bracket; the indices of those with a question mark."""
        items: list[Node] = []
        optional = set()
        while not self._accept(end):
            if end == "]" and self._accept("?"):
                optional.add(len(items))
            items.append(item())
            if not self._accept(","):
                self._expect(end)
                break
            if end == ")" and self._token.kind == ")":
                raise self._unexpected("an argument")
        return items, frozenset(optional)

    def _primary(self) -> Node:
        token = self._advance()
        if token.kind == "literal":
            return Literal(token.offset, token.value)
        if token.kind == "integer":
            return Literal(token.offset, signed(self._source, token, negative=False))
        if token.kind == "(":
            tree = self._expression()
            self._expect(")")
            return tree
        if token.kind == "[":
            return ListNode(token.offset, *self._items("]", self._expression))
        if token.kind == "{":
            return self._map(token)
        if token.kind in {"name", "."}:
            return self._name(self._expect("name") if token.kind == "." else token)
        self._next -= 1
        raise self._unexpected("an expression")

    def _name(self, name: Token) -> Node:
        if name.value in RESERVED or name.value == "in":
            raise self._error(f"reserved identifier: {name.value}", name.offset)
        if bracket := self._accept("("):
            return self._call(bracket, name, None)
        if self._token.kind == "{":
            raise self._error(f"undeclared reference to {name.value!r}: no message type", self._token.offset)
        return Ident(name.offset, name.value)

    def _map(self, brace: Token) -> Node:
        entries: list[tuple[Node, Node]] = []
        optional = set()
        while not self._accept("}"):
            if self._accept("?"):
                optional.add(len(entries))
            key = self._expression()
            self._expect(":")
            entries.append((key, self._expression()))
            if not self._accept(","):
                self._expect("}")
                break
        return MapNode(brace.offset, entries, frozenset(optional))


def _balanced(operands: list[Node], operators: list[tuple[int, str]]) -> Node:
    """A chain of one logical operator as a tree of logarithmic depth; the order of evaluation stays."""
    if not operators:
        return operands[0]
    middle = len(operators) // 2
    offset, function = operators[middle]
    left = _balanced(operands[: middle + 1], operators[:middle])
    right = _balanced(operands[middle + 1 :], operators[middle + 1 :])
    return Call(offset, function, [left, right])
