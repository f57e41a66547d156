"""The pages of the reference about names that a driver imports: signatures and docstrings."""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from docs.site.markdown import anchor, escaped, prose, sentence, table
from docs.site.signatures import signature
from dra_sdk.hookspecs import OF_CONTAINERS, REQUIRED, DriverHooks, ExtensionHooks

_LINES: Final = 12
"""Of an assignment that is shown."""


def hooks() -> str:
    """Return the page of the hooks, with their contract."""
    module = inspect.getmodule(DriverHooks)
    members = [
        (name, hook)
        for owner in (DriverHooks, ExtensionHooks)
        for name, hook in inspect.getmembers(owner, inspect.isfunction)
        if name.startswith("dra_")
    ]
    rows = [(f"[`{name}`](#{name})", _kind(name), sentence(hook.__doc__)) for name, hook in members]
    parts = ["# Hooks\n", prose(module.__doc__ if module else ""), table(("hook", "kind", "what"), rows)]
    for name, hook in members:
        parts.append(f"## {name}\n\n*{_kind(name)}*\n\n{_block(signature(name, hook))}\n{prose(hook.__doc__)}")
    return "\n".join(parts)


def _kind(hook: str) -> str:
    if hasattr(ExtensionHooks, hook):
        return "for extensions"
    return "required" if hook in REQUIRED else "for pods and containers" if hook in OF_CONTAINERS else "optional"


def names(title: str, *modules: str, shown: Callable[[Any], bool] = lambda _: True) -> str:
    """Return the page of the public names of modules, of those with a value that is `shown`."""
    loaded = [import_module(path) for path in modules]
    listed = {
        module.__name__: [name for name in public_names(module) if shown(getattr(module, name))] for module in loaded
    }
    often = {name for name, number in Counter(name for part in listed.values() for name in part).items() if number > 1}
    rows = [(f"[`{path}`](#{anchor(path)})", sentence(import_module(path).__doc__)) for path in modules]
    parts = [f"# {title}\n", *([table(("module", "what"), rows)] if len(rows) > 1 else [])]
    for module in loaded:
        last = module.__name__.rpartition(".")[2]
        headings = {name: f"{last}.{name}" if name in often else name for name in listed[module.__name__]}
        parts += [f"## {module.__name__}\n", prose(module.__doc__), _overview(module, headings)]
        parts += [f"### {heading}\n\n{_described(module, name)}" for name, heading in headings.items()]
    return "\n".join(parts)


def public_names(module: ModuleType) -> list[str]:
    """Return `__all__`, or the public classes and functions that a module defines."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(listed, key=str.lower)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == module.__name__
    ]


def _overview(module: ModuleType, headings: dict[str, str]) -> str:
    rows = [
        (f"[`{name}`](#{anchor(heading)})", sentence(_docstring(module, name))) for name, heading in headings.items()
    ]
    return table(("name", "what"), rows)


def _docstring(module: ModuleType, name: str) -> str | None:
    value = getattr(module, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        return inspect.getdoc(value)
    return _assignments(module.__name__.partition(".")[0]).get(name, ("", ""))[1]


def _described(module: ModuleType, name: str) -> str:
    value, text = getattr(module, name), prose(_docstring(module, name))
    if inspect.isclass(value):
        return "\n".join([*_base(value), *_constructor(name, value), text, *_members(name, value)])
    if inspect.isfunction(value):
        return f"{_block(signature(name, value))}\n{text}"
    source, _ = _assignments(module.__name__.partition(".")[0]).get(name, ("", ""))
    return f"{_block(source)}\n{text}" if source else text


def _base(value: type) -> Iterator[str]:
    """Yield the base class of an error, which says where it can be caught."""
    if issubclass(value, Exception):
        yield f"Base: `{value.__bases__[0].__name__}`.\n"


def _constructor(name: str, value: type) -> Iterator[str]:
    if (is_dataclass(value) or "__init__" in vars(value)) and not issubclass(value, Exception):
        yield _block(signature(name, value))


def _members(name: str, value: type) -> Iterator[str]:
    """Yield a list of the public methods and properties."""
    lines = []
    for attribute, member in vars(value).items():
        function = inspect.unwrap(getattr(member, "__func__", getattr(member, "fget", getattr(member, "func", member))))
        if not attribute.startswith("_") and inspect.isfunction(function) and function.__doc__:
            called = member is function or isinstance(member, staticmethod | classmethod)
            call = signature("", function, folded=False) if called else ""
            text = " ".join(inspect.cleandoc(function.__doc__).split())
            lines.append(f"- `{name}.{attribute}{call}`: {escaped(text)}")
    if lines:
        yield "\n".join(lines) + "\n"


def _block(code: str) -> str:
    return f"```python\n{code}\n```\n"


@cache
def _assignments(package: str) -> dict[str, tuple[str, str]]:
    """Return the assignments of a package that a docstring follows: source and docstring by name."""
    found: dict[str, tuple[str, str]] = {}
    for path in sorted(Path(import_module(package).__path__[0]).rglob("*.py")):
        if path.name.endswith("_pb2.py"):
            continue
        source = path.read_text(encoding="utf-8")
        body = ast.parse(source).body
        for statement, following in zip(body, [*body[1:], ast.Pass()], strict=True):
            if isinstance(statement, ast.Assign | ast.AnnAssign) and (name := _target(statement)):
                text, code = _text(following), ast.get_source_segment(source, statement) or ""
                if text or isinstance(statement, ast.AnnAssign):
                    found.setdefault(name, (code if code.count("\n") < _LINES else "", text))
    return found


def _target(statement: ast.Assign | ast.AnnAssign) -> str:
    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    return target.id if isinstance(target, ast.Name) else ""


def _text(statement: ast.stmt) -> str:
    """Return the docstring that a statement is; empty if it is none."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return statement.value.value if isinstance(statement.value.value, str) else ""
    return ""
