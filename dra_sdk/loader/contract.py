"""Checks of a driver: its methods match `dra_sdk.hookspecs`, its DriverInfo and answers about containers are usable.

Unlike pluggy's messages, these name the author's class and method.
"""

from __future__ import annotations

import dis
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from types import CodeType
from typing import Any, Final

from dra_sdk import hookspecs
from dra_sdk.errors import DriverLoadError
from dra_sdk.model.config import CelRule, OpaqueConfig, wrong_defaults
from dra_sdk.model.container import ContainerAdjustment, ContainerResources
from dra_sdk.model.driver import DriverInfo
from dra_sdk.model.metric import Gauge
from dra_sdk.model.settings import DriverSettings
from dra_sdk.texts import closest

PREFIX: Final = "dra_"
HOOKS: Final = tuple(name for name in vars(hookspecs.DriverHooks) if name.startswith(PREFIX))
EXTENSION_HOOKS: Final = tuple(name for name in vars(hookspecs.ExtensionHooks) if name.startswith(PREFIX))
_KINDS: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
NAME_LIMIT: Final = 63
"""Characters of a driver name (resource.k8s.io/v1)."""
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_API_VERSION: Final = re.compile(rf"({_NAME.pattern}/)?v[0-9][a-z0-9]*")
_SHORTEST: Final = 2  # characters of a CDI vendor or class
_METRIC: Final = re.compile(r"(?!dra_sdk_)[a-zA-Z_][a-zA-Z0-9_]*")
_LABEL: Final = re.compile(r"(?!__|driver$)[a-zA-Z_][a-zA-Z0-9_]*")


def find_method(plugin: object, name: str) -> Any:
    """Return the method of this name, None if there is none. Unlike getattr it runs no property."""
    static = inspect.getattr_static(plugin, name, None)
    if isinstance(static, cached_property) or not inspect.isroutine(static):
        return None
    return getattr(plugin, name)


def has_hooks(value: object) -> bool:
    """Return whether `value` has a method with a hook's prefix."""
    return any(name.startswith(PREFIX) and find_method(value, name) is not None for name in dir(value))


def check_hooks(plugin: object, source: str, more: Sequence[str] = ()) -> None:
    """Raise DriverLoadError for the first method with a hook's prefix that is not a hook or takes other arguments.

    `more` are the names of hooks that the plugin may have beside those of drivers.
    """
    for name in dir(plugin):
        method = find_method(plugin, name) if name.startswith(PREFIX) else None
        if method is None:
            continue
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            raise DriverLoadError(f"{source}: hook {name} is async; hooks are ordinary blocking functions")
        if name not in HOOKS and name not in more:
            raise DriverLoadError(f"{source}: unknown hook {name!r}; hooks are {', '.join(HOOKS)}{_meant(name)}")
        if problem := _signature_problem(name, method):
            raise DriverLoadError(f"{source}: hook {name} {problem}")


def calls_journal(plugin: object) -> bool:
    """Return whether `dra_prepare` itself calls `claim.journal`, as far as its code shows; not what it calls."""
    function = inspect.unwrap(find_method(plugin, "dra_prepare"))
    codes = [code] if (code := getattr(function, "__code__", None)) else []
    for code in codes:
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return any(
        then.argval == "journal" and (first.argval == "claim" or first.argval[-1:] == ("claim",))
        for code in codes
        for first, then in pairwise(dis.get_instructions(code))
        if first.opname.startswith(("LOAD_FAST", "LOAD_DEREF"))
    )


def missing_hooks(plugin: object, lacking: list[str]) -> str:
    """Return a sentence about missing required hooks, and about methods with similar names."""
    names = lacking[0] if len(lacking) == 1 else f"{', '.join(lacking[:-1])} and {lacking[-1]}"
    lacks = f"lacks the required hook{'' if len(lacking) == 1 else 's'} {names}"
    return "; ".join([lacks, *_instead(plugin, lacking)])


def _instead(plugin: object, lacking: list[str]) -> Iterator[str]:
    for name in lacking:
        static = inspect.getattr_static(plugin, name, None)
        if static is not None:
            yield f"its {name} is a {type(static).__name__}, want a method"
        elif find_method(plugin, name.removeprefix(PREFIX)) is not None:
            yield f"its method {name.removeprefix(PREFIX)} would be a hook if it were called {name}"


def _meant(name: str) -> str:
    choice = closest(name.removeprefix(PREFIX), [hook.removeprefix(PREFIX) for hook in HOOKS])
    return f"; did you mean {PREFIX}{choice}?" if choice is not None else ""


def _signature_problem(name: str, method: Any) -> str:
    """Return why a method cannot be called with the hook's arguments; empty if it can."""
    spec = getattr(hookspecs.DriverHooks if name in HOOKS else hookspecs.ExtensionHooks, name)
    given = [parameter for parameter in inspect.signature(spec).parameters if parameter != "self"]
    offered = f"it may take {', '.join(given)}" if given else "it takes none"
    try:
        parameters = inspect.signature(method).parameters.values()
    except ValueError:  # a method without a first parameter
        return "must take self first"
    needed = [parameter for parameter in parameters if parameter.default is parameter.empty]
    unknown = [parameter.name for parameter in needed if parameter.kind in _KINDS and parameter.name not in given]
    unknown += [parameter.name for parameter in needed if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
    return f"asks for {', '.join(unknown)}, which it is not given; apart from self {offered}" if unknown else ""


def settings_class(target: object, source: str) -> type[DriverSettings] | None:
    """Return the class of a driver's settings, None if it has no settings. DriverLoadError if it is unusable."""
    settings = getattr(target, "settings_class", None)
    if settings is None:
        return None
    if not (inspect.isclass(settings) and issubclass(settings, DriverSettings) and settings is not DriverSettings):
        raise DriverLoadError(f"{source}: settings_class must be a subclass of DriverSettings, is {settings!r}")
    return settings


def check_info(info: Any, source: str) -> None:
    """Raise DriverLoadError for the first problem of a DriverInfo."""
    if not isinstance(info, DriverInfo):
        raise DriverLoadError(f"{source}: dra_driver_info returned {info!r}, want a DriverInfo")
    for problem in _problems(info):
        raise DriverLoadError(f"{source}: {problem}")


def _problems(info: Any) -> Iterator[str]:
    if not isinstance(info.name, str) or len(info.name) > NAME_LIMIT or not _NAME.fullmatch(info.name):
        yield f"driver name {info.name!r} must be a lower-case DNS subdomain of at most {NAME_LIMIT} characters"
    yield from _cdi_problems(str(info.cdi_kind), info.name)
    if not isinstance(info.configs, Sequence) or not all(_is_config(config) for config in info.configs):
        yield f"configs must be a list of OpaqueConfig classes, is {info.configs!r}"
    yield from _config_problems(info)
    if isinstance(info.capture, str) or not all(str(pattern).startswith("/") for pattern in info.capture):
        yield f"capture must be a list of absolute patterns such as /sys/class/fpga/*, is {info.capture!r}"


def _cdi_problems(kind: str, name: str) -> Iterator[str]:
    parts = kind.split("/")
    if len(parts) != 2:  # noqa: PLR2004 (vendor and class)
        yield f"CDI kind {kind!r} must be vendor/class, such as {name}/device"
    if any(len(part) < _SHORTEST for part in parts):
        yield f"CDI kind {kind!r}: vendor and class need two characters or more; containerd 2.1 crashes on one"


def _config_problems(info: DriverInfo) -> Iterator[str]:
    kinds: set[tuple[str, str]] = set()
    for config in info.configs:
        name = config.__name__
        if not config.api_version:
            example = f'class {name}(OpaqueConfig, api_version="{info.name}/v1")'
            yield f"config class {name} needs an API version: {example}"
        if not _API_VERSION.fullmatch(str(config.api_version)):
            yield f"config class {name}: API version {config.api_version!r} must be like {info.name}/v1"
        if (config.api_version, config.kind) in kinds:
            yield f"two config classes share apiVersion {config.api_version} and kind {config.kind}"
        kinds.add((config.api_version, config.kind))
        rules: object = config.cel_rules
        if not isinstance(rules, Sequence) or not all(isinstance(rule, CelRule) for rule in rules):
            yield f"config class {name}: cel_rules must be a tuple of CelRule, is {rules!r:.200}"
        for problem in wrong_defaults(config):
            yield f"config class {name}: {problem}"


def _is_config(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, OpaqueConfig)


def adjustment_problem(adjustment: ContainerAdjustment) -> str:
    """Return why an answer of `dra_create_container` cannot be sent to the container runtime; empty if it can."""
    for name in ("env", "annotations"):
        values: object = getattr(adjustment, name)
        if not isinstance(values, Mapping) or not all(_is_text(*item) for item in values.items()):
            return f"{name} must be a mapping of text to text, is {values!r}"
        if wrong := [name for name in values if not name or name.startswith("-") or "=" in name]:
            return f"{name}: {wrong[0]!r} is not a name; it would remove another one, or be read as something else"
    return resources_problem(adjustment.resources)


def resources_problem(resources: object) -> str:
    """Return why the resources of a container cannot be sent to the container runtime; empty if they can."""
    if not isinstance(resources, ContainerResources):
        return f"resources must be ContainerResources, are {resources!r}"
    quota: object = resources.cpu_quota
    if quota is not None and not (_is_number(quota, 1) or quota == -1):
        return f"cpu_quota must be a number of microseconds, or -1 for no limit, is {quota!r}"
    limits: object = resources.hugepage_limits
    if not isinstance(limits, Mapping) or not all(
        _is_text(size) and _is_number(limit) for size, limit in limits.items()
    ):
        return f"hugepage_limits must be bytes by page size, is {limits!r}"
    return _set_problem("cpus", resources.cpus) or _set_problem("mems", resources.mems)


def gauges_problem(gauges: Sequence[Gauge]) -> str:
    """Return why values of `dra_metrics` cannot be shown to Prometheus; empty if they can."""
    families: dict[str, tuple[str, frozenset[str]]] = {}
    known: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    for gauge in gauges:
        if problem := _gauge_problem(gauge):
            return problem
        family = gauge.help, frozenset(gauge.labels)
        if families.setdefault(gauge.name, family) != family:
            return f"values of {gauge.name} differ in their help or in the names of their labels"
        value = gauge.name, frozenset(gauge.labels.items())
        if value in known:
            return f"{gauge.name} has two values for the labels {dict(gauge.labels)}"
        known.add(value)
    return ""


def _gauge_problem(gauge: Gauge) -> str:
    name: object = gauge.name
    if not isinstance(name, str) or not _METRIC.fullmatch(name):
        return f"{name!r} must be letters, digits and _, and not begin with dra_sdk_"
    labels: object = gauge.labels
    if not isinstance(labels, Mapping) or not all(_is_text(*item) for item in labels.items()):
        return f"labels of {name} must be a mapping of text to text, are {labels!r}"
    if wrong := [label for label in labels if not _LABEL.fullmatch(label)]:
        return f"{name}: {wrong[0]!r} is no label of a driver's own; driver and names with __ are taken"
    value: object = gauge.value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"the value of {name} must be a number, is {value!r}"
    text: object = gauge.help
    return "" if isinstance(text, str) else f"the help of {name} must be text, is {text!r}"


def _set_problem(name: str, numbers: object) -> str:
    if numbers is None:
        return ""
    if not isinstance(numbers, frozenset | set) or not set(map(type, numbers)) <= {int}:
        return f"{name} must be a set of numbers, is {numbers!r}"
    if not numbers:
        return f"{name} is the empty set, which a container runtime takes as unchanged; None leaves it as it is"
    return f"{name} has {min(numbers)}, which is less than 0" if min(numbers) < 0 else ""


def _is_text(*values: object) -> bool:
    return all(isinstance(value, str) for value in values)


def _is_number(value: object, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
