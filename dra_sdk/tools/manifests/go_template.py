"""The part of Go's `text/template` that the chart's templates use: parsing and evaluation.

Known are texts, comments, `{{-` and `-}}`, pipelines, variables, `if`, `else if`, `else`, `range`, `with` and `define`.
Everything else is an error that names the template and the line, so a template that Helm renders in another way is
noticed. Functions come from the caller. Source: https://pkg.go.dev/text/template.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dra_sdk.errors import DraError

Function = Callable[..., Any]
_ACTION: Final = re.compile(r"\{\{(-(?=\s))?(.*?)((?<=\s)-)?\}\}", re.DOTALL)
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*"|`[^`]*`)|(?P<number>-?\d+)|(?P<path>(?:\$\w*|\.)?(?:\.?[A-Za-z_]\w*)(?:\.\w+)*"""
    r"""|\$\w*|\.)|(?P<sign>:=|=|\||\(|\)|,))"""
)
_CONSTANTS: Final = {"true": True, "false": False, "nil": None}


class TemplateError(DraError):
    """A template that cannot be read or rendered; the message names it and the line."""


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str


@dataclass
class _Block:
    """A node of a template: a text, an output, an assignment, or a keyword with its branches.

    kind: text, output, if, range or with.
    line: where it begins.
    text: of a text.
    variables: what `:=` or `=` gives a value.
    declares: whether it is `:=`.
    pipeline: the tokens of its expression.
    body: what is rendered if the pipeline's value is not empty.
    otherwise: what is rendered if it is.
    """

    kind: str
    line: int
    text: str = ""
    variables: tuple[str, ...] = ()
    declares: bool = True
    pipeline: tuple[_Token, ...] = ()
    body: list[_Block] = field(default_factory=list)
    otherwise: list[_Block] = field(default_factory=list)


class Template:
    """One parsed file.

    name: what errors call it.
    blocks: its content outside of definitions.
    definitions: its `define` blocks by name.
    """

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.definitions: dict[str, list[_Block]] = {}
        self.blocks: list[_Block] = []
        _TemplateParser(self, text).parse()


class _TemplateParser:
    def __init__(self, template: Template, text: str) -> None:
        self._template = template
        self._pieces = list(_pieces(text))
        self._next = 0

    def parse(self) -> None:
        end, line, _ = self._parse_into(self._template.blocks)
        if end:
            raise self._error(line, f"`{end}` without a block")

    def _parse_into(self, blocks: list[_Block]) -> tuple[str, int, list[_Token]]:
        """Read blocks until `end` or `else`; return that word, its line, and the words after it."""
        while self._next < len(self._pieces):
            is_action, text, line = self._pieces[self._next]
            self._next += 1
            if not is_action:
                blocks.append(_Block("text", line, text))
                continue
            tokens = self._tokens(text, line)
            keyword = tokens[0].text if tokens[0].kind == "path" else ""
            if keyword in {"end", "else"}:
                return keyword, line, tokens[1:]
            if keyword == "define":
                self._define(tokens, line)
            elif keyword in {"if", "range", "with"}:
                blocks.append(self._branches(keyword, tokens[1:], line))
            elif keyword in {"template", "block", "break", "continue"}:
                raise self._error(line, f"`{keyword}` is not supported")
            else:
                blocks.append(self._simple("output", tokens, line))
        return "", 0, []

    def _define(self, tokens: Sequence[_Token], line: int) -> None:
        if len(tokens) != 2 or tokens[1].kind != "string":  # noqa: PLR2004 (the keyword and the name)
            raise self._error(line, "want `define` and a name")
        body: list[_Block] = []
        if self._parse_into(body)[0] != "end":
            raise self._error(line, "`define` without `end`")
        self._template.definitions[json.loads(tokens[1].text)] = body

    def _branches(self, keyword: str, tokens: Sequence[_Token], line: int) -> _Block:
        block = self._simple(keyword, tokens, line)
        word, at, rest = self._parse_into(block.body)
        if word == "else" and rest:
            if keyword != "if" or rest[0].text != "if":
                raise self._error(at, "only `else` and `else if` are supported")
            block.otherwise = [self._branches("if", rest[1:], at)]
            return block
        if word == "else":
            word, at, _ = self._parse_into(block.otherwise)
        if word != "end":
            raise self._error(line, f"`{keyword}` without `end`")
        return block

    def _simple(self, kind: str, tokens: Sequence[_Token], line: int) -> _Block:
        """Return a pipeline, with the variables that it sets."""
        signs = [number for number, token in enumerate(tokens) if token.text in {":=", "="} and token.kind == "sign"]
        if not signs:
            return _Block(kind, line, pipeline=tuple(tokens))
        names = [token for token in tokens[: signs[0]] if token.text != ","]
        if any(not re.fullmatch(r"\$\w+", name.text) for name in names):
            raise self._error(line, "only variables can be set")
        return _Block(
            kind,
            line,
            variables=tuple(name.text for name in names),
            declares=tokens[signs[0]].text == ":=",
            pipeline=tuple(tokens[signs[0] + 1 :]),
        )

    def _tokens(self, text: str, line: int) -> list[_Token]:
        tokens, at = [], 0
        text = text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._error(line, f"cannot read `{text[at:].strip()}`")
            tokens.append(_Token(match.lastgroup or "", match.group(match.lastgroup or 0)))
            at = match.end()
        if not tokens:
            raise self._error(line, "an empty action")
        return tokens

    def _error(self, line: int, problem: str) -> TemplateError:
        return TemplateError(f"template {self._template.name}, line {line}: {problem}")


def _pieces(text: str) -> Iterator[tuple[bool, str, int]]:
    """Yield texts and actions with their lines; texts are trimmed as `{{-` and `-}}` ask."""
    at, trim = 0, False
    for match in _ACTION.finditer(text):
        before = text[at : match.start()]
        before = before.lstrip() if trim else before
        before = before.rstrip() if match[1] else before
        if before:
            yield False, before, text.count("\n", 0, at) + 1
        if not match[2].strip().startswith("/*"):
            yield True, match[2], text.count("\n", 0, match.start()) + 1
        at, trim = match.end(), bool(match[3])
    rest = text[at:].lstrip() if trim else text[at:]
    if rest:
        yield False, rest, text.count("\n", 0, at) + 1


class Renderer:
    """Renders templates that share their definitions.

    functions: by name. `include` is added: it renders a definition.
    """

    def __init__(self, templates: Sequence[Template], functions: Mapping[str, Function]) -> None:
        self._definitions = {name: (source, body) for source in templates for name, body in source.definitions.items()}
        self._functions: dict[str, Function] = {**functions, "include": self._include}

    def render(self, template: Template, data: Any) -> str:
        """Return the text of a template."""
        return _Evaluation(template.name, self._functions, data).run(template.blocks)

    def _include(self, name: str, data: Any) -> str:
        if name not in self._definitions:
            raise ValueError(f"include of {name!r}, which no template defines")
        template, body = self._definitions[name]
        return _Evaluation(template.name, self._functions, data).run(body)


class _Evaluation:
    """One run of a template. `scopes` are the variables of the blocks around, the innermost last."""

    def __init__(self, name: str, functions: Mapping[str, Function], data: Any) -> None:
        self._name, self._functions = name, functions
        self._scopes: list[dict[str, Any]] = [{"$": data}]
        self._dot = data

    def run(self, blocks: Sequence[_Block]) -> str:
        return "".join(self._rendered(block) for block in blocks)

    def _rendered(self, block: _Block) -> str:
        if block.kind == "text":
            return block.text
        value = self._value_of(block)
        if block.kind == "range":
            return self._range(block, value)
        if block.kind == "output":
            if block.variables:
                self._set(block, (value,))
                return ""
            try:
                return shown(value)
            except TypeError as error:
                raise self._error(block, str(error)) from error
        # What is empty in Go is false in Python too: false, 0, nil, "", a map and a list without items.
        chosen = block.body if value else block.otherwise
        return self._inside(block, chosen, value if block.kind == "with" and value else self._dot, (value,))

    def _range(self, block: _Block, value: Any) -> str:
        pairs = sorted(value.items()) if isinstance(value, Mapping) else list(enumerate(value or ()))
        if not pairs:
            return self._inside(block, block.otherwise, self._dot, ())
        last = len(block.variables)  # none, the item, or key and item
        return "".join(
            self._inside(block, block.body, item, (key, item)[2 - last :] if last else ()) for key, item in pairs
        )

    def _inside(self, block: _Block, body: Sequence[_Block], dot: Any, values: Sequence[Any]) -> str:
        outer = self._dot
        self._scopes.append({})
        if block.variables and values:
            self._set(block, values)
        self._dot = dot
        try:
            return self.run(body)
        finally:
            self._scopes.pop()
            self._dot = outer

    def _set(self, block: _Block, values: Sequence[Any]) -> None:
        for name, value in zip(block.variables, values, strict=True):
            if block.declares:
                self._scopes[-1][name] = value
                continue
            scope = next((scope for scope in reversed(self._scopes) if name in scope), None)
            if scope is None:
                raise self._error(block, f"variable {name} is not declared")
            scope[name] = value

    def _value_of(self, block: _Block) -> Any:
        tokens = list(block.pipeline)
        try:
            value = self._pipeline(tokens)
        except TemplateError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise self._error(block, str(error)) from error
        if tokens:
            raise self._error(block, f"cannot read `{tokens[0].text}`")
        return value

    def _pipeline(self, tokens: list[_Token]) -> Any:
        """Return the value of commands joined by `|`; each gets the value before it as its last argument."""
        value = self._command(tokens, [])
        while tokens and tokens[0].text == "|":
            tokens.pop(0)
            value = self._command(tokens, [value])
        return value

    def _command(self, tokens: list[_Token], piped: list[Any]) -> Any:
        if not tokens:
            raise ValueError("an expression is missing")
        first = tokens.pop(0)
        is_name = first.kind == "path" and first.text not in _CONSTANTS and first.text[0] not in "$."
        if is_name and first.text not in self._functions:
            raise ValueError(f"function {first.text!r} is not supported")
        callee = self._functions[first.text] if is_name else self._operand(first, tokens)
        given = []
        while tokens and tokens[0].text not in {"|", ")"}:
            given.append(self._operand(tokens.pop(0), tokens))
        if callable(callee):
            return callee(*given, *piped)
        if given or piped:
            raise ValueError(f"`{first.text}` is no function")
        return callee

    def _operand(self, token: _Token, tokens: list[_Token]) -> Any:
        if token.text == "(":
            value = self._pipeline(tokens)
            if not tokens or tokens.pop(0).text != ")":
                raise ValueError("`(` without `)`")
            return value
        if token.kind == "string":
            return token.text[1:-1] if token.text[0] == "`" else json.loads(token.text)
        if token.kind == "number":
            return int(token.text)
        if token.text in _CONSTANTS:
            return _CONSTANTS[token.text]
        if token.kind == "path" and token.text[0] in "$.":
            return self._path(token.text)
        raise ValueError(f"cannot read `{token.text}`")

    def _path(self, text: str) -> Any:
        start, *names = text.split(".")
        value = self._dot
        if start:
            scope = next((scope for scope in reversed(self._scopes) if start in scope), None)
            if scope is None:
                raise ValueError(f"variable {start} is not declared")
            value = scope[start]
        for name in filter(None, names):
            if value is None:
                raise ValueError(f"`{text}`: there is no map that could have {name!r}")
            value = value.get(name) if isinstance(value, Mapping) else getattr(value, name)
        return value

    def _error(self, block: _Block, problem: str) -> TemplateError:
        return TemplateError(f"template {self._name}, line {block.line}: {problem}")


def shown(value: Any) -> str:
    """Return a value as the template prints it. A map or a list is an error: Go prints a form that is no YAML."""
    if isinstance(value, (Mapping, list)):
        raise TypeError("a map or a list cannot be printed; use toYaml")
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
