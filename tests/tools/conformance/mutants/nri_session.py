"""A plugin of NRI that breaks the protocol, which `NriPlugin` cannot do."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Event as ThreadEvent
from threading import Thread
from typing import Any

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from dra_sdk.errors import NriError
from dra_sdk.node.nri.events import BY_METHOD, RUNTIME, Event, from_state_change, mask
from dra_sdk.node.nri.mux import MAX_FRAME, PLUGIN_FRAME, PLUGIN_SERVICE, RUNTIME_SERVICE, Mux
from dra_sdk.node.nri.session import Subscription, Synchronize
from dra_sdk.node.nri.ttrpc import Code, TtrpcCall, TtrpcClient, TtrpcServer
from dra_sdk.testing.waiting import LONG
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb
from tests.tools.conformance.mutants import Faults

WIRE_FAULTS = frozenset(
    {
        "never-registers",
        "odd-index",
        "half-duplex",
        "all-events",
        "no-parts",
        "last-part-only",
        "long-frames",
        "whole-frames",
        "answers-any-call",
        "strict-fields",
        "updates-by-call",
        "connects-once",
        "dies-of-garbage",
        "no-state-change",
        "slow-with-many",
    }
)
RETRY = 0.05  # seconds
ALL_EVENTS = 0x3FFF


class RawPlugin:
    """Connects again and again, until it is stopped."""

    def __init__(
        self,
        path: Path,
        synchronize: Synchronize,
        subscriptions: Mapping[Event, Subscription],
        faults: Faults,
        die: Callable[[str], None],
    ) -> None:
        self._path, self._faults, self._die = path, faults, die
        self._synchronize, self._subscriptions = synchronize, subscriptions
        self._stopped = ThreadEvent()
        self._session: _Session | None = None
        self._thread = Thread(target=self._run, name="raw-plugin", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        self._stopped.set()
        if self._session:
            self._session.close()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopped.is_set():
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.connect(str(self._path))
            except OSError:
                sock.close()
                self._stopped.wait(RETRY)
                continue
            self._session = _Session(sock, self._synchronize, self._subscriptions, self._faults)
            if self._stopped.is_set():
                self._session.close()
            problem = self._session.run()
            if "dies-of-garbage" in self._faults and problem and not self._stopped.is_set():
                self._die("ended with status 1")
            if "connects-once" in self._faults:
                return
            self._stopped.wait(RETRY)


class _Session:
    def __init__(
        self,
        sock: socket.socket,
        synchronize: Synchronize,
        subscriptions: Mapping[Event, Subscription],
        faults: Faults,
    ) -> None:
        self._synchronize, self._subscriptions, self._faults = synchronize, subscriptions, faults
        self._mux = Mux(sock, "the runtime", written=MAX_FRAME if "long-frames" in faults else PLUGIN_FRAME)
        self._client = TtrpcClient(partial(self._mux.write, RUNTIME_SERVICE), "the runtime")
        self._calls: SimpleQueue[TtrpcCall | None] = SimpleQueue()
        self._server = TtrpcServer(partial(self._mux.write, PLUGIN_SERVICE), self._calls.put, lambda refuse: refuse())
        self._registered = ThreadEvent()
        self._problem: NriError | None = None
        self._containers: list[pb.Container] = []
        self._updates: list[Thread] = []

    def run(self) -> NriError | None:
        """Until the connection has ended; why, if it was not in order."""
        self._mux.start({PLUGIN_SERVICE: self._receive, RUNTIME_SERVICE: self._client.receive}, self._ended)
        registration = Thread(target=self._register, daemon=True)
        if "never-registers" not in self._faults:
            registration.start()
        while call := self._calls.get():
            if "half-duplex" in self._faults:
                self._registered.wait(LONG)
            try:
                self._handle(call)
            except NriError:
                continue  # the connection has ended
            except DecodeError as error:
                self._problem = NriError(str(error))
                self.close()
        if registration.ident:
            registration.join(LONG)
        for thread in self._updates:
            thread.join(LONG)
        self._mux.join(LONG)
        return self._problem

    def close(self) -> None:
        self._mux.close()
        self._ended(None)  # also if the reader has not started

    def _ended(self, reason: NriError | None) -> None:
        self._problem = self._problem or reason
        self._client.close(reason or NriError("the connection is closed"))
        self._registered.set()
        self._calls.put(None)

    def _receive(self, data: bytes) -> None:
        if "whole-frames" in self._faults and len(data) != 10 + struct.unpack_from(">I", data.ljust(4))[0]:
            raise NriError("a frame is not a message")
        self._server.receive(data)

    def _register(self) -> None:
        index = "7" if "odd-index" in self._faults else "10"
        request = pb.RegisterPluginRequest(plugin_name="mutant", plugin_idx=index)
        try:
            self._client.call(RUNTIME, "RegisterPlugin", request, pb.Empty, LONG)
        except NriError as error:
            self._problem = error
        self._registered.set()

    def _handle(self, call: TtrpcCall) -> None:
        if call.method == "Configure":
            events = ALL_EVENTS if "all-events" in self._faults else mask(self._subscriptions)
            pb.ConfigureRequest.FromString(call.payload)
            call.answer(pb.ConfigureResponse(events=events))
        elif call.method == "Synchronize":
            self._take(call, pb.SynchronizeRequest.FromString(call.payload))
        elif call.method == "StateChange":
            event = from_state_change(pb.StateChangeEvent.FromString(call.payload))
            if event and "no-state-change" not in self._faults:
                self._event(call, *event)
            else:
                call.answer(pb.Empty())
        elif event := BY_METHOD.get(call.method):
            self._event(call, event, event.call.request.FromString(call.payload))
        elif "answers-any-call" in self._faults:
            call.answer(pb.Empty())
        else:
            call.fail(Code.UNIMPLEMENTED, f"there is no method {call.method}")

    def _take(self, call: TtrpcCall, request: pb.SynchronizeRequest) -> None:
        if request.more:
            if "last-part-only" not in self._faults:
                self._containers.extend(request.containers)
            call.answer(pb.SynchronizeResponse(more="no-parts" not in self._faults))
            return
        self._containers.extend(request.containers)
        call.answer(pb.SynchronizeResponse(update=self._synchronize([], self._containers)))

    def _event(self, call: TtrpcCall, event: Event, request: Any) -> None:
        messages: list[Message] = [request, request.pod]
        messages += [request.container] if hasattr(request, "container") else []
        if "strict-fields" in self._faults and any(len(UnknownFieldSet(message)) for message in messages):
            call.fail(Code.INVALID_ARGUMENT, "unknown fields")
            return
        subscription = self._subscriptions.get(event)
        try:
            response = subscription.handle(request) if subscription else None
        except ValueError as error:
            call.fail(Code.UNKNOWN, str(error))
            return
        call.answer(response or event.call.response())
        if event is Event.STOP_CONTAINER and "updates-by-call" in self._faults:
            self._updates.append(Thread(target=self._update, args=(response,), daemon=True))
            self._updates[-1].start()

    def _update(self, response: pb.StopContainerResponse) -> None:
        request = pb.UpdateContainersRequest(update=response.update)
        try:
            self._client.call(RUNTIME, "UpdateContainers", request, pb.UpdateContainersResponse, LONG)
        except NriError:
            return  # the connection has ended
