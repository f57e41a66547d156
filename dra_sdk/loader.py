"""Finding, loading and calling a driver: entry points in front, one pluggy manager per driver behind.

Drivers are advertised under the entry-point group `dra_sdk.drivers` as `name = "package:DriverClass"`. Our own loader
stands in for pluggy's, because there a second entry point of the same name is skipped in silence, one failing
import stops the rest, a misspelt hook registers fine, and with two drivers in one manager the wrong one answers.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pluggy

from dra_sdk import hookspecs
from dra_sdk.errors import DriverLoadError
from dra_sdk.model.config import OpaqueConfig
from dra_sdk.model.driver import DriverInfo

DRIVERS = "dra_sdk.drivers"
EXTENSIONS = "dra_sdk.extensions"
NAME_LIMIT = 63  # characters of a driver name (resource.k8s.io/v1)
_DRIVER_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class _Manager(pluggy.PluginManager):
    """A plugin manager for which every method named `dra_*` is a hook, decorated or not."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> Any:
        if _method(plugin, name) is None:
            return None
        opts = super().parse_hookimpl_opts(plugin, name)
        return {} if opts is None and name.startswith("dra_") else opts


def iter_drivers() -> list[EntryPoint]:
    """All advertised drivers, sorted by name, without importing any."""
    return sorted(entry_points(group=DRIVERS), key=lambda found: (found.name, found.value))


def origin(found: EntryPoint) -> str:
    """Name and version of the distribution that advertises an entry point."""
    return f"{found.dist.name} {found.dist.version}" if found.dist else "an unknown distribution"


def find_driver(name: str) -> EntryPoint:
    """The one entry point called `name`; DriverLoadError where there is none, or more than one."""
    known = iter_drivers()
    matches = {(each.value, origin(each)): each for each in known if each.name == name}
    if not matches:
        listed = ", ".join(sorted({each.name for each in known})) or "none"
        raise DriverLoadError(f"unknown driver {name!r}; installed drivers: {listed} (see `dra-sdk drivers`)")
    if len(matches) > 1:
        where = " and ".join(f"{each.value} of {origin(each)}" for each in matches.values())
        raise DriverLoadError(f"driver {name!r} is advertised more than once: {where}; uninstall one of them")
    return next(iter(matches.values()))


def load_driver(name: str) -> Driver:
    """Import, instantiate and check one driver; `name` is an entry point, or `module:Class` for one not installed.

    A module that is not installed may lie in the working directory.

    Raises DriverLoadError with the driver, its distribution and the reason.
    """
    if ":" in name:
        if os.getcwd() not in sys.path:  # noqa: PTH109 (as in sys.path); a file that lies here, as `python -m` finds it
            sys.path.append(os.getcwd())  # noqa: PTH109
        found, source = EntryPoint(name, name, DRIVERS), f"driver {name!r}"
    else:
        found = find_driver(name)
        source = f"driver {name!r} ({found.value} of {origin(found)})"
    driver = Driver(source)
    driver.register(_construct(found, source))
    for extension in entry_points(group=EXTENSIONS):
        label = f"extension {extension.name!r} ({extension.value} of {origin(extension)})"
        driver.extend(_construct(extension, label), label)
    driver.check()
    return driver


def _construct(found: EntryPoint, source: str) -> object:
    try:
        target = found.load()
        return target() if inspect.isclass(target) else target
    except (Exception, SystemExit) as error:  # whatever an import can raise is the author's to see
        raise DriverLoadError(f"{source} failed to load: {type(error).__name__}: {error}") from error


class Driver:
    """One loaded driver: `call` runs its hooks, `info` is what it said about itself (after `check`).

    `observe` is entered around every run of a hook that ends by itself; the process measures with it.
    """

    info: DriverInfo

    def __init__(self, source: str) -> None:
        self.source = source
        self.observe: Callable[[str], AbstractContextManager[None]] = lambda _hook: nullcontext()
        self._manager = _Manager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs.DriverHooks)

    @classmethod
    def of(cls, plugin: object, extensions: Iterable[object] = ()) -> Driver:
        """A driver from an instance, as tests want it."""
        driver = cls(f"driver {type(plugin).__module__}:{type(plugin).__qualname__}")
        driver.register(plugin)
        for each in extensions:
            driver.extend(each, f"extension {type(each).__module__}:{type(each).__qualname__}")
        driver.check()
        return driver

    def register(self, plugin: object) -> None:
        """Add the driver itself; refuses hooks that are unknown, async or take an unknown argument."""
        self._register(plugin, self.source)

    def extend(self, plugin: object, source: str) -> None:
        """Add an extension; refuses what `register` refuses, and anything but hook wrappers."""
        self._register(plugin, source)
        for caller in self._manager.get_hookcallers(plugin) or ():
            if any(impl.plugin is plugin and not _wraps(impl) for impl in caller.get_hookimpls()):
                raise DriverLoadError(
                    f"{source}: {caller.name} answers in the driver's stead; "
                    f"an extension may only wrap hooks, with @hookimpl(wrapper=True)"
                )

    def _register(self, plugin: object, source: str) -> None:
        for name in dir(plugin):
            method = _method(plugin, name) if name.startswith("dra_") else None
            if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
                raise DriverLoadError(f"{source}: hook {name} is async; hooks are ordinary blocking functions")
        try:
            self._manager.register(plugin)
            self._manager.check_pending()
        except pluggy.PluginValidationError as error:
            known = ", ".join(name for name in vars(hookspecs.DriverHooks) if name.startswith("dra_"))
            raise DriverLoadError(f"{source}: {' '.join(str(error).split())}; hooks are {known}") from error

    def implements(self, hook: str) -> bool:
        """Whether the driver itself has this hook; an extension that wraps it does not count."""
        return any(not _wraps(impl) for impl in getattr(self._manager.hook, hook).get_hookimpls())

    def call(self, hook: str, **arguments: Any) -> Any:
        """Run one hook and return its first result; exceptions pass through."""
        return getattr(self._manager.hook, hook)(**arguments)

    def check(self) -> None:
        """Make sure that the required hooks exist and that the driver's own description is usable."""
        missing = [hook for hook in hookspecs.REQUIRED if not self.implements(hook)]
        if missing:
            raise DriverLoadError(f"{self.source} lacks the required hook {' and '.join(missing)}")
        for hook in hookspecs.WITHOUT_ANSWER:
            for impl in getattr(self._manager.hook, hook).get_hookimpls():
                if inspect.isgeneratorfunction(impl.function) and not _wraps(impl):
                    raise DriverLoadError(f"{self.source}: hook {hook} yields, so nobody would run it; let it return")
        try:
            info = self.call("dra_driver_info")
        except (Exception, SystemExit) as error:
            raise DriverLoadError(f"{self.source}: dra_driver_info failed: {type(error).__name__}: {error}") from error
        if not isinstance(info, DriverInfo):
            raise DriverLoadError(f"{self.source}: dra_driver_info returned {info!r}, want a DriverInfo")
        self._check_info(info)
        self.info = info

    def _check_info(self, info: Any) -> None:
        if not isinstance(info.name, str) or len(info.name) > NAME_LIMIT or not _DRIVER_NAME.fullmatch(info.name):
            raise DriverLoadError(
                f"{self.source}: driver name {info.name!r} must be a lower-case DNS subdomain "
                f"of at most {NAME_LIMIT} characters"
            )
        if not isinstance(info.configs, Sequence) or not all(_is_config(each) for each in info.configs):
            raise DriverLoadError(f"{self.source}: configs must be a list of OpaqueConfig classes, is {info.configs!r}")
        if any(len(part) < 2 for part in str(info.cdi_kind).split("/")):  # noqa: PLR2004
            raise DriverLoadError(
                f"{self.source}: CDI kind {info.cdi_kind!r}: vendor and class need two characters or more, "
                f"containerd 2.1 crashes on one"
            )
        kinds: set[tuple[str, str]] = set()
        for config in info.configs:
            if not config.api_version:
                raise DriverLoadError(
                    f"{self.source}: config class {config.__name__} needs an API version: "
                    f'class {config.__name__}(OpaqueConfig, api_version="{info.name}/v1")'
                )
            if (config.api_version, config.kind) in kinds:
                raise DriverLoadError(
                    f"{self.source}: two config classes share apiVersion {config.api_version} and kind {config.kind}"
                )
            kinds.add((config.api_version, config.kind))


def _method(plugin: object, name: str) -> Any:
    """The method of this name, else None; unlike getattr it runs no code of a property."""
    static = inspect.getattr_static(plugin, name, None)
    if isinstance(static, cached_property) or not inspect.isroutine(static):
        return None
    return getattr(plugin, name)


def _wraps(impl: pluggy.HookImpl) -> bool:
    return impl.wrapper or impl.hookwrapper


def _is_config(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, OpaqueConfig)
