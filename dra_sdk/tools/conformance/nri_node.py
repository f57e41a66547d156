"""The container runtime for the NRI plugin under test, with pods and containers that exist only for NRI."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from dra_sdk.errors import NriError
from dra_sdk.hardware.cpuset import CpuSet, parse_cpuset
from dra_sdk.kube import paths
from dra_sdk.model import JSON
from dra_sdk.node.nri.events import Event, subscribed
from dra_sdk.tools.conformance.driver_under_test import DriverUnderTest
from dra_sdk.tools.conformance.nri_wire import NriCall, NriWire, listen
from dra_sdk.tools.conformance.outcomes import CheckFailedError, NotRunError, expect
from dra_sdk.tools.conformance.timeouts import wait_until
from dra_sdk.tools.simulator.nri import NriRuntime, RefusedError
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb

NEWEST: Final = "0.12.1"
"""The version of NRI that the runtime speaks unless a check needs another one."""
_ANY_ID: Final = 0x5EED << 200
_READ: Final = 65536  # bytes
_MEMORY: Final = 512 * 1024 * 1024  # bytes


@dataclass(frozen=True)
class Update:
    """What a plugin has asked to change in a container.

    container: its id.
    resources: the new resources.
    ignores_failure: whether a failure of this update does no harm to the container that is created.
    method: the call whose answer it is, or UpdateContainers.
    """

    container: str
    resources: pb.LinuxResources
    ignores_failure: bool
    method: str


class NriNode:
    """Starts the runtime's side of NRI for a driver, again for each check.

    A new runtime starts while the driver does not run, so only a check of reconnection needs the plugin to connect
    twice.

    runtime: the runtime that was started last.
    wire: what the plugin and the runtime have sent each other since `start`.
    """

    runtime: NriRuntime
    wire: NriWire

    def __init__(self, driver: DriverUnderTest) -> None:
        self._driver = driver
        self._numbers = count(1)
        self._pods: list[str] = []  # paths in the API server
        self._running = ExitStack()

    # -- the runtime

    def start(
        self,
        nri_version: str = NEWEST,
        *,
        part: int | None = None,
        hold_reply: bool = False,
        small_frames: bool = False,
    ) -> None:
        """Stop the driver, and start a runtime without pods.

        `part`: pods in a message of Synchronize. `hold_reply`: RegisterPlugin is answered after Configure.
        """
        self._driver.stop()
        self.stop()
        path, timeouts = self._driver.environment.nri_socket, self._driver.timeouts
        path.parent.mkdir(parents=True, exist_ok=True)
        inner = path.with_name("runtime.sock")
        self.runtime = NriRuntime(
            inner,
            nri_version=nri_version,
            registration_timeout=timeouts.nri_registration,
            request_timeout=timeouts.nri_request,
            part=part,
            configure_first=hold_reply,
        )
        self.wire = NriWire(path, inner, self._driver.recorder, small_frames=small_frames)
        self._running.callback(self.runtime.stop)
        self._running.callback(self.wire.stop)
        self.runtime.start()
        self.wire.start()

    def stop(self) -> None:
        """Stop the runtime, and delete its pods from the API server."""
        self._running.close()
        while self._pods:
            self._driver.environment.api.delete(self._pods.pop())

    def restart(self, gap: float) -> None:
        """Stop the runtime, and start it with the same pods and containers after `gap` seconds."""
        self.wire.stop()
        self.runtime.stop()
        wait_until(lambda: self._driver.crash, gap)
        self.runtime.start()
        self.wire.start()

    def connect(self) -> None:
        """Start the driver if it does not run, and wait until its plugin is synchronized; CheckFailedError if not."""
        self._driver.start()
        runtime, seconds = self.runtime, self._driver.timeouts.nri_connect

        def ended() -> bool:
            return bool(runtime.plugins or self.problems or self._driver.crash)

        wait_until(ended, seconds)
        self.expect_no_problem()
        expect(runtime.plugins, f"no NRI plugin has connected and synchronized within {seconds:g} s")

    def kill_driver(self) -> None:
        """End the driver with SIGKILL; the containers go on."""
        self._driver.kill()
        wait_until(lambda: not self.runtime.plugins, self._driver.timeouts.nri_connect)

    def restart_driver(self) -> None:
        """End the driver with SIGKILL, and start it again."""
        self.kill_driver()
        self.connect()

    def reconnected(self) -> bool:
        """Return whether the plugin is synchronized again, within the time for it."""
        wait_until(lambda: self.runtime.plugins or self._driver.crash, self._driver.timeouts.nri_reconnect)
        return bool(self.runtime.plugins)

    def reconnect(self) -> None:
        """Wait until the plugin is synchronized, also after a lost connection; CheckFailedError if it is not."""
        seconds, again = self._driver.timeouts.nri_reconnect, self.reconnected()
        expect(not self._driver.crash, self._driver.crash)
        problems = "; ".join(self.problems)
        expect(
            again,
            f"the plugin has not connected again within {seconds:g} s{problems and ': '}{problems}",
        )

    @property
    def problems(self) -> list[str]:
        """Why the runtime has refused or closed the plugin."""
        return [*self.wire.problems, *map(str, self.runtime.problems)]

    def expect_no_problem(self) -> None:
        """Raise CheckFailedError if the runtime has refused or closed the plugin, or the driver's process has ended."""
        problems = "; ".join(self.problems)
        expect(not self._driver.crash, self._driver.crash)
        expect(not problems, f"the runtime refuses or closes the plugin: {problems}")

    def send_garbage(self, *kinds: Callable[[socket.socket], None]) -> None:
        """In place of the runtime, answer one connection of the plugin with each kind.

        There is a socket all the time, so a plugin that gives up after some attempts has one for each kind.
        """
        with listen(self._driver.environment.nri_socket) as listener:
            self.wire.stop(replaced=True)
            wait_until(lambda: not self.runtime.plugins, self._driver.timeouts.nri_connect)
            listener.settimeout(self._driver.timeouts.nri_reconnect)
            for number, kind in enumerate(kinds, 1):
                try:
                    plugin, _ = listener.accept()
                except TimeoutError:
                    raise CheckFailedError(self._driver.crash or "the plugin does not connect again") from None
                if number == len(kinds):
                    self.wire.start()
                with plugin:
                    kind(plugin)
                    _wait_closed(plugin, self._driver.timeouts.settle)

    # -- calls of the kit

    @property
    def events(self) -> frozenset[Event]:
        """What the plugin has subscribed to."""
        masks = [call.answer.events for call in self.calls("Configure")]
        return (subscribed(masks[-1]) or frozenset(Event)) if masks else frozenset()

    def calls(self, method: str) -> list[NriCall]:
        """Return the answered calls of a method since `start`."""
        return [call for call in self.wire.calls if call.method == method]

    def call(self, method: str, request: bytes) -> NriCall:
        """Call a method of the plugin; CheckFailedError if it does not answer."""
        before = len(self.calls(method))
        with suppress(NriError):  # an error is an answer too
            self.runtime.call(method, request)
        answers = self.calls(method)[before:]
        expect(answers, f"the plugin does not answer {method[:40]}")
        return answers[0]

    # -- pods and containers

    def container(self, edits: JSON | None = None) -> pb.Container:
        """Return a container of a new pod, not created yet, to which CDI has added the OCI spec `edits`."""
        number = next(self._numbers)
        pod = pb.PodSandbox(
            id=f"{_ANY_ID + number:064x}",
            name=f"pod-{number}",
            uid=f"00000000-0000-4000-8000-{number:012}",
            namespace=self._driver.environment.namespace,  # a pod uses claims of its own namespace
        )
        if edits:
            self._use_claims(pod)
        self._ask(self.runtime.run_pod, pod)
        edits = edits or {}
        made = pb.Container(
            id=f"{2 * _ANY_ID + number:064x}",
            pod_sandbox_id=pod.id,
            name="app",
            labels={"io.kubernetes.container.name": "app"},
            annotations={"conformance.example.com/kept": "yes"},
            args=["/app"],
            env=["PATH=/bin", "HOME=/root", *((edits.get("process") or {}).get("env") or ())],
        )
        made.mounts.add(destination="/etc/hosts", source="/etc/hosts", type="bind", options=["rbind", "ro"])
        for mount in edits.get("mounts") or ():
            made.mounts.add(**mount)
        resources = made.linux.resources
        resources.cpu.shares.value = 1024
        resources.memory.limit.value = _MEMORY
        return made

    def _use_claims(self, pod: pb.PodSandbox) -> None:
        """Reserve the claims of the kit for a pod, which the API server knows, but no scheduler takes."""
        client = self._driver.environment.api.client
        spec = {
            "schedulingGates": [{"name": "conformance.example.com/nri"}],
            "containers": [{"name": "app", "image": "none"}],
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod.name}, "spec": spec}
        pod.uid = client.create(paths.pods(pod.namespace), body)["metadata"]["uid"]
        self._pods.append(paths.pod(pod.namespace, pod.name))
        consumer = {"resource": "pods", "name": pod.name, "uid": pod.uid}
        for claim in client.list(paths.resource_claims(pod.namespace))["items"]:
            status = claim.get("status") or {}
            if status.get("allocation"):
                users = [*(status.get("reservedFor") or ()), consumer]
                path = paths.resource_claim_status(pod.namespace, claim["metadata"]["name"])
                client.update(path, {**claim, "status": {**status, "reservedFor": users}})

    def again(self, container: pb.Container) -> pb.Container:
        """Return the container that the kubelet creates when this one has ended."""
        next_container = pb.Container()
        next_container.CopyFrom(container)
        next_container.id = f"{2 * _ANY_ID + next(self._numbers):064x}"
        next_container.linux.resources.cpu.cpus = next_container.linux.resources.cpu.mems = ""
        next_container.state = pb.CONTAINER_UNKNOWN
        return next_container

    def create(self, container: pb.Container, *, start: bool = True) -> pb.Container:
        """Create a container, and start it; CheckFailedError if the plugin makes that fail."""
        created: pb.Container = self._ask(self.runtime.create_container, container)
        if start:
            self._ask(self.runtime.start_container, container.id)
        self.expect_no_problem()
        return created

    def run(self, edits: JSON | None = None) -> pb.Container:
        """Create and start a container of a new pod."""
        return self.create(self.container(edits))

    def end(self, container: pb.Container, *, stop: bool = True) -> None:
        """Stop a container if it was started, and remove it."""
        if stop:
            self._ask(self.runtime.stop_container, container.id)
        self._ask(self.runtime.remove_container, container.id)
        self.expect_no_problem()

    def end_pod(self, pod: str) -> None:
        """Stop and remove a pod without containers."""
        self._ask(self.runtime.stop_pod, pod)
        self._ask(self.runtime.remove_pod, pod)
        self.expect_no_problem()

    def cpus(self, container: pb.Container) -> str:
        """Return the CPUs of a container as it is now; empty if it may use all."""
        return str(self.runtime.containers[container.id].linux.resources.cpu.cpus)

    def cpu_set(self, container: pb.Container) -> CpuSet:
        """Return the CPUs of a container as it is now; CheckFailedError if they are no list of CPUs."""
        try:
            return parse_cpuset(self.cpus(container))
        except ValueError as error:
            raise CheckFailedError(str(error)) from error

    def updates(self) -> Iterator[Update]:
        """Yield all updates of containers that the plugin has asked for since `start`."""
        for call in self.wire.calls:
            if call.method == "UpdateContainers":
                updates: Sequence[Any] = pb.UpdateContainersRequest.FromString(call.request).update
            else:
                updates = getattr(call.answer, "update", ())
            for update in updates:
                yield Update(update.container_id, update.linux.resources, update.ignore_failure, call.method)

    def adjustment(self, container: pb.Container) -> pb.ContainerAdjustment:
        """Return what the plugin has adjusted in a container when it was created; an empty one if nothing."""
        for call in self.calls("CreateContainer"):
            if pb.CreateContainerRequest.FromString(call.request).container.id == container.id:
                adjustment: pb.ContainerAdjustment = call.answer.adjust
                return adjustment
        return pb.ContainerAdjustment()

    def _ask(self, event: Callable[[Any], Any], argument: Any) -> Any:
        try:
            return event(argument)
        except RefusedError as error:
            raise CheckFailedError(f"the plugin makes an event fail: {error}") from error
        except NriError as error:
            raise NotRunError(f"the kit's runtime failed: {error}") from error


def _wait_closed(plugin: socket.socket, seconds: float) -> None:
    """Read until the plugin closes the connection, or for so long."""
    plugin.settimeout(seconds)
    with suppress(OSError):  # it has not closed it in time, or with an error
        while plugin.recv(_READ):
            continue


@contextmanager
def runtime_for(driver: DriverUnderTest) -> Iterator[NriNode]:
    """Provide a node with a runtime, as long as the context; the driver is stopped before the runtime."""
    node = NriNode(driver)
    try:
        node.start()
        yield node
    finally:
        driver.close()
        node.stop()
