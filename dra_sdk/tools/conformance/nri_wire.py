"""Between an NRI plugin and the kit's container runtime: records their calls.

The plugin connects to a socket here, and each connection is passed on to the socket of the runtime. Messages are
passed on unchanged. Towards the plugin they are cut into frames as containerd cuts them, or into small ones.

Source: containerd/nri pkg/net/multiplex; containerd/ttrpc channel.go.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from threading import Lock, Thread
from time import monotonic, sleep
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError, Message

from dra_sdk.errors import NriError
from dra_sdk.node.nri.events import BY_METHOD
from dra_sdk.node.nri.mux import MAX_FRAME, PLUGIN_FRAME, PLUGIN_SERVICE, RUNTIME_SERVICE, frames
from dra_sdk.node.nri.ttrpc import MAX_DATA, REQUEST, Code, FrameDecoder, TtrpcFrame, encode
from dra_sdk.tools.conformance.outcomes import Recorder
from dra_sdk.tools.simulator.kubelet.calls import Exchange, to_json
from dra_sdk.wire.proto import nri_ttrpc_pb2 as ttrpc
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb

SMALL_FRAMES: Final = (1, 3, 7, 20, 100)
"""Bytes of payload in frames that are cut anywhere."""
_JOIN: Final = 10.0  # seconds
_MUX: Final = struct.Struct(">II")
_TTRPC: Final = struct.Struct(">IIBB")
_BURST: Final = 64  # frames in a row; a plugin's queue holds 256
_PAUSE: Final = 0.002  # seconds
_READ: Final = 65536  # bytes
_SHOWN: Final = 16384  # bytes of a message in a report
_MESSAGES: Final[dict[str, tuple[type[Message], type[Message]]]] = {
    "RegisterPlugin": (pb.RegisterPluginRequest, pb.Empty),
    "UpdateContainers": (pb.UpdateContainersRequest, pb.UpdateContainersResponse),
    "Configure": (pb.ConfigureRequest, pb.ConfigureResponse),
    "Synchronize": (pb.SynchronizeRequest, pb.SynchronizeResponse),
    "StateChange": (pb.StateChangeEvent, pb.Empty),
    **{method: (event.call.request, event.call.response) for method, event in BY_METHOD.items()},
}


class NriCall(NamedTuple):
    """A call that was answered.

    method: of the service Plugin, or RegisterPlugin or UpdateContainers of the service Runtime.
    request: the encoded request.
    response: the encoded response; empty for an error.
    code: the status code of gRPC.
    message: the error's text.
    began: when the request was sent, in seconds of the monotonic clock.
    ended: when the answer came.
    """

    method: str
    request: bytes
    response: bytes
    code: int
    message: str
    began: float
    ended: float

    @property
    def answer(self) -> Any:
        """The response as a message; an empty one if it cannot be decoded."""
        return _decoded(_MESSAGES.get(self.method, (pb.Empty, pb.Empty))[1], self.response)

    @property
    def status(self) -> str:
        """Code and message on one line."""
        name = Code(self.code).name if self.code in {code.value for code in Code} else f"code {self.code}"
        return "OK" if self.code == Code.OK else f"{name}: {self.message}"

    def exchange(self) -> Exchange:
        """Return the call for a report; long messages are left out."""
        request, response = _MESSAGES.get(self.method, (pb.Empty, pb.Empty))
        answer = _shown(response, self.response) if self.code == Code.OK else self.status
        return Exchange(self.method, _shown(request, self.request), answer, self.ended - self.began)


class NriWire:
    """Listens for a plugin at `path`, and passes its connections on to the runtime at `runtime`.

    recorder: gets each call, as evidence.
    small_frames: whether messages to the plugin are cut anywhere.

    calls: all calls that were answered, in the order of their answers.
    connected: when plugins have connected, in seconds of the monotonic clock.
    problems: what plugins did that a runtime does not accept.
    longest: bytes of the longest message of a plugin.
    """

    def __init__(self, path: Path, runtime: Path, recorder: Recorder, *, small_frames: bool = False) -> None:
        self.path, self._runtime, self._recorder, self._small = path, runtime, recorder, small_frames
        self.calls: list[NriCall] = []
        self.connected: list[float] = []
        self.problems: list[str] = []
        self.longest = 0
        self._connections: list[_Connection] = []
        self._listener: socket.socket | None = None
        self._thread: Thread | None = None

    def start(self) -> None:
        """Listen; replaces a socket that is there."""
        listener = listen(self.path)
        self._listener = listener
        self._thread = Thread(target=self._accept, args=(listener,), name="nri-wire", daemon=True)
        self._thread.start()

    def stop(self, *, replaced: bool = False) -> None:
        """Close all connections, and remove the socket unless another one has replaced it."""
        if self._listener is None or self._thread is None:
            return
        if not replaced:
            self.path.unlink(missing_ok=True)
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(_JOIN)
        self._listener.close()
        self._listener = None
        for connection in self._connections:
            connection.close()
        for connection in self._connections:
            connection.join()
        self._connections.clear()

    def answered(self, call: NriCall) -> None:
        """Record a call that was answered."""
        self.calls.append(call)
        self._recorder.add(call.exchange())

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                plugin, _ = listener.accept()
            except OSError:
                return  # stopped
            self.connected.append(monotonic())
            runtime = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                runtime.connect(str(self._runtime))
            except OSError as error:
                self.problems.append(f"the kit's runtime does not listen: {error.strerror}")
                plugin.close()
                runtime.close()
                continue
            connection = _Connection(self, plugin, runtime, small=self._small)
            self._connections.append(connection)
            connection.start()


class _Connection:
    """A plugin's connection, and the one to the runtime to which it is passed on."""

    def __init__(self, wire: NriWire, plugin: socket.socket, runtime: socket.socket, *, small: bool) -> None:
        self._wire, self._plugin, self._runtime = wire, plugin, runtime
        self._cut = _small_frames if small else _go_frames
        self._lock = Lock()
        self._open: dict[tuple[int, int], tuple[str, bytes, float]] = {}
        self._threads = [
            Thread(target=self._pass_on, args=args, name="nri-wire", daemon=True)
            for args in ((plugin, self._from_plugin), (runtime, self._from_runtime))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        for side in (self._plugin, self._runtime):
            with suppress(OSError):  # closed by the other side
                side.shutdown(socket.SHUT_RDWR)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(_JOIN)
        self._plugin.close()
        self._runtime.close()

    def _pass_on(self, source: socket.socket, handle: Callable[[int, TtrpcFrame], None]) -> None:
        """Read whole frames of the multiplexer until one side ends."""
        buffer = b""
        decoders = {service: FrameDecoder() for service in (PLUGIN_SERVICE, RUNTIME_SERVICE)}
        readers = {service: _GoReader() for service in decoders}
        try:
            while data := source.recv(_READ):
                buffer += data
                while len(buffer) >= _MUX.size:
                    service, size = _MUX.unpack_from(buffer)
                    if source is self._plugin and service in readers:
                        readers[service].expect(service, size)
                    if len(buffer) < _MUX.size + size:
                        break
                    payload, buffer = buffer[_MUX.size : _MUX.size + size], buffer[_MUX.size + size :]
                    if service in decoders:
                        readers[service].read(payload)
                        for frame in decoders[service].feed(payload):
                            handle(service, frame)
        except NriError as error:
            self._wire.problems.append(f"the plugin broke the protocol: {error}")
        except (OSError, DecodeError):
            return  # the other side has closed
        finally:
            self.close()

    def _from_plugin(self, service: int, frame: TtrpcFrame) -> None:
        if frame.rejected:
            raise NriError(f"a message has {frame.rejected} bytes, more than {MAX_DATA}")
        self._wire.longest = max(self._wire.longest, len(frame.data) + _TTRPC.size)
        self._record(service, frame)
        self._runtime.sendall(b"".join(frames(service, encode(frame), PLUGIN_FRAME)))

    def _from_runtime(self, service: int, frame: TtrpcFrame) -> None:
        self._record(service, frame)
        for number, piece in enumerate(self._cut(encode(frame)), 1):
            self._plugin.sendall(_MUX.pack(service, len(piece)) + piece)
            if number % _BURST == 0:
                sleep(_PAUSE)

    def _record(self, service: int, frame: TtrpcFrame) -> None:
        """Remember a request, or record the call that a response ends."""
        key = service, frame.stream
        if frame.kind == REQUEST:
            request = ttrpc.Request.FromString(frame.data)
            with self._lock:
                self._open[key] = request.method, request.payload, monotonic()
            return
        response = ttrpc.Response.FromString(frame.data)
        with self._lock:
            opened = self._open.pop(key, None)
        if opened is not None:
            method, payload, began = opened
            code, message = response.status.code, response.status.message
            self._wire.answered(NriCall(method, payload, response.payload, code, message, began, monotonic()))


class _GoReader:
    """How containerd reads a connection: with a buffer of 4096 bytes, or straight into the rest of a message.

    A frame that is longer than what it is read into ends the connection with ENOMEM.
    """

    def __init__(self) -> None:
        self._header = b""
        self._missing = 0

    def expect(self, service: int, size: int) -> None:
        """Prepare for a frame of this size; NriError if it is too long."""
        limit = max(PLUGIN_FRAME, self._missing)
        if size > limit:
            raise NriError(f"a frame of connection {service} has {size} bytes, more than {limit}")

    def read(self, payload: bytes) -> None:
        """Take a frame."""
        while payload:
            if self._missing:
                taken = min(self._missing, len(payload))
                self._missing -= taken
            else:
                taken = _TTRPC.size - len(self._header)
                self._header += payload[:taken]
                if len(self._header) == _TTRPC.size:
                    self._missing = _TTRPC.unpack(self._header)[0]
                    self._header = b""
            payload = payload[taken:]


def listen(path: Path) -> socket.socket:
    """Return a unix socket that listens at a path; replaces, in one step, a socket that is there."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    new = path.with_name(f".{path.name}")
    new.unlink(missing_ok=True)
    listener.bind(str(new))
    listener.listen()
    new.chmod(0o600)
    new.rename(path)
    return listener


def _go_frames(message: bytes) -> Iterator[bytes]:
    """Cut as containerd: 4096 bytes, which its buffer holds, and the rest."""
    yield message[:PLUGIN_FRAME]
    for start in range(PLUGIN_FRAME, len(message), MAX_FRAME):
        yield message[start : start + MAX_FRAME]


def _small_frames(message: bytes) -> Iterator[bytes]:
    sizes = cycle(SMALL_FRAMES)
    start = 0
    while start < len(message):
        size = next(sizes)
        yield message[start : start + size]
        start += size


def _shown(kind: type[Message], data: bytes) -> Any:
    return to_json(_decoded(kind, data)) if len(data) <= _SHOWN else f"{len(data)} bytes"


def _decoded(kind: type[Message], data: bytes) -> Message:
    try:
        return kind.FromString(data)
    except DecodeError:
        return kind()
