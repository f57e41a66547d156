"""The driver under test: it is started when a check first needs it, and again after a check that left it dead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dra_sdk.model.claim import ClaimRef
from dra_sdk.node.kubelet.draplugin import VERSIONS
from dra_sdk.tools.conformance.environment import NodeEnvironment
from dra_sdk.tools.conformance.launcher import InstanceProcess, Launcher, deferred_signals
from dra_sdk.tools.conformance.outcomes import NotRunError, Recorder
from dra_sdk.tools.conformance.timeouts import Timeouts, poll
from dra_sdk.tools.simulator.kubelet.calls import V1, ClaimsResponse, KubeletCalls, RpcResult
from dra_sdk.tools.simulator.kubelet.registration import sockets_in
from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming
from dra_sdk.wire.proto.pluginregistration_v1_pb2 import PluginInfo, RegistrationStatusResponse

MAX_FAILED_STARTS: Final = 2
"""After so many failed starts in a row, the driver is not started again."""
DISCOVERY_TIMEOUT: Final = 10.0
"""Seconds for the GetInfo call that finds the driver; a check of its own tests whether GetInfo is fast enough."""
Sockets = dict[str, tuple[int, int]]
"""Registration sockets by path, with what distinguishes each from a later one at the same path."""


class DriverNotRunningError(NotRunError):
    """There is no driver to call; the message says why."""


@dataclass
class Instance:
    """One running instance of the driver, registered as the kubelet would do it.

    registration_socket: its socket in the kubelet's registration directory.
    service_socket: the socket of its DRA service; the registration socket if GetInfo names no endpoint.
    info: the answer to GetInfo.
    version: the first advertised version of the DRA service that the kubelet knows; v1 if there is none, so that other
        checks can run.
    get_info_seconds: how long the first GetInfo took.
    registrar: client of its registration service.
    service: client of its DRA and health services.
    first_prepare: the answer to an empty prepare call right after GetInfo.
    registration: the answer to NotifyRegistrationStatus.
    recorder: records the calls of all its clients.
    timing: the kubelet's deadlines.
    process: its process; None if the kit did not start it.
    """

    registration_socket: Path
    service_socket: Path
    info: PluginInfo
    version: str
    get_info_seconds: float
    registrar: KubeletCalls
    service: KubeletCalls
    first_prepare: ClaimsResponse
    registration: RpcResult[RegistrationStatusResponse]
    recorder: Recorder
    timing: KubeletTiming
    process: InstanceProcess | None = None

    @property
    def alive(self) -> bool:
        """Whether its process still runs; True if the process is not known."""
        return self.process is None or not self.process.exit_reason()

    def connect_service(self) -> KubeletCalls:
        """Return another connection to its service; the caller closes the channel."""
        return KubeletCalls(self.service_socket, self.timing, self.info.name, self.recorder.add)

    def connect_registrar(self) -> KubeletCalls:
        """Return another connection to its registration socket; the caller closes the channel."""
        return KubeletCalls(self.registration_socket, self.timing, record=self.recorder.add)

    def prepare(self, refs: Sequence[ClaimRef], version: str = "", timeout: float | None = None) -> ClaimsResponse:
        """Call NodePrepareResources, in the version that the kubelet would choose or another one."""
        return self.service.prepare(refs, version or self.version, timeout)

    def unprepare(self, refs: Sequence[ClaimRef], version: str = "", timeout: float | None = None) -> ClaimsResponse:
        """Call NodeUnprepareResources, in the version that the kubelet would choose or another one."""
        return self.service.unprepare(refs, version or self.version, timeout)

    def close(self) -> None:
        """Close the connections."""
        self.registrar.close()
        self.service.close()


class DriverUnderTest:
    """The driver and its instances.

    `name` is empty until it is known from GetInfo. `launcher` is None for a driver that the kit does not start.
    """

    def __init__(self, environment: NodeEnvironment, launcher: Launcher | None, name: str, timeouts: Timeouts) -> None:
        self.environment = environment
        self.launcher = launcher
        self.name = name
        self.timeouts = timeouts
        self.recorder = Recorder()
        self._current: Instance | None = None
        self._extra: list[Instance] = []
        self._processes: list[InstanceProcess] = []
        self._failed_starts = 0
        self._failure = ""

    # -- starting and stopping

    def start(self) -> Instance:
        """Return the instance that checks call, and start it if necessary; DriverNotRunningError if that fails.

        With several instances this is the newest one, which the kubelet would call as well.
        """
        if self._extra:
            return self._extra[-1]
        if self._current is None:
            self._current = self._start_counted()
        return self._current

    def restart(self) -> Instance:
        """Stop it with SIGTERM and start it again; DriverNotRunningError if that fails."""
        self.start()
        self.stop()
        return self.start()

    def recover(self) -> None:
        """Forget an instance that has died, so that the next check starts a new one."""
        if self._current is not None and not self._current.alive:
            self.kill()

    def stop(self) -> bool:
        """Stop it with SIGTERM; whether it ended in time. True if it does not run."""
        instance, self._current = self._current, None
        return instance is None or self._terminate(instance)

    def kill(self) -> None:
        """End it with SIGKILL, if it runs."""
        instance, self._current = self._current, None
        if instance is not None:
            instance.close()
            if instance.process:
                instance.process.kill()

    @contextmanager
    def another_instance(self, pod_uid: str) -> Iterator[Instance]:
        """Run a further instance, as in a rolling update, until the context or `stop_instance` ends it."""
        instance = self._start(pod_uid)
        self._extra.append(instance)
        try:
            yield instance
        finally:
            self.stop_instance(instance)

    def stop_instance(self, instance: Instance) -> None:
        """Stop a further instance with SIGTERM; does nothing if it was stopped before."""
        if instance in self._extra:
            self._extra.remove(instance)
            self._terminate(instance)

    def close(self) -> None:
        """Stop everything that was started."""
        with deferred_signals():
            for instance in list(self._extra):
                self.stop_instance(instance)
            self.stop()
            for process in self._processes:
                if not process.exit_reason():
                    process.kill()

    @property
    def crash(self) -> str:
        """How the current instance ended by itself, with the last lines of its log; empty if it runs."""
        process = self._current.process if self._current else None
        return _process_ended(process, "") if process and process.exit_reason() else ""

    # -- calls to the current instance

    def prepare(self, refs: Sequence[ClaimRef], version: str = "", timeout: float | None = None) -> ClaimsResponse:
        """Call NodePrepareResources."""
        return self.start().prepare(refs, version, timeout)

    def unprepare(self, refs: Sequence[ClaimRef], version: str = "", timeout: float | None = None) -> ClaimsResponse:
        """Call NodeUnprepareResources."""
        return self.start().unprepare(refs, version, timeout)

    # -- inside

    def _start_counted(self) -> Instance:
        if self._failed_starts >= MAX_FAILED_STARTS:
            raise DriverNotRunningError(self._failure)
        try:
            instance = self._start("")
        except DriverNotRunningError as error:
            self._failed_starts += 1
            self._failure = str(error)
            raise
        self._failed_starts = 0
        return instance

    def _start(self, pod_uid: str) -> Instance:
        before: Sockets = {}
        process: InstanceProcess | None = None
        try:
            if self.launcher:
                before = dict(sockets_in(self.environment.registry_dir))
                with deferred_signals():
                    process = self.launcher.start(self.environment, pod_uid)
                    self._processes.append(process)
            instance = self._wait_for_instance(process, before)
        except BaseException:
            if process:
                process.kill()
            raise
        instance.process = process
        self.name = instance.info.name
        return instance

    def _wait_for_instance(self, process: InstanceProcess | None, before: Sockets) -> Instance:
        registry, seconds = self.environment.registry_dir, self.timeouts.start
        for _ in poll(seconds):
            for path, identity in sorted(sockets_in(registry).items()):
                if before.get(path) != identity and (instance := self._register(Path(path))):
                    return instance
            if process and process.exit_reason():
                raise DriverNotRunningError(_process_ended(process, " before it registered"))
        driver = f"driver {self.name}" if self.name else "a driver"
        present = ", ".join(sorted(path.name for path in registry.iterdir())) or "nothing"
        raise DriverNotRunningError(
            f"no socket in {registry} answered GetInfo for {driver} within {seconds:g} s; the directory has {present}"
        )

    def _register(self, socket: Path) -> Instance | None:
        """Return the instance behind a socket, registered; None if it does not answer or is another driver."""
        timing = self.timeouts.kubelet
        registrar = KubeletCalls(socket, timing, record=self.recorder.add)
        answer = registrar.get_info(DISCOVERY_TIMEOUT)
        info = answer.message
        if info is None or (self.name and info.name != self.name):
            registrar.close()
            return None
        service_socket = Path(info.endpoint) if info.endpoint else socket
        version = next((offered for offered in info.supported_versions if offered in VERSIONS), V1)
        service = KubeletCalls(service_socket, timing, info.name, self.recorder.add)
        return Instance(
            socket,
            service_socket,
            info,
            version,
            get_info_seconds=answer.seconds,
            registrar=registrar,
            service=service,
            first_prepare=service.prepare([], version, DISCOVERY_TIMEOUT),
            registration=registrar.notify(),
            recorder=self.recorder,
            timing=timing,
        )

    def _terminate(self, instance: Instance) -> bool:
        instance.close()
        return instance.process is None or instance.process.terminate(self.timeouts.stop)


def _process_ended(process: InstanceProcess, when: str) -> str:
    return f"the driver's process {process.exit_reason()}{when}; last lines of its output:\n{process.log()}"
