"""Starts, watches and stops the components of one cluster, and records their processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from .errors import HarnessError
from .processes import Process, kill, spawn, terminate
from .waiting import TIMEOUT, poll

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .components import Component
    from .layout import Layout
    from .progress import Progress
    from .state import State

T = TypeVar("T")
_STOP_TIMEOUT = 5.0
"""Seconds that a component has to end by itself. The API server would wait a minute for open watches."""
_PAUSE = 0.1
_CORE = ("etcd", "apiserver")
_CORE_CLIENTS = ("controller-manager", "scheduler")


class Daemons:
    """The components of one cluster; `state` records the process of each that was started and not stopped."""

    def __init__(
        self,
        layout: Layout,
        state: State,
        components: Mapping[str, Component],
        environment: Mapping[str, str],
        progress: Progress,
    ) -> None:
        self._layout, self._state, self._progress = layout, state, progress
        self._components, self._environment = components, environment

    def component(self, name: str) -> Component:
        """Returns the component of that name; HarnessError if there is none."""
        try:
            return self._components[name]
        except KeyError:
            raise HarnessError(f"component {name!r}: expected one of {', '.join(self._components)}") from None

    def states(self) -> dict[str, bool]:
        """Returns for each component whether its process runs."""
        running = self._state.processes
        return {name: name in running and running[name].alive() for name in self._components}

    def pid(self, name: str) -> int:
        """Returns the process id of a running component."""
        process = self._state.processes.get(self.component(name).name)
        if process is None or not process.alive():
            raise HarnessError(f"{name} does not run")
        return process.pid

    def launch(self, name: str) -> None:
        """Starts a component unless it runs, and does not wait for it."""
        component = self.component(name)
        if self.states()[name]:
            return
        self._progress.debug(f"{name}: {' '.join(component.command)}")
        self._state.processes[name] = spawn(component.command, self._layout.log(name), self._environment)
        self.save()

    def stop(self, name: str) -> None:
        """Asks a component to end and waits; kills it after 5 seconds."""
        if process := self._forget(name):
            terminate(process, _STOP_TIMEOUT)

    def kill(self, name: str) -> None:
        """Kills a component at once."""
        if process := self._forget(name):
            kill([process])

    def start(self, name: str, timeout: float = TIMEOUT) -> None:
        """Starts a component unless it runs, and waits until it serves.

        The controller manager and the scheduler may end when the API server does, and rely on a supervisor to start
        them again. So starting the API server or etcd also starts them.
        """
        self.launch(name)
        self.wait_healthy(name, timeout)
        if name in _CORE:
            for client in [client for client in _CORE_CLIENTS if client in self._state.processes]:
                self.start(client, timeout)

    def wait_healthy(self, name: str, timeout: float = TIMEOUT) -> None:
        """Waits until a component serves; HarnessError with the end of its log if it does not."""
        try:
            self.wait_until(self.component(name).healthy, f"{name} serves", timeout, watch=[name])
        except HarnessError as error:
            if not self.states()[name]:
                raise  # the error already says that it died
            raise HarnessError(f"{error}\n{self._layout.log(name)} ends:\n{self._layout.tail(name)}") from None

    def wait_until(
        self, check: Callable[[], T | None], what: str, timeout: float, watch: Iterable[str] | None = None
    ) -> T:
        """Calls `check` until it returns something true, and returns that; see `Cluster.wait_until`."""

        def checked() -> T | None:
            if result := check():
                return result
            self._check_alive(self._expected() if watch is None else watch)
            return None

        if result := poll(checked, timeout, _PAUSE):
            return result
        raise HarnessError(f"{what}: not within {timeout:.0f} s")

    def save(self) -> None:
        """Writes the state to its file."""
        self._state.save(self._layout.state_file)

    def _forget(self, name: str) -> Process | None:
        process = self._state.processes.pop(self.component(name).name, None)
        self.save()
        return process

    def _expected(self) -> list[str]:
        """Returns the components that should run now."""
        present = self._state.processes
        clients_may_fail = any(name not in present for name in _CORE)
        return [name for name in present if not (clients_may_fail and name in _CORE_CLIENTS)]

    def _check_alive(self, names: Iterable[str]) -> None:
        for name in names:
            process = self._state.processes[name]
            if not process.alive():
                raise HarnessError(f"{name} (process {process.pid}) died; its log ends:\n{self._layout.tail(name)}")
