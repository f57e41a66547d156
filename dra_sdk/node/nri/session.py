"""One connection of a plugin to a container runtime: registration, Synchronize, events, until one side ends it.

The runtime holds a lock while a plugin handles an event, and closes a plugin that answers later than its request
timeout (2 s). So each call has an answer after half of that time at the latest, also if its handler is slow.

Source: containerd/nri pkg/adaptation, pkg/api.
"""

from __future__ import annotations

import ctypes
import logging
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from threading import Event as ThreadEvent
from threading import Lock
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from dra_sdk.errors import DraError, NriError, one_line, raised_at
from dra_sdk.node.nri.events import BY_METHOD, PLUGIN, RUNTIME, Event, RuntimeInfo, from_state_change, mask
from dra_sdk.node.nri.handler_threads import HandlerThreads
from dra_sdk.node.nri.mux import PLUGIN_SERVICE, RUNTIME_SERVICE, Mux
from dra_sdk.node.nri.open_calls import MAX_BYTES, OpenCalls
from dra_sdk.node.nri.ttrpc import Code, TtrpcCall, TtrpcClient, TtrpcError, TtrpcServer
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb

log = logging.getLogger(__name__)
SHARE: Final = 0.5
"""The part of the runtime's timeout after which a call is answered without its handler."""
DEFAULT_TIMEOUT: Final = 2.0  # seconds that runtimes wait for an answer unless they are configured otherwise
NRI_VERSION: Final = "0.12.0"
"""What the plugin says about itself when it registers."""
LONGEST_TIMEOUT: Final = 600.0
"""Seconds; a runtime that says that it waits longer is answered as if it waited so long."""
_SHOWN: Final = 500  # characters of a handler's error

M = TypeVar("M", bound=Message)
Synchronize = Callable[[Sequence[pb.PodSandbox], Sequence[pb.Container]], Iterable[pb.ContainerUpdate]]
"""Gets all pods and containers of the node when a connection begins; returns what to change in containers."""


class FailurePolicy(StrEnum):
    """What the runtime is answered if a handler raises or is late; the words are those of admission policies."""

    FAIL = "Fail"
    """An error: the container is not created, the pod does not start."""
    IGNORE = "Ignore"
    """An empty answer: the runtime goes on as if the plugin wanted nothing."""


@dataclass(frozen=True)
class EventResponse:
    """A response of a handler that needs to know whether it was sent.

    message: the response.
    sent: called with True when the response was sent, with False if it was too late or there is no connection.
    """

    message: Message
    sent: Callable[[bool], None]


class StartRefusedError(NriError):
    """A handler refuses what is about to start; the runtime gets the error under every failure policy."""


@dataclass(frozen=True)
class Subscription:
    """What a plugin does at an event.

    handle: gets the request, a message of `nri_v1alpha1_pb2`; returns the response, or None for an empty one. Calls may
        overlap only if an earlier one was late.
    failure_policy: what is answered if `handle` raises or is late; a function gets the request and must be quick.
    """

    handle: Callable[[Any], Message | EventResponse | None]
    failure_policy: FailurePolicy | Callable[[Any], FailurePolicy] = FailurePolicy.FAIL


@dataclass(frozen=True)
class PluginDescription:
    """What a session needs to know of its plugin.

    name: letters, digits and `_.+-`.
    index: 0 to 99; runtimes call plugins in this order.
    synchronize: see Synchronize. If it raises or is late, the session ends.
    subscriptions: what it does at which event.
    """

    name: str
    index: int
    synchronize: Synchronize
    subscriptions: Mapping[Event, Subscription]


@dataclass(frozen=True)
class SessionLimits:
    """How long a session waits, in seconds.

    register: for the answer to RegisterPlugin. The runtime takes in one plugin at a time, and each may need 9 s.
    synchronize: from the registration to the end of Synchronize, which containerd delays until it has started.
    """

    register: float = 30.0
    synchronize: float = 60.0


class NriSession:
    """A connected socket on which a plugin registers and answers calls."""

    def __init__(
        self, sock: socket.socket, peer: str, plugin: PluginDescription, threads: HandlerThreads, limits: SessionLimits
    ) -> None:
        self.peer = peer
        self._plugin, self._threads, self._limits = plugin, threads, limits
        self._mux = Mux(sock, peer)
        self._client = TtrpcClient(partial(self._mux.write, RUNTIME_SERVICE), peer)
        self._server = TtrpcServer(partial(self._mux.write, PLUGIN_SERVICE), self._handle, self._refuse)
        self._lock = Lock()
        self._runtime: RuntimeInfo | None = None
        self._parts: tuple[list[pb.PodSandbox], list[pb.Container]] = ([], [])
        self._part_bytes = 0
        self._open = OpenCalls()
        self._connected = False
        self._synchronized = ThreadEvent()
        self._ended = ThreadEvent()
        self._failure: NriError | None = None
        self._reason: NriError | None = None

    def run(self, synchronized: Callable[[RuntimeInfo], None]) -> None:
        """Register, and return when the connection has ended in order.

        `synchronized` is called when the runtime has had its answer to Synchronize. NriError names the reason if the
        connection cannot begin or does not end in order.
        """
        self._mux.start({PLUGIN_SERVICE: self._server.receive, RUNTIME_SERVICE: self._client.receive}, self._end)
        try:
            self._register()
            if not self._synchronized.wait(self._limits.synchronize):
                raise NriError(f"{self.peer}: no Synchronize within {self._limits.synchronize:g} s of the registration")
            if self._runtime is not None and self._connected:
                synchronized(self._runtime)
                self._ended.wait()
            elif self._reason is None and self._failure is None:
                raise NriError(f"{self.peer}: the runtime has closed the connection before Synchronize")
        finally:
            self.close()
            self._mux.join(timeout=5.0)
        if reason := self._failure or self._reason:
            raise reason

    def close(self, reason: NriError | None = None) -> None:
        """End the connection. Returns at once."""
        self._mux.close(reason)

    def update_containers(self, updates: Sequence[pb.ContainerUpdate], timeout: float) -> list[pb.ContainerUpdate]:
        """Ask the runtime to change containers; the changes that failed. NriError if the call fails."""
        request = pb.UpdateContainersRequest(update=updates)
        answer = self._client.call(RUNTIME, "UpdateContainers", request, pb.UpdateContainersResponse, timeout)
        return list(answer.failed)

    def _register(self) -> None:
        request = pb.RegisterPluginRequest(
            plugin_name=self._plugin.name, plugin_idx=f"{self._plugin.index:02}", NRI_version=NRI_VERSION
        )
        try:
            self._client.call(RUNTIME, "RegisterPlugin", request, pb.Empty, self._limits.register)
        except TtrpcError as error:
            raise self._reason or error from error

    def _end(self, reason: NriError | None) -> None:
        self._reason = reason
        self._threads.drop(self)
        self._client.close(reason or NriError(f"{self.peer}: the runtime has closed the connection"))
        self._ended.set()
        self._synchronized.set()

    # Calls of the runtime, from here on; on the reader's thread first, then on one of `threads`.

    def _handle(self, call: TtrpcCall) -> None:
        timeout = self._runtime.request_timeout if self._runtime else DEFAULT_TIMEOUT
        seconds = SHARE * min(timeout, call.timeout or timeout)
        answer = _Answer(call, self.peer, seconds)
        self._run(partial(self._answer, answer), len(call.payload), seconds, partial(self._late, answer))

    def _refuse(self, refusal: Callable[[], object]) -> None:
        self._run(refusal, 0, DEFAULT_TIMEOUT)

    def _run(
        self, work: Callable[[], object], size: int, seconds: float, late: Callable[[], object] = lambda: None
    ) -> None:
        """Run `work` for a request of `size` bytes on another thread. NriError if too much waits already."""
        call = self._open.begin(size)
        then = partial(_then, late, call.answered)
        self._threads.run(work, seconds, then, owner=self, returned=call.ended)

    def _answer(self, answer: _Answer) -> None:
        call = answer.call
        known = {"Configure": self._configure, "Synchronize": self._synchronize, "Shutdown": self._shutdown}
        try:
            if call.service == PLUGIN and call.method in known:
                known[call.method](answer)
                if call.method == "Synchronize":
                    _return_memory()
            elif call.service == PLUGIN and call.method == "StateChange":
                self._state_change(answer)
            elif call.service == PLUGIN and call.method in BY_METHOD:
                event = BY_METHOD[call.method]
                self._event(answer, event, event.call.request.FromString(call.payload))
            else:
                call.fail(Code.UNIMPLEMENTED, f"there is no method {call.service}/{call.method}")
        except DecodeError:
            self.close(NriError(f"{self.peer}: the request of {call.method} cannot be decoded"))

    def _late(self, answer: _Answer) -> None:
        """Answer a call whose handler has used up its time."""
        problem = f"the handler has not answered within {answer.seconds:g} s"
        if answer.call.method in {"Configure", "Synchronize"}:
            self._fail(answer, problem)
        else:
            answer.fail(problem)

    def _fail(self, answer: _Answer, problem: str, error: BaseException | None = None) -> None:
        """Answer an error to a call without which there can be no connection, and end the connection."""
        failure = NriError(f"{self.peer}: {answer.call.method} failed: {problem}")
        self._failure = self._failure or failure  # before the answer, after which the runtime may be the first to close
        if answer.fail(problem, error):
            self.close(failure)
        elif self._failure is failure:
            self._failure = None

    def _configure(self, answer: _Answer) -> None:
        request = pb.ConfigureRequest.FromString(answer.call.payload)
        runtime = RuntimeInfo(
            request.runtime_name,
            request.runtime_version,
            request.NRI_version,
            min(request.request_timeout / 1000, LONGEST_TIMEOUT) if request.request_timeout > 0 else DEFAULT_TIMEOUT,
        )
        unknown = sorted(event for event in self._plugin.subscriptions if not runtime.knows(event))
        if unknown:
            names = ", ".join(event.call.method for event in unknown)
            log.warning("%s: %s has no %s; the plugin goes on without", self.peer, runtime, names)
        events = set(self._plugin.subscriptions) - set(unknown)
        self._runtime = runtime
        # 0 would mean all events, so a plugin without events gets the least frequent one, and answers it with nothing.
        answer.call.answer(pb.ConfigureResponse(events=mask(events or {Event.REMOVE_POD_SANDBOX})))

    def _synchronize(self, answer: _Answer) -> None:
        request = pb.SynchronizeRequest.FromString(answer.call.payload)
        with self._lock:
            self._part_bytes += len(answer.call.payload)
            if self._part_bytes > MAX_BYTES:
                sent = f"Synchronize has sent {self._part_bytes} bytes, more than {MAX_BYTES}, and has not ended"
                self.close(NriError(f"{self.peer}: {sent}"))
                return
            pods, containers = self._parts
            pods.extend(request.pods)
            containers.extend(request.containers)
            if not request.more:
                self._parts, self._part_bytes = ([], []), 0
        if request.more:
            answer.call.answer(pb.SynchronizeResponse(more=True))
            return
        try:
            response = pb.SynchronizeResponse(update=self._plugin.synchronize(pods, containers))
        except BaseException as error:  # noqa: BLE001 (an author's code)
            self._fail(answer, _problem(error), error)
            return
        if answer.call.answer(response):
            self._connected = True
            self._synchronized.set()

    def _shutdown(self, answer: _Answer) -> None:
        answer.call.answer(pb.Empty())
        log.info("%s: the runtime shuts its plugins down", self.peer)
        self.close()

    def _state_change(self, answer: _Answer) -> None:
        known = from_state_change(pb.StateChangeEvent.FromString(answer.call.payload))
        if known is None:
            answer.call.answer(pb.Empty())
        else:
            self._event(answer, *known)

    def _event(self, answer: _Answer, event: Event, request: Any) -> None:
        subscription = self._plugin.subscriptions.get(event)
        if subscription is None:
            answer.call.answer(event.call.response())
            return
        policy = subscription.failure_policy
        answer.begin(event, request, policy if isinstance(policy, FailurePolicy) else policy(request))
        try:
            returned = subscription.handle(request)
        except BaseException as error:  # noqa: BLE001 (an author's code)
            answer.fail(_problem(error), error)
            return
        response = returned.message if isinstance(returned, EventResponse) else returned
        if response is not None and not isinstance(response, event.call.response):
            answer.fail(f"the handler returned {type(response).__name__}, not {event.call.response.__name__}")
            return
        in_time = False
        try:
            in_time = answer.call.answer(response or event.call.response())
            if not in_time:
                log.warning("%s: %s: the handler has returned, too late", self.peer, answer.subject)
        finally:
            if isinstance(returned, EventResponse):
                returned.sent(in_time)


def _then(work: Callable[[], object], last: Callable[[], None]) -> None:
    try:
        work()
    finally:
        last()


class _Answer:
    """The answer that a call is to get, and what is known of the call for messages.

    seconds: how long the handler has.
    subject: the method, and the container or pod when it is known.
    """

    def __init__(self, call: TtrpcCall, peer: str, seconds: float) -> None:
        self.call, self.seconds = call, seconds
        self.subject = call.method
        self._peer = peer
        self._policy = FailurePolicy.FAIL
        self._empty: Message | None = None

    def begin(self, event: Event, request: Any, policy: FailurePolicy) -> None:
        """Note what the call is about, before a handler takes it."""
        pod = f"{request.pod.namespace}/{request.pod.name}"
        container = getattr(request, "container", None)
        self.subject = (
            f"{event.call.method} for " + (f"container {container.name} of " if container else "") + f"pod {pod}"
        )
        self._empty, self._policy = event.call.response(), policy

    def fail(self, problem: str, error: BaseException | None = None) -> bool:
        """Answer by the failure policy, and log why. False if the call was answered before."""
        ignored = self._policy is FailurePolicy.IGNORE and not isinstance(error, StartRefusedError)
        if ignored and self._empty is not None:
            answered = self.call.answer(self._empty)
            what = "goes on without the plugin"
        else:
            answered = self.call.fail(Code.UNKNOWN, f"{self.subject}: {problem}")
            what = "gets the error"
        if answered:
            unexpected = None if error is None or isinstance(error, DraError) else error
            log.error("%s: %s: %s; the runtime %s", self._peer, self.subject, problem, what, exc_info=unexpected)
        return answered


def _return_memory() -> None:
    """Give memory back to the kernel after a message with all containers: glibc would keep some MiB."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # other C libraries have no such function
        trim(0)


def _problem(error: BaseException) -> str:
    return one_line(str(error) or type(error).__name__, _SHOWN) + raised_at(error)
