"""One loaded driver with its extensions: a typed method for each hook, on top of pluggy.

Every exception of an author's code, and every answer that breaks the contract, becomes a HookError with driver, hook
and line. So for callers a hook is an ordinary typed method.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from functools import partial
from threading import Event
from typing import Any, Final, TypeVar

import pluggy

from dra_sdk import hookspecs
from dra_sdk.errors import DraError, DriverLoadError, HookError, PermanentError, RetriableError, raised_at
from dra_sdk.loader.contract import (
    EXTENSION_HOOKS,
    PREFIX,
    adjustment_problem,
    calls_journal,
    check_hooks,
    check_info,
    find_method,
    gauges_problem,
    missing_hooks,
    resources_problem,
)
from dra_sdk.loader.steps import Measure, Observer, Steps
from dra_sdk.model.claim import Claim, HeldClaim, PreparedDevice
from dra_sdk.model.config import OpaqueConfig
from dra_sdk.model.container import Container, ContainerAdjustment, ContainerResources, PodSandbox
from dra_sdk.model.device import Device, ResourcePool
from dra_sdk.model.driver import DriverInfo, Node
from dra_sdk.model.edits import ContainerEdits
from dra_sdk.model.metric import Gauge
from dra_sdk.model.step import Step
from dra_sdk.model.undo import WHOLE

_NOTHING_LEFT: Final = object()
_T = TypeVar("_T")


class _Manager(pluggy.PluginManager):
    """A plugin manager for which every method named `dra_*` is a hook, decorated or not."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> Any:
        if find_method(plugin, name) is None:
            return None
        opts = super().parse_hookimpl_opts(plugin, name)
        return {} if opts is None and name.startswith(PREFIX) else opts


class Driver:
    """One loaded driver: a method for each hook.

    source: the driver as messages name it, with its class and distribution.
    info: what the driver says about itself; set by `check`.
    steps: what surrounds its hooks and the steps of its calls; set by `check`.
    """

    info: DriverInfo
    steps: Steps

    def __init__(self, source: str) -> None:
        self.source = source
        self._plugin: object = None
        self._manager = _Manager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs.DriverHooks)
        self._manager.add_hookspecs(hookspecs.ExtensionHooks)
        self._manager.register(_UndoCheck())
        self._observers: list[Observer] = []

    @classmethod
    def of(cls, plugin: object, extensions: Iterable[object] = ()) -> Driver:
        """Return a driver from an instance, for tests."""
        driver = cls(f"driver {type(plugin).__module__}:{type(plugin).__qualname__}")
        driver.register(plugin)
        for extension in extensions:
            driver.extend(extension, f"extension {type(extension).__module__}:{type(extension).__qualname__}")
        driver.check()
        return driver

    def register(self, plugin: object) -> None:
        """Add the driver itself. DriverLoadError for hooks that are unknown, async or take an unknown argument."""
        self._plugin = plugin
        self._register(plugin, self.source)

    def extend(self, plugin: object, source: str) -> None:
        """Add an extension. DriverLoadError as `register`, and for a hook that is not a wrapper."""
        self._register(plugin, source, EXTENSION_HOOKS)
        if observer := find_method(plugin, "dra_step"):
            self._observers.append(partial(self._observe, observer))
        for caller in self._manager.get_hookcallers(plugin) or ():
            if caller.name in EXTENSION_HOOKS:
                continue
            if any(impl.plugin is plugin and not _wraps(impl) for impl in caller.get_hookimpls()):
                raise DriverLoadError(
                    f"{source}: {caller.name} answers in place of the driver; "
                    f"an extension may only wrap hooks, with @hookimpl(wrapper=True)"
                )

    def check(self) -> None:
        """Raise DriverLoadError unless the required hooks exist and what the driver says about itself is usable."""
        lacking = [hook for hook in hookspecs.REQUIRED if not self.implements(hook)]
        if lacking:
            raise DriverLoadError(f"{self.source} {missing_hooks(self._plugin, lacking)}")
        if not self.implements("dra_unprepare") and calls_journal(self._plugin):
            raise DriverLoadError(
                f"{self.source}: dra_prepare calls claim.journal, but there is no dra_unprepare: "
                "nothing would undo what the journal records"
            )
        for hook in hookspecs.WITHOUT_ANSWER:
            for impl in getattr(self._manager.hook, hook).get_hookimpls():
                if inspect.isgeneratorfunction(impl.function) and not _wraps(impl):
                    raise DriverLoadError(f"{self.source}: hook {hook} yields, so it would never run; let it return")
        try:
            info = self._manager.hook.dra_driver_info()
        except (Exception, SystemExit) as error:
            reason = f"{type(error).__name__}: {error}{raised_at(error)}"
            raise DriverLoadError(f"{self.source}: dra_driver_info failed: {reason}") from error
        check_info(info, self.source)
        self.info = info
        self.steps = Steps(info.name, self._observers)

    def measured(self, measure: Measure) -> Driver:
        """Return the same driver with `measure` around each run of a hook."""
        driver = copy(self)
        driver.steps = Steps(self.info.name, self._observers, measure)
        return driver

    def implements(self, hook: str) -> bool:
        """Return whether the driver itself has this hook; an extension that wraps it does not count."""
        return any(not _wraps(impl) for impl in getattr(self._manager.hook, hook).get_hookimpls())

    def discover(self, node: Node) -> list[ResourcePool]:
        """Return the pools that `dra_discover` finds; plain devices are one pool, named after the node. HookError."""
        with self._running("dra_discover"), self.steps.hook("dra_discover"):
            answer: object = self._manager.hook.dra_discover(node=node)
            items = list(answer) if isinstance(answer, Iterable) and not isinstance(answer, str | bytes) else None
        devices = [item for item in items or () if isinstance(item, Device)]
        pools = [item for item in items or () if isinstance(item, ResourcePool)]
        if items is not None and len(devices) == len(items):
            return [ResourcePool(node.name, devices)]
        if items is not None and len(pools) == len(items):
            return pools
        raise HookError(
            f"dra_discover of {self._name} returned {_described(answer, items)}; "
            f"want Device values only, or ResourcePool only"
        )

    def prepare(self, claim: Claim[OpaqueConfig | None]) -> Generator[PreparedDevice, None, None]:
        """Yield each device as soon as `dra_prepare` does. Closing this iterator closes the hook. HookError."""
        with self.steps.hook("dra_prepare"):
            with self._running("dra_prepare"):
                answer: object = self._manager.hook.dra_prepare(claim=claim)
            for device in self._iterated("dra_prepare", answer, "prepared devices"):
                if not isinstance(device, PreparedDevice):
                    raise HookError(f"dra_prepare of {self._name} yielded {device!r}, want device.prepared(...)")
                if not isinstance(device.edits, ContainerEdits):
                    raise HookError(
                        f"dra_prepare of {self._name}: edits of device {device.pool}/{device.name} must be "
                        f"ContainerEdits, are {device.edits!r}"
                    )
                yield device

    def unprepare(self, claim: HeldClaim, node: Node) -> None:
        """Run `dra_unprepare`, of the driver or of extensions alone. HookError; what its refused steps raised."""
        with self._running("dra_unprepare"), self.steps.hook("dra_unprepare"):
            self._manager.hook.dra_unprepare(claim=claim, node=node)

    def top(self, node: Node, held: Sequence[HeldClaim]) -> list[str]:
        """Return the lines of `dra_top`. HookError."""
        with self._running("dra_top"):
            answer: object = self._manager.hook.dra_top(node=node, held=held)
        return self._all("dra_top", answer, str, "lines of text")

    def metrics(self, node: Node, held: Sequence[HeldClaim]) -> list[Gauge]:
        """Return the values of `dra_metrics`. HookError."""
        with self.steps.measure("dra_metrics"):
            with self._running("dra_metrics"):
                answer: object = self._manager.hook.dra_metrics(node=node, held=held)
            gauges = self._all("dra_metrics", answer, Gauge, "Gauge values")
        if problem := gauges_problem(gauges):
            raise HookError(f"dra_metrics of {self._name}: {problem}")
        return gauges

    def watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        """Run `dra_watch` until it returns. HookError."""
        with self._running("dra_watch"):
            self._manager.hook.dra_watch(node=node, changed=changed, stop=stop)

    def device_health(self, node: Node, stop: Event) -> Iterator[object]:
        """Yield the reports of `dra_device_health`, unchecked (see `dra_sdk.node.health.reports`). HookError."""
        with self._running("dra_device_health"):
            answer: object = self._manager.hook.dra_device_health(node=node, stop=stop)
        yield from self._iterated("dra_device_health", answer, "lists of DeviceHealth")

    @property
    def is_nri_plugin(self) -> bool:
        """Whether the driver is a plugin of the container runtime: it has a hook about pods and containers, or says so.

        See `DriverInfo.nri`.
        """
        return self.info.nri or any(self.implements(hook) for hook in hookspecs.OF_CONTAINERS)

    def run_pod_sandbox(self, pod: PodSandbox, node: Node) -> None:
        """Run `dra_run_pod_sandbox`. HookError."""
        with self._running("dra_run_pod_sandbox"), self.steps.hook("dra_run_pod_sandbox"):
            self._manager.hook.dra_run_pod_sandbox(pod=pod, node=node)

    def stop_pod_sandbox(self, pod: PodSandbox, node: Node) -> None:
        """Run `dra_stop_pod_sandbox`. HookError."""
        with self._running("dra_stop_pod_sandbox"), self.steps.hook("dra_stop_pod_sandbox"):
            self._manager.hook.dra_stop_pod_sandbox(pod=pod, node=node)

    def create_container(self, container: Container, held: Sequence[HeldClaim], node: Node) -> ContainerAdjustment:
        """Return what `dra_create_container` changes in the container; an empty adjustment if nothing. HookError."""
        if not self._manager.hook.dra_create_container.get_hookimpls():
            return ContainerAdjustment()
        with self._running("dra_create_container"), self.steps.hook("dra_create_container"):
            answer: object = self._manager.hook.dra_create_container(container=container, held=held, node=node)
        if answer is None:
            return ContainerAdjustment()
        if not isinstance(answer, ContainerAdjustment):
            raise HookError(f"dra_create_container of {self._name} returned {answer!r}, want a ContainerAdjustment")
        if problem := adjustment_problem(answer):
            raise HookError(f"dra_create_container of {self._name} for {container}: {problem}")
        return answer

    def synchronize(
        self, containers: Sequence[Container], held: Sequence[HeldClaim], node: Node
    ) -> Mapping[str, ContainerResources | PermanentError | RetriableError]:
        """Return what `dra_synchronize` wants for containers: resources or a refusal by container id. HookError."""
        with self._running("dra_synchronize"), self.steps.hook("dra_synchronize"):
            answer: object = self._manager.hook.dra_synchronize(containers=containers, held=held, node=node)
        if answer is None:
            return {}
        if not isinstance(answer, Mapping):
            raise HookError(f"dra_synchronize of {self._name} returned {answer!r}, want ContainerResources by id")
        known = {container.id: container for container in containers}
        checked: set[int] = set()  # one object for many containers is checked once
        for name, wanted in answer.items():
            if name not in known:
                raise HookError(f"dra_synchronize of {self._name} returned container {name!r}, which it was not given")
            if id(wanted) in checked:
                continue
            checked.add(id(wanted))
            if not isinstance(wanted, PermanentError | RetriableError) and (problem := resources_problem(wanted)):
                raise HookError(f"dra_synchronize of {self._name} for {known[name]}: {problem}")
        return answer

    def remove_container(self, container: Container, node: Node) -> None:
        """Run `dra_remove_container`. HookError."""
        with self._running("dra_remove_container"), self.steps.hook("dra_remove_container"):
            self._manager.hook.dra_remove_container(container=container, node=node)

    @property
    def _name(self) -> str:
        return f"driver {self.info.name}"

    def _register(self, plugin: object, source: str, more: Sequence[str] = ()) -> None:
        check_hooks(plugin, source, more)
        try:
            self._manager.register(plugin)
            self._manager.check_pending()
        except pluggy.PluginValidationError as error:  # only decorated methods can fail here
            raise DriverLoadError(f"{source}: {' '.join(str(error).split())}") from error

    def _observe(self, observer: Observer, step: Step) -> AbstractContextManager[object] | None:
        with self._running("dra_step"):
            return observer(step)

    def _running(self, hook: str) -> _AuthorCode:
        return _AuthorCode(self.info.name, hook)

    def _iterated(self, hook: str, answer: object, wanted: str) -> Iterator[object]:
        """Yield the items of a hook's answer. A generator is closed at the end in any case."""
        if isinstance(answer, str | bytes | Mapping) or not isinstance(answer, Iterable):
            raise HookError(f"{hook} of {self._name} returned {answer!r}, want {wanted}")
        with self._running(hook):
            left = iter(answer)
        try:
            while True:
                with self._running(hook):
                    item = next(left, _NOTHING_LEFT)
                if item is _NOTHING_LEFT:
                    return
                yield item  # outside `_running`, because a GeneratorExit here comes from our caller
        finally:
            if isinstance(answer, Generator):
                with self._running(hook):
                    answer.close()

    def _all(self, hook: str, answer: object, kind: type[_T], wanted: str) -> list[_T]:
        """Return the items of a hook's answer, all of one type."""
        items = list(self._iterated(hook, answer, wanted))
        typed = [item for item in items if isinstance(item, kind)]
        if len(typed) < len(items):
            raise HookError(f"{hook} of {self._name} yielded {_described(items, items)}; want {wanted} only")
        return typed


class _AuthorCode:
    """Makes a HookError of every exception of an author's code, also of KeyboardInterrupt: it is no Ctrl-C here.

    A class, because a generator takes three times as long and a prepare enters it five times.
    """

    __slots__ = ("_driver", "_hook")

    def __init__(self, driver: str, hook: str) -> None:
        self._driver = driver
        self._hook = hook

    def __enter__(self) -> None:
        """Enter the author's code."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None and not isinstance(error, DraError):
            reason = f"{type(error).__name__}: {error}{raised_at(error)}"
            raise HookError(f"{self._hook} of driver {self._driver} failed: {reason}") from error


class _UndoCheck:
    """Raises what holds the claim once `dra_unprepare` has tried all steps, before wrappers of extensions go on."""

    @hookspecs.hookimpl(wrapper=True, trylast=True)
    def dra_unprepare(self, claim: HeldClaim) -> Generator[None, None, None]:
        with claim.undoing(WHOLE):
            yield
        claim.undo.check()


def _wraps(impl: pluggy.HookImpl) -> bool:
    return impl.wrapper or impl.hookwrapper


def _described(answer: object, items: list[object] | None) -> str:
    """Return a short description of what a hook returned; a pool can have thousands of devices."""
    if isinstance(answer, Device | ResourcePool):
        return f"one {type(answer).__name__}, not a list of them"
    if isinstance(answer, Mapping):
        return f"a {type(answer).__name__}, not a list"
    if items is None:
        return repr(answer)
    return repr(sorted({type(item).__name__ for item in items}))
