"""One loaded driver, and the extensions around it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pluggy

from dra_sdk import hookspecs
from dra_sdk.errors import DriverLoadError, raised_at
from dra_sdk.loader.hooks import PREFIX, check_hooks, method, missing
from dra_sdk.loader.info import check_info
from dra_sdk.model.driver import DriverInfo


class _Manager(pluggy.PluginManager):
    """A plugin manager for which every method named `dra_*` is a hook, decorated or not."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> Any:
        if method(plugin, name) is None:
            return None
        opts = super().parse_hookimpl_opts(plugin, name)
        return {} if opts is None and name.startswith(PREFIX) else opts


class Driver:
    """One loaded driver: `call` runs its hooks, `info` is what it said about itself (after `check`).

    `observe` is entered around every run of a hook that ends by itself; the process measures with it.
    """

    info: DriverInfo

    def __init__(self, source: str) -> None:
        self.source = source
        self.observe: Callable[[str], AbstractContextManager[None]] = lambda _hook: nullcontext()
        self._plugin: object = None
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
        self._plugin = plugin
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
        check_hooks(plugin, source)
        try:
            self._manager.register(plugin)
            self._manager.check_pending()
        except pluggy.PluginValidationError as error:  # what only decorated methods can get wrong
            raise DriverLoadError(f"{source}: {' '.join(str(error).split())}") from error

    def implements(self, hook: str) -> bool:
        """Whether the driver itself has this hook; an extension that wraps it does not count."""
        return any(not _wraps(impl) for impl in getattr(self._manager.hook, hook).get_hookimpls())

    def call(self, hook: str, **arguments: Any) -> Any:
        """Run one hook and return its first result; exceptions pass through."""
        return getattr(self._manager.hook, hook)(**arguments)

    def check(self) -> None:
        """Make sure that the required hooks exist and that the driver's own description is usable."""
        lacking = [hook for hook in hookspecs.REQUIRED if not self.implements(hook)]
        if lacking:
            raise DriverLoadError(f"{self.source} {missing(self._plugin, lacking)}")
        for hook in hookspecs.WITHOUT_ANSWER:
            for impl in getattr(self._manager.hook, hook).get_hookimpls():
                if inspect.isgeneratorfunction(impl.function) and not _wraps(impl):
                    raise DriverLoadError(f"{self.source}: hook {hook} yields, so nobody would run it; let it return")
        try:
            info = self.call("dra_driver_info")
        except (Exception, SystemExit) as error:
            reason = f"{type(error).__name__}: {error}{raised_at(error)}"
            raise DriverLoadError(f"{self.source}: dra_driver_info failed: {reason}") from error
        check_info(info, self.source)
        self.info = info


def _wraps(impl: pluggy.HookImpl) -> bool:
    return impl.wrapper or impl.hookwrapper
