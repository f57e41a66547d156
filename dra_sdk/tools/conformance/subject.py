"""The driver under check: started when first needed, and again after a check that left it dead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dra_sdk.tools.conformance.check import NotRun
from dra_sdk.tools.conformance.evidence import Recorder
from dra_sdk.tools.conformance.instance import Instance, Sockets, Waiting, look
from dra_sdk.tools.conformance.launch import Launcher, Process
from dra_sdk.tools.conformance.plugin import ClaimsAnswer
from dra_sdk.tools.conformance.site import Site
from dra_sdk.tools.simulator.kubelet.records import ClaimRef
from dra_sdk.tools.simulator.kubelet.registration import sockets_in

ATTEMPTS = 2
"""After so many starts in a row that came to nothing, no further one is made."""


@dataclass(frozen=True)
class Patience:
    """How many seconds the kit waits at most."""

    start: float = 30.0
    """For a driver to offer its registration socket."""
    stop: float = 30.0
    """For it to end on SIGTERM: what a pod has by default."""
    slices: float = 60.0
    """For slices to appear; the Go library waits 30 s before it puts back what was deleted."""
    quiet: float = 3.0
    """How long a driver is watched that should do nothing."""
    health: float = 35.0
    """For a health report; the kubelet's own patience is 30 s."""
    settle: float = 2.0
    """For what follows an answer at once, such as a file's removal."""


class NotServingError(NotRun):
    """There is no driver to ask; the message tells why."""


class Subject:
    """The driver under check. `name` is empty until it is known."""

    def __init__(self, site: Site, launcher: Launcher | None, name: str, patience: Patience) -> None:
        self.site = site
        self.launcher = launcher
        self.name = name
        self.patience = patience
        self.recorder = Recorder()
        self._current: Instance | None = None
        self._extra: list[Instance] = []
        self._failures = 0
        self._why = ""

    # -- life

    @property
    def current(self) -> Instance:
        """The instance that checks talk to, started if need be; `NotServingError` where there is none.

        While there are further instances it is the newest, as for the kubelet.
        """
        if self._extra:
            return self._extra[-1]
        if self._current is None:
            if self._failures >= ATTEMPTS:
                raise NotServingError(self._why)
            self._current = self._started()
        return self._current

    def restart(self) -> Instance:
        """End it in good order and start it again; `NotServingError` where it does not come back."""
        self.start()
        self.stop()
        return self.start()

    def start(self) -> Instance:
        """Have it run; the same as `current`."""
        return self.current

    def recover(self) -> None:
        """Forget an instance that has died, so that the next check gets a new one; checks see the dead one."""
        if self._current is not None and not self._current.alive:
            self._drop()

    def stop(self) -> bool:
        """SIGTERM; whether it ended in time. Nothing to do where it does not run."""
        instance, self._current = self._current, None
        return instance is None or self._end(instance)

    def kill(self) -> None:
        """SIGKILL."""
        instance, self._current = self._current, None
        if instance is not None:
            instance.close()
            if instance.process:
                instance.process.kill()

    @contextmanager
    def beside(self, pod_uid: str) -> Iterator[Instance]:
        """A further instance, as in a rolling update; ended at the end unless `end` was called before."""
        instance = self._start(pod_uid)
        self._extra.append(instance)
        try:
            yield instance
        finally:
            self.end(instance)

    def end(self, instance: Instance) -> None:
        """End a further instance in good order."""
        if instance in self._extra:
            self._extra.remove(instance)
            self._end(instance)

    def close(self) -> None:
        """End everything that was started."""
        for instance in list(self._extra):
            self.end(instance)
        self.stop()

    @property
    def died(self) -> str:
        """How the current instance ended by itself, with the end of its log; empty if it did not."""
        process = self._current.process if self._current else None
        how = process.ended() if process else ""
        return f"the driver's process {how}; it printed last:\n{process.log()}" if process and how else ""

    # -- calls, to the current instance

    def prepare(self, claims: Sequence[ClaimRef], version: str = "", **timeout: float) -> ClaimsAnswer:
        """NodePrepareResources, in the version that the kubelet would choose."""
        current = self.current
        return current.service.prepare(claims, version or current.version, **timeout)

    def unprepare(self, claims: Sequence[ClaimRef], version: str = "", **timeout: float) -> ClaimsAnswer:
        """NodeUnprepareResources, in the version that the kubelet would choose."""
        current = self.current
        return current.service.unprepare(claims, version or current.version, **timeout)

    # -- inside

    def _started(self) -> Instance:
        try:
            instance = self._start("")
        except NotServingError as error:
            self._failures += 1
            self._why = str(error)
            raise
        self._failures = 0
        return instance

    def _start(self, pod_uid: str) -> Instance:
        before: Sockets = {}
        process: Process | None = None
        if self.launcher:
            before = dict(sockets_in(self.site.registry_dir))
            process = self.launcher.start(self.site, pod_uid)
        try:
            return self._found(process, before)
        except BaseException:
            if process:
                process.kill()
            raise

    def _found(self, process: Process | None, before: Sockets) -> Instance:
        waiting = Waiting(self.patience.start)
        while waiting.pause():
            instance = look(self.site.registry_dir, self.name, before, self.recorder)
            if instance:
                instance.process = process
                self.name = instance.info.name
                return instance
            if process and (how := process.ended()):
                why = f"the driver's process {how} before it registered; it printed last:\n{process.log()}"
                raise NotServingError(why)
        raise NotServingError(_nobody(self.site.registry_dir, self.name, self.patience.start))

    def _end(self, instance: Instance) -> bool:
        instance.close()
        return instance.process is None or instance.process.terminate(self.patience.stop)

    def _drop(self) -> None:
        if self._current is not None:
            self._current.close()
            if self._current.process:
                self._current.process.kill()
            self._current = None


def _nobody(registry: Path, name: str, seconds: float) -> str:
    who = f"driver {name}" if name else "a driver"
    there = ", ".join(sorted(each.name for each in registry.iterdir())) or "nothing"
    return f"no socket in {registry} answered GetInfo for {who} within {seconds:g} s; there is {there}"
