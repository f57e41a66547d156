"""Whether the methods of a plugin are hooks as `dra_sdk.hookspecs` has them; pluggy's own words are about pluggy."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

from dra_sdk import hookspecs
from dra_sdk.errors import DriverLoadError

PREFIX: Final = "dra_"
HOOKS: Final = tuple(name for name in vars(hookspecs.DriverHooks) if name.startswith(PREFIX))
_KINDS: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def method(plugin: object, name: str) -> Any:
    """The method of this name, else None; unlike getattr it runs no code of a property."""
    static = inspect.getattr_static(plugin, name, None)
    if isinstance(static, cached_property) or not inspect.isroutine(static):
        return None
    return getattr(plugin, name)


def has_hooks(value: object) -> bool:
    """Whether it has any method that is called like a hook."""
    return any(name.startswith(PREFIX) and method(value, name) is not None for name in dir(value))


def check_hooks(plugin: object, source: str) -> None:
    """DriverLoadError for the first method that is called like a hook and is none, or cannot be called as one."""
    for name in dir(plugin):
        found = method(plugin, name) if name.startswith(PREFIX) else None
        if found is None:
            continue
        if inspect.iscoroutinefunction(found) or inspect.isasyncgenfunction(found):
            raise DriverLoadError(f"{source}: hook {name} is async; hooks are ordinary blocking functions")
        if name not in HOOKS:
            raise DriverLoadError(f"{source}: unknown hook {name!r}{_meant(name)}; hooks are {', '.join(HOOKS)}")
        if problem := _signature_problem(name, found):
            raise DriverLoadError(f"{source}: hook {name} {problem}")


def missing(plugin: object, lacking: list[str]) -> str:
    """Required hooks that a plugin lacks, in words, with what stands in their place."""
    names = lacking[0] if len(lacking) == 1 else f"{', '.join(lacking[:-1])} and {lacking[-1]}"
    told = f"lacks the required hook{'' if len(lacking) == 1 else 's'} {names}"
    return "; ".join([told, *_instead(plugin, lacking)])


def _instead(plugin: object, lacking: list[str]) -> Iterator[str]:
    for name in lacking:
        static = inspect.getattr_static(plugin, name, None)
        if static is not None:
            yield f"its {name} is a {type(static).__name__}, want a method"
        elif method(plugin, name.removeprefix(PREFIX)) is not None:
            yield f"its method {name.removeprefix(PREFIX)} would be a hook if it were called {name}"


def _meant(name: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 (for those who mistype)

    close = get_close_matches(name.removeprefix(PREFIX), [each.removeprefix(PREFIX) for each in HOOKS], 1)
    return f" (did you mean {PREFIX}{close[0]}?)" if close else ""


def _signature_problem(name: str, found: Any) -> str:
    """What keeps it from being called with the arguments of its contract; empty for nothing."""
    given = [each for each in inspect.signature(getattr(hookspecs.DriverHooks, name)).parameters if each != "self"]
    offered = f"it may take {', '.join(given)}" if given else "it takes none"
    try:
        parameters = inspect.signature(found).parameters.values()
    except ValueError:  # a method without a first parameter
        return "must take self first"
    needed = [each for each in parameters if each.default is each.empty]
    unknown = [each.name for each in needed if each.kind in _KINDS and each.name not in given]
    unknown += [each.name for each in needed if each.kind is inspect.Parameter.KEYWORD_ONLY]
    return f"asks for {', '.join(unknown)}, which it is not given; besides self {offered}" if unknown else ""
