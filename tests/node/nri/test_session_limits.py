"""A runtime that sends without end and reads nothing: the connection ends with a sentence, and is made anew."""

from __future__ import annotations

import logging
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Event as ThreadEvent
from threading import Thread
from typing import Any

import pytest

from dra_sdk.errors import NriError
from dra_sdk.node.nri.events import PLUGIN, Event
from dra_sdk.node.nri.mux import PLUGIN_SERVICE, RUNTIME_SERVICE, frames
from dra_sdk.node.nri.open_calls import CALL_BYTES, MAX_BYTES, MAX_CALLS, OpenCalls
from dra_sdk.node.nri.session import Subscription
from dra_sdk.node.nri.ttrpc import REQUEST, RESPONSE, TtrpcFrame, encode
from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.wire.proto import nri_ttrpc_pb2 as ttrpc
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb
from tests.node.nri.nri_objects import container, plugin, pod

MIB = 1024 * 1024


class Flood:
    """A runtime on a socket: to each connection it sends the frames of `calls`, as far as the plugin takes them."""

    def __init__(self, path: Path, calls: Callable[[], Iterator[tuple[str, Any]]], *, reads: bool) -> None:
        self._calls, self._reads = calls, reads
        self.connections, self.sent = 0, 0
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._stop = ThreadEvent()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Flood:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(LONG)
        self._listener.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with closing(sock):
                try:
                    self._serve(sock)
                except OSError:
                    continue

    def _serve(self, sock: socket.socket) -> None:
        sock.settimeout(LONG)
        sock.recv(65536)  # RegisterPlugin
        sock.sendall(_frame(RUNTIME_SERVICE, TtrpcFrame(1, RESPONSE, ttrpc.Response().SerializeToString())))
        if self._reads:
            Thread(target=_read, args=(sock.dup(),), daemon=True).start()
        for number, (method, request) in enumerate(self._calls()):
            if self._stop.is_set():
                return
            call = ttrpc.Request(service=PLUGIN, method=method, payload=request.SerializeToString())
            sock.sendall(_frame(PLUGIN_SERVICE, TtrpcFrame(2 * number + 1, REQUEST, call.SerializeToString())))
            self.sent += 1


def _read(sock: socket.socket) -> None:
    with closing(sock):
        try:
            while sock.recv(65536):
                pass
        except OSError:
            return


def _frame(connection: int, frame: TtrpcFrame) -> bytes:
    return b"".join(frames(connection, encode(frame), MAX_BYTES))


def begin() -> Iterator[tuple[str, Any]]:
    yield "Configure", pb.ConfigureRequest(runtime_name="flood", runtime_version="1")
    yield "Synchronize", pb.SynchronizeRequest()


def tiny_calls() -> Iterator[tuple[str, Any]]:
    yield from begin()
    while True:
        yield "CreateContainer", pb.CreateContainerRequest(pod=pod(), container=container())


def large_calls() -> Iterator[tuple[str, Any]]:
    yield from begin()
    huge = container(env=["x" * (3 * MIB)])
    while True:
        yield "CreateContainer", pb.CreateContainerRequest(pod=pod(), container=huge)


def endless_synchronize() -> Iterator[tuple[str, Any]]:
    yield "Configure", pb.ConfigureRequest(runtime_name="flood", runtime_version="1")
    huge = container(env=["x" * (3 * MIB)])
    while True:
        yield "Synchronize", pb.SynchronizeRequest(containers=[huge], more=True)


def slow(_request: Any) -> None:
    HELD.wait(LONG)


HELD = ThreadEvent()


@pytest.mark.parametrize(
    ("calls", "reads", "problem"),
    [
        (tiny_calls, False, "257 calls wait for an answer, more than 256"),
        (large_calls, False, "bytes wait, more than 67108864"),
        (endless_synchronize, True, "Synchronize has sent "),
    ],
)
def test_a_flood_ends_the_connection_with_a_sentence_and_another_is_made(
    path: Path, caplog: pytest.LogCaptureFixture, calls: Any, reads: bool, problem: str
) -> None:
    HELD.clear()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with Flood(path, calls, reads=reads) as runtime:
        try:
            with plugin(path, {Event.CREATE_CONTAINER: Subscription(slow)}, connected=False):
                wait(lambda: runtime.connections >= 2)
                HELD.set()
        finally:
            HELD.set()
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert any(f"{path}: " in error and problem in error and "starts again in" in error for error in errors), errors
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 * 1024


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "nri.sock"


def test_calls_at_the_limit_are_taken_and_one_more_is_not() -> None:
    counted = OpenCalls()
    calls = [counted.begin(0) for _ in range(MAX_CALLS)]
    calls[0].answered()
    calls[0].answered()
    another = counted.begin(0)
    with pytest.raises(NriError, match="257 calls wait for an answer, more than 256"):
        counted.begin(0)
    another.ended()


def test_bytes_at_the_limit_are_taken_and_one_more_is_not() -> None:
    counted = OpenCalls()
    call = counted.begin(MAX_BYTES - 2 * CALL_BYTES)
    call.answered()  # the handler still has the request
    counted.begin(0).ended()
    with pytest.raises(NriError, match="calls with 67108865 bytes wait, more than 67108864"):
        counted.begin(1)
    call.ended()
