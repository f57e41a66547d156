"""Parsing the text of an expression into its syntax tree.

The parser keeps a stack of open brackets instead of calling itself, so that deep nesting needs no Python stack. It
accepts what the API server accepts: the language of cel-spec, section "Syntax", with the optional syntax (`.?`, `[?`),
trailing commas, and names in backticks since 1.37. The limits of nesting are those of cel-go (parser.go, 250 levels).
Messages (`Type{field: 1}`) are refused, because a selector has no message types.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dra_sdk.cel.errors import CelCompileError
from dra_sdk.cel.lexer import RESERVED, Token, signed, tokens
from dra_sdk.cel.macros import expand
from dra_sdk.cel.syntax import CallNode, Expr, Ident, ListNode, Literal, MapNode, Select, depth, qualified_name

MAX_NESTING: Final = 250
"""How deep rules of the grammar, and the operators, selections and method calls of a tree, may nest in cel-go."""
MAX_DEPTH: Final = 300
"""How deep the tree may be after macros are expanded; what is deeper does not fit on Python's stack."""

_OR, _AND, _RELATION, _SUM, _PRODUCT = range(5)
_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
_BINARY: Final = {
    "||": (_OR, "_||_"),
    "&&": (_AND, "_&&_"),
    **{sign: (_RELATION, f"_{sign}_") for sign in ("<", "<=", ">", ">=", "==", "!=")},
    "in": (_RELATION, "@in"),
    **{sign: (_SUM, f"_{sign}_") for sign in "+-"},
    **{sign: (_PRODUCT, f"_{sign}_") for sign in "*/%"},
}


def parse(source: str, *, since_1_37: bool = True) -> Expr:
    """Return the syntax tree of an expression.

    CelCompileError with line and column if the text is no expression. `since_1_37` accepts names in backticks, and lets
    a leading dot mean that no local variable is meant.
    """
    tree = _ExpressionParser(source, since_1_37=since_1_37).parse()
    if depth(tree) > MAX_DEPTH:
        problem = f"the tree has more than {MAX_DEPTH} levels once macros are expanded, which is the limit of this SDK"
        raise CelCompileError.at(source, problem, tree.offset)
    return tree


class _Operator(NamedTuple):
    level: int
    offset: int
    function: str


class _Ternary:
    """The part `condition ? yes :` of a conditional whose last part is still to come."""

    __slots__ = ("condition", "height", "offset", "yes")

    def __init__(self, offset: int, condition: Expr, height: int) -> None:
        self.offset, self.condition, self.height = offset, condition, height
        self.yes: Expr | None = None


class _Bracket:
    """An open bracket, or the whole text: the expressions read so far, and the parts of the one being read.

    `rules`, `relations` and `sums` are how deep these rules of the grammar nest here. A height is how deep operators,
    selections and method calls nest in a tree; `height` is the greatest of the expressions read so far.
    """

    __slots__ = (
        "close", "height", "heights", "items", "keys", "name", "offset", "operands", "operators", "optional", "prefix",
        "relations", "rules", "sums", "target", "ternaries",
    )  # fmt: skip

    def __init__(self, close: str, offset: int, target: Expr | None = None, name: str = "", height: int = 0) -> None:
        self.close, self.offset, self.target, self.name, self.height = close, offset, target, name, height
        self.items: list[Expr] = []
        self.keys: list[Expr] = []
        self.optional: set[int] = set()
        self.operands: list[Expr] = []
        self.heights: list[int] = []
        self.operators: list[_Operator] = []
        self.ternaries: list[_Ternary] = []
        self.prefix: _Operator | None = None
        self.rules = self.relations = self.sums = 1

    def nest_in(self, outer: _Bracket) -> int:
        """Count the rules around this bracket; return how deep the deepest nests."""
        self.rules += outer.rules + len(outer.ternaries) - outer.awaits_colon
        self.relations += outer.relations + sum(1 for operator in outer.operators if operator.level == _RELATION)
        self.sums += outer.sums + sum(1 for operator in outer.operators if operator.level > _RELATION)
        return max(self.rules, self.relations, self.sums)

    @property
    def awaits_colon(self) -> bool:
        """Whether the `:` of a conditional is still to come."""
        return bool(self.ternaries) and self.ternaries[-1].yes is None

    def push(self, node: Expr, height: int) -> None:
        """Take the next operand."""
        if self.prefix:
            node, self.prefix = CallNode(self.prefix.offset, self.prefix.function, [node]), None
        self.operands.append(node)
        self.heights.append(height)

    def question(self, offset: int) -> None:
        """Take what was read as the condition of a conditional."""
        self.reduce(-1)
        self.ternaries.append(_Ternary(offset, self.operands.pop(), self.heights.pop()))

    def colon(self) -> None:
        """Take what was read as the first choice of the last conditional."""
        self.reduce(-1)
        part = self.ternaries[-1]
        part.yes, part.height = self.operands.pop(), max(part.height, self.heights.pop())

    def expression(self) -> Expr:
        """Take what was read as one expression, and begin the next one."""
        self.reduce(-1)
        tree, height = self.operands.pop(), self.heights.pop()
        while self.ternaries:
            part = self.ternaries.pop()
            assert part.yes is not None
            tree = CallNode(part.offset, "_?_:_", [part.condition, part.yes, tree])
            height = 1 + max(height, part.height)
        self.height = max(self.height, height)
        return tree

    def reduce(self, level: int) -> None:
        """Combine operands until the operator of the given level can follow."""
        operators = self.operators
        while operators and operators[-1].level >= level:
            last = operators[-1].level
            if last > _AND:
                self._combine()
            elif last > level:
                self._balance(last)
            else:
                return

    def _combine(self) -> None:
        _, offset, function = self.operators.pop()
        right, height = self.operands.pop(), self.heights.pop()
        self.operands[-1] = CallNode(offset, function, [self.operands[-1], right])
        self.heights[-1] = 1 + max(self.heights[-1], height)

    def _balance(self, level: int) -> None:
        start = len(self.operators)
        while start and self.operators[start - 1].level == level:
            start -= 1
        first = len(self.operands) - (len(self.operators) - start) - 1
        self.operands[first:] = [_balanced(self.operands[first:], self.operators[start:])]
        self.heights[first:] = [max(self.heights[first:])]
        del self.operators[start:]


Found = tuple[Expr, int]
"""An operand as far as it was read, with its height."""


class _ExpressionParser:
    def __init__(self, source: str, *, since_1_37: bool) -> None:
        self._source, self._since_1_37 = source, since_1_37
        self._tokens = tokens(source)
        self._next = 0
        self._brackets = [_Bracket("end", 0)]

    def parse(self) -> Expr:
        """Return the tree of the whole text."""
        whole = self._brackets[0]
        while not whole.items:
            operand = self._operand()
            while operand:
                operand = self._continue(*operand)
        if whole.height > MAX_NESTING:
            problem = f"operators, selections and calls are nested deeper than {MAX_NESTING} levels"
            raise self._error(problem, whole.items[0].offset)
        return whole.items[0]

    # Tokens and errors.

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def _accept(self, kind: str) -> bool:
        if self._tokens[self._next].kind != kind:
            return False
        self._next += 1
        return True

    def _expect(self, kind: str) -> None:
        if not self._accept(kind):
            raise self._unexpected("the end of the expression" if kind == "end" else repr(kind))

    def _unexpected(self, wanted: str) -> CelCompileError:
        return self._error(f"Syntax error: found {self._token.shown}, expected {wanted}", self._token.offset)

    def _error(self, problem: str, offset: int) -> CelCompileError:
        return CelCompileError.at(self._source, problem, offset)

    # Operands: each method returns one, or None if it opened a bracket.

    def _operand(self) -> Found | None:
        token = self._token
        if token.kind in {"-", "!"}:
            if (number := self._prefix(token)) is not None:
                return number, 0
            token = self._token
        self._next += 1
        if token.kind == "literal":
            return Literal(token.offset, token.value), 0
        if token.kind == "integer":
            return Literal(token.offset, signed(self._source, token, negative=False)), 0
        if token.kind in _CLOSING:
            return self._open(_Bracket(_CLOSING[token.kind], token.offset, name=token.kind))
        if token.kind == "name":
            return self._name(token, root=False)
        if token.kind != ".":
            self._next -= 1
            raise self._unexpected("an expression")
        return self._name(self._take_name(), root=True)

    def _take_name(self) -> Token:
        name = self._token
        if name.kind != "name":
            raise self._unexpected("a name")
        self._next += 1
        return name

    def _prefix(self, first: Token) -> Expr | None:
        """Read a run of one prefix operator; return the number if it is the sign of one."""
        count = 0
        while self._accept(first.kind):
            count += 1
        token = self._token
        if first.kind == "-" and count == 1:
            if token.kind == "integer":
                self._next += 1
                return Literal(first.offset, signed(self._source, token, negative=True))
            if token.kind == "literal" and isinstance(token.value, float):
                self._next += 1
                return Literal(first.offset, -token.value)
        if token.kind in {"-", "!"}:
            raise self._unexpected("an expression")
        if count % 2:
            self._brackets[-1].prefix = _Operator(_PRODUCT, first.offset, f"{first.kind}_")
        return None

    def _name(self, name: Token, *, root: bool) -> Found | None:
        if name.value in RESERVED or name.value == "in":
            raise self._error(f"reserved identifier: {name.value}", name.offset)
        if self._token.kind == "(":
            offset = self._token.offset
            self._next += 1
            return self._open(_Bracket(")", offset, name=f".{name.value}" if root else name.value))
        return Ident(name.offset, name.value, root and self._since_1_37), 0

    def _open(self, bracket: _Bracket) -> Found | None:
        """Open a bracket; if nothing is in it, close it at once and return what it holds."""
        outer = self._brackets[-1]
        self._brackets.append(bracket)
        if bracket.name != "(" and not (bracket.close == "]" and bracket.target):
            if self._accept(bracket.close):
                return self._close()
            if bracket.close != ")" and self._accept(","):
                self._expect(bracket.close)
                return self._close()
            self._mark_optional(bracket)
        if bracket.nest_in(outer) > MAX_NESTING:
            raise self._error(f"the expression is nested deeper than {MAX_NESTING} levels", bracket.offset)
        return None

    def _mark_optional(self, bracket: _Bracket) -> None:
        if bracket.close != ")" and self._accept("?"):
            bracket.optional.add(len(bracket.items))

    # What follows an operand.

    def _continue(self, node: Expr, height: int) -> Found | None:
        """Read the token after an operand: what it selects, the operator that follows, or the bracket that it ends."""
        token = self._token
        kind = token.kind
        if kind == ".":
            self._next += 1
            return self._selection(node, height, token.offset)
        if kind == "[":
            self._next += 1
            name = "_[?_]" if self._accept("?") else "_[_]"
            return self._open(_Bracket("]", token.offset, node, name, height))
        bracket = self._brackets[-1]
        bracket.push(node, height)
        if operator := _BINARY.get("in" if kind == "name" and token.value == "in" else kind):
            self._next += 1
            bracket.reduce(operator[0])
            bracket.operators.append(_Operator(operator[0], token.offset, operator[1]))
            self._check_nesting(bracket, token)
        elif kind == "?" and not bracket.awaits_colon:
            self._next += 1
            bracket.question(token.offset)
        elif kind == ":" and bracket.awaits_colon:
            self._next += 1
            bracket.colon()
            self._check_nesting(bracket, token)
        elif kind == "{" and (name := qualified_name(node)):
            raise self._message(name, token)
        elif bracket.awaits_colon:
            raise self._unexpected("':'")
        else:
            return self._item(bracket)
        return None

    def _check_nesting(self, bracket: _Bracket, token: Token) -> None:
        if max(bracket.rules + len(bracket.ternaries), bracket.relations, bracket.sums) < MAX_NESTING - 1:
            return  # An operand cannot nest more than two rules deeper.
        if _Bracket("", 0).nest_in(bracket) - 1 > MAX_NESTING:
            raise self._error(f"the expression is nested deeper than {MAX_NESTING} levels", token.offset)

    def _message(self, name: str, brace: Token) -> CelCompileError:
        if name.startswith("google.protobuf."):
            return self._error(f"this SDK cannot make messages such as {name}{{…}}; Kubernetes can", brace.offset)
        return self._error(f"undeclared reference to {name!r}: no message type", brace.offset)

    def _selection(self, operand: Expr, height: int, dot: int) -> Found | None:
        optional = self._accept("?")
        name = self._token
        if name.kind == "quoted" and not self._since_1_37:
            raise self._error("unsupported syntax: '`': names in backticks need Kubernetes 1.37", name.offset)
        if name.kind not in {"name", "quoted"} or (name.kind == "name" and name.value == "in"):
            raise self._unexpected("a name")
        self._next += 1
        if optional:
            return CallNode(dot, "_?._", [operand, Literal(name.offset, name.value)]), height + 1
        if name.kind == "name" and self._token.kind == "(":
            offset = self._token.offset
            self._next += 1
            return self._open(_Bracket(")", offset, operand, name.value, height))
        return Select(dot, operand, name.value), height + 1

    def _item(self, bracket: _Bracket) -> Found | None:
        """Take the expression that just ended; return what the bracket holds if that ends too."""
        tree = bracket.expression()
        if bracket.close == "}" and len(bracket.keys) == len(bracket.items):
            bracket.keys.append(tree)
            self._expect(":")
            return None
        bracket.items.append(tree)
        single = bracket.close == "end" or bracket.name == "(" or (bracket.close == "]" and bracket.target)
        if single or not self._accept(","):
            self._expect(bracket.close)
            return self._close() if bracket.close != "end" else None
        if self._token.kind == bracket.close:
            if bracket.close == ")":
                raise self._unexpected("an argument")
            self._next += 1
            return self._close()
        self._mark_optional(bracket)
        return None

    def _close(self) -> Found:
        """Make a node of a bracket that was just closed."""
        bracket = self._brackets.pop()
        items, offset, height = bracket.items, bracket.offset, bracket.height
        if bracket.close == "}":
            entries = list(zip(bracket.keys, items, strict=True))
            return MapNode(offset, entries, frozenset(bracket.optional)), height
        if bracket.close == "]":
            if bracket.target:
                return CallNode(offset, bracket.name, [bracket.target, *items]), height + 1
            return ListNode(offset, items, frozenset(bracket.optional)), height
        if bracket.name == "(":
            return items[0], height
        if bracket.name[0] == ".":
            return CallNode(offset, bracket.name[1:], items), height
        call = CallNode(offset, bracket.name, items, bracket.target)
        return expand(self._source, call) or call, height + (bracket.target is not None)


def _balanced(operands: list[Expr], operators: list[_Operator]) -> Expr:
    """Return a chain of one logical operator as a tree of logarithmic depth, as cel-go does; the order stays."""
    if not operators:
        return operands[0]
    middle = len(operators) // 2
    left = _balanced(operands[: middle + 1], operators[:middle])
    right = _balanced(operands[middle + 1 :], operators[middle + 1 :])
    return CallNode(operators[middle].offset, operators[middle].function, [left, right])
