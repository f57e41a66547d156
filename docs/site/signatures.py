"""How a function or class is called, as its author wrote it: the same for every release of Python."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from json import dumps
from pathlib import PurePath
from typing import Any, Final

WIDTH: Final = 100
"""Of a signature in one line."""
_BASES: Final = {"mode": "#o", "vendor": "#06x", "device": "#06x", "class_code": "#08x"}
"""How numbers are written that nobody writes in decimal, by the name of their parameter."""


def signature(name: str, value: Callable[..., Any], *, folded: bool = True) -> str:
    """Return how a function or class is called; folded to one line for each parameter if it is long."""
    called = inspect.signature(value)
    parameters = list(_parameters(called.parameters.values()))
    ending = called.return_annotation
    returned = "" if ending is called.empty or inspect.isclass(value) else f" -> {_type(ending)}"
    line = f"{name}({', '.join(parameters)}){returned}"
    if folded and len(line) > WIDTH:
        return "\n".join([f"{name}(", *(f"    {parameter}," for parameter in parameters), f"){returned}"])
    return line


def _parameters(parameters: Iterable[inspect.Parameter]) -> Iterator[str]:
    """Yield parameters as they are written, with `*` before those that have a name in every call."""
    starred = False
    for parameter in parameters:
        if parameter.name in {"self", "cls"}:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        starred = starred or parameter.kind is parameter.VAR_POSITIONAL
        stars = (
            "*"
            if parameter.kind is parameter.VAR_POSITIONAL
            else "**"
            if parameter.kind is parameter.VAR_KEYWORD
            else ""
        )
        kind = "" if parameter.annotation is parameter.empty else f": {_type(parameter.annotation)}"
        default = "" if parameter.default is parameter.empty else f" = {_default(parameter.name, parameter.default)}"
        yield f"{stars}{parameter.name}{kind}{default}"


def _type(annotation: object) -> str:
    """Return a type as it is written, without quotes around it, and without the package of its name."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\bdra_sdk(?:\.[a-z]\w*)+\.", "", text.strip("'\""))


def _default(name: str, value: object) -> str:
    """Return a default as it is written; `…` for one that has no short text of its own."""
    text = "…"
    match value:
        case str():
            text = dumps(value, ensure_ascii=False)
        case int() if name in _BASES:
            text = format(value, _BASES[name])
        case PurePath():
            text = f'Path("{value}")'
        case bool() | None | int() | float() | bytes():
            text = repr(value)
        case tuple() | frozenset() if all(isinstance(item, str | int) for item in value):
            text = repr(value).replace("'", '"')
        case Enum():
            text = str(value)
        case _ if (inspect.isclass(value) or inspect.isfunction(value)) and value.__name__.isidentifier():
            text = value.__name__
    return text
