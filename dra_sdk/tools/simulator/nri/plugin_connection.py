"""One connected plugin, as the container runtime sees it."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from threading import Event as ThreadEvent
from threading import Lock
from time import monotonic
from typing import Any, Final, NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from dra_sdk.errors import NriError
from dra_sdk.node.nri.events import (
    CALL_FOR_EACH_EVENT,
    PLUGIN,
    RUNTIME,
    SPLIT_SYNCHRONIZE,
    Event,
    RuntimeInfo,
    mask,
    subscribed,
)
from dra_sdk.node.nri.handler_threads import HandlerThreads
from dra_sdk.node.nri.mux import MAX_FRAME, PLUGIN_FRAME, PLUGIN_SERVICE, RUNTIME_SERVICE, Mux
from dra_sdk.node.nri.ttrpc import Code, TtrpcCall, TtrpcClient, TtrpcError, TtrpcServer
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb

FATAL: Final = frozenset({Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE})
"""After these errors the runtime closes the plugin and goes on without it."""

_NAME: Final = re.compile(r"[A-Za-z0-9_.+-]+")
_INDEX: Final = re.compile(r"[0-9]{2}")
_FEWEST: Final = 8  # objects in a part of Synchronize
_STALL: Final = 10.0  # seconds

M = TypeVar("M", bound=Message)


class PluginCall(NamedTuple):
    """A call of a plugin that has ended.

    plugin: index and name, such as `10-dra.cpu`.
    method: of the service Plugin.
    seconds: from the request to the answer.
    code: OK, or why it failed.
    message: the error's text.
    """

    plugin: str
    method: str
    seconds: float
    code: int = Code.OK
    message: str = ""


class PluginConnection:
    """A socket that a plugin has connected.

    name: index and name, such as `10-dra.cpu`; empty before it has registered.
    events: what it has subscribed to.
    problem: why it has ended; None if it has not, or has ended in order.

    update: called when the plugin wants to change containers.
    log: gets each call.
    """

    def __init__(
        self,
        sock: socket.socket,
        path: str,
        runtime: RuntimeInfo,
        *,
        update: Callable[[Iterable[pb.ContainerUpdate]], None],
        log: Callable[[PluginCall], None],
    ) -> None:
        self.name = ""
        self.events: frozenset[Event] = frozenset()
        self._path, self._runtime, self._update, self._log = path, runtime, update, log
        # Like containerd, which writes frames of any size, and fails with ENOMEM for a long one of the plugin.
        self._mux = Mux(sock, f"a plugin at {path}", written=MAX_FRAME, read=PLUGIN_FRAME)
        self._client = TtrpcClient(partial(self._mux.write, PLUGIN_SERVICE), self._mux.peer)
        self._threads = HandlerThreads("nri-runtime")
        write = partial(self._mux.write, RUNTIME_SERVICE)
        self._server = TtrpcServer(write, self._handle, lambda refusal: self._threads.run(refusal, _STALL))
        self._lock = Lock()
        self._registered = ThreadEvent()
        self._configured = ThreadEvent()
        self._closed = ThreadEvent()
        self.problem: NriError | None = None
        self._hold_reply = False

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended."""
        return self._closed.is_set()

    def start(self, timeout: float, *, configure_first: bool) -> None:
        """Wait up to `timeout` seconds for RegisterPlugin, and configure the plugin.

        With `configure_first` RegisterPlugin is answered after Configure, as containerd may do. NriError if the plugin
        is refused.
        """
        self._hold_reply = configure_first
        self._mux.start({PLUGIN_SERVICE: self._client.receive, RUNTIME_SERVICE: self._server.receive}, self._end)
        if not self._registered.wait(timeout):
            raise NriError(f"{self._mux.peer} has not registered within {timeout:g} s")
        if self.problem or self.is_closed:
            raise self.problem or NriError(f"{self._mux.peer} has disconnected before RegisterPlugin")
        info = self._runtime
        answer = self.call(
            "Configure",
            pb.ConfigureRequest(
                runtime_name=info.name,
                runtime_version=info.version,
                registration_timeout=int(timeout * 1000),
                request_timeout=int(info.request_timeout * 1000),
                NRI_version=info.nri_version if info.nri >= CALL_FOR_EACH_EVENT else "",
            ),
            pb.ConfigureResponse,
        )
        self._configured.set()
        valid = frozenset(event for event in Event if info.knows(event))
        extra = answer.events & ~mask(valid)
        if extra:
            raise NriError(f"plugin {self.name} subscribes to events that {info} does not know: {extra:#x}")
        self.events = subscribed(answer.events) or valid

    def synchronize(
        self, pods: Sequence[pb.PodSandbox], containers: Sequence[pb.Container], part: int | None
    ) -> list[pb.ContainerUpdate]:
        """Send all pods and containers, in parts of `part` pods and as many containers; None means as long as allowed.

        All parts share one timeout. Returns the plugin's updates; NriError closes the plugin.
        """
        deadline = monotonic() + self._runtime.request_timeout
        size = max(len(pods), len(containers)) if part is None else part
        start = 0
        while True:
            end = start + max(size, 1)
            more = end < max(len(pods), len(containers))
            if more and self._runtime.nri < SPLIT_SYNCHRONIZE:
                raise NriError(f"{self._runtime} cannot synchronize {len(containers)} containers with {self.name}")
            request = pb.SynchronizeRequest(pods=pods[start:end], containers=containers[start:end], more=more)
            try:
                answer = self.call("Synchronize", request, pb.SynchronizeResponse, deadline - monotonic())
            except TtrpcError as error:
                if error.code != Code.RESOURCE_EXHAUSTED or size <= _FEWEST:
                    raise
                size //= 2
                continue
            if not more:
                return list(answer.update)
            if answer.update or not answer.more:
                raise NriError(f"plugin {self.name} does not handle Synchronize in parts")
            start = end

    def send(self, event: Event, request: Any) -> Any:
        """Send an event; the plugin's answer, or None if it has not subscribed, or was closed because it is late.

        TtrpcError if it answers an error.
        """
        if event not in self.events or self.is_closed:
            return None
        try:
            if self._runtime.nri >= event.call.own:
                try:
                    return self.call(event.call.method, request, event.call.response)
                except TtrpcError as error:
                    if error.code != Code.UNIMPLEMENTED or event.call.own != CALL_FOR_EACH_EVENT:
                        raise
            change = pb.StateChangeEvent(event=pb.Event.Name(event.value), pod=request.pod)
            if isinstance(request, pb.ContainerEvent):
                change.container.CopyFrom(request.container)
            return self.call("StateChange", change, pb.Empty)
        except TtrpcError as error:
            if error.code not in FATAL:
                raise
            self.close(error)
            return None

    def shut_down(self) -> None:
        """Tell the plugin that the runtime ends; TtrpcError."""
        self.call("Shutdown", pb.Empty(), pb.Empty)

    def call(self, method: str, request: Message, response: type[M], timeout: float | None = None) -> M:
        """Call a method of the plugin; TtrpcError."""
        began = monotonic()
        code: int = Code.OK
        message = ""
        try:
            seconds = self._runtime.request_timeout if timeout is None else max(timeout, 0.001)
            return self._client.call(PLUGIN, method, request, response, seconds)
        except TtrpcError as error:
            code, message = error.code, str(error)
            raise
        finally:
            self._log(PluginCall(self.name, method, monotonic() - began, code, message))

    def close(self, reason: NriError | None = None) -> None:
        """End the connection. Returns at once."""
        self._note(reason)
        self._closed.set()
        self._mux.close(reason)

    def join(self, timeout: float) -> bool:
        """Wait until all threads of a closed connection have ended; False if they have not after `timeout` seconds."""
        return all([self._mux.join(timeout), self._threads.stop(timeout)])

    def _note(self, reason: NriError | None) -> None:
        with self._lock:
            self.problem = self.problem or reason

    def _end(self, reason: NriError | None) -> None:
        self._note(reason)
        self._closed.set()
        self._client.close(reason or NriError(f"{self._mux.peer} has disconnected"))
        self._registered.set()
        self._configured.set()

    def _handle(self, call: TtrpcCall) -> None:
        self._threads.run(partial(self._answer, call), _STALL)

    def _answer(self, call: TtrpcCall) -> None:
        try:
            if call.service == RUNTIME and call.method == "RegisterPlugin":
                self._register(call, pb.RegisterPluginRequest.FromString(call.payload))
            elif call.service == RUNTIME and call.method == "UpdateContainers":
                self._update(pb.UpdateContainersRequest.FromString(call.payload).update)
                call.answer(pb.UpdateContainersResponse())
            else:
                call.fail(Code.UNIMPLEMENTED, f"there is no method {call.service}/{call.method}")
        except DecodeError:
            self.close(NriError(f"{self._mux.peer}: the request of {call.method} cannot be decoded"))

    def _register(self, call: TtrpcCall, request: pb.RegisterPluginRequest) -> None:
        name, index = request.plugin_name, request.plugin_idx
        problem = ""
        if not _NAME.fullmatch(name):
            problem = f"plugin name {name!r} has other characters than letters, digits and _.+-"
        elif not _INDEX.fullmatch(index):
            problem = f"plugin index {index!r} is not of two digits"
        if problem:
            call.fail(Code.INVALID_ARGUMENT, problem)
            self._note(NriError(f"{self._mux.peer}: {problem}"))
            self._registered.set()
            return
        self.name = f"{index}-{name}"
        self._registered.set()
        if self._hold_reply:
            self._configured.wait(_STALL)
        call.answer(pb.Empty())
