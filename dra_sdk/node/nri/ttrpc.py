"""ttrpc, the small RPC protocol of containerd: unary calls over a stream of bytes.

A frame is a header of 10 bytes (length of the data and stream id, big-endian uint32; type and flags, a byte each) and
the data, at most 4 MiB: a `Request` or a `Response`. A client numbers its calls 1, 3, 5 and so on; answers come in any
order. Both ends here take bytes on the thread that reads and never wait there, so both directions flow at once.

Source: containerd/ttrpc PROTOCOL.md, version 1.2. Streams of data are not supported: NRI has none.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from concurrent.futures import Future
from enum import IntEnum
from functools import partial
from threading import Lock
from typing import Final, NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from dra_sdk.errors import NriError, one_line
from dra_sdk.wire.proto import nri_ttrpc_pb2 as pb

MAX_DATA: Final = 4 * 1024 * 1024
"""Bytes of data in a frame."""
REQUEST: Final = 1
RESPONSE: Final = 2
DATA: Final = 3

_HEADER: Final = struct.Struct(">IIBB")
_IMPOSSIBLE: Final = 1 << 24  # the first byte of a frame is 0
_REMOTE_OPEN: Final = 2  # the flag of a request that more data follows
_NANO: Final = 1_000_000_000
_SHOWN: Final = 500  # characters of an error's message

M = TypeVar("M", bound=Message)
Write = Callable[[bytes], None]
"""Writes a whole frame; NriError if the connection is closed."""


class Code(IntEnum):
    """Status codes of gRPC."""

    OK = 0
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class TtrpcError(NriError):
    """A call failed; names socket and method.

    code: the status code of gRPC, a `Code` or another number that the peer sent.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class TtrpcFrame(NamedTuple):
    """One frame.

    stream: the number of the call.
    kind: REQUEST, RESPONSE or DATA.
    data: an encoded message; empty if it is too long.
    flags: of the kind.
    rejected: the length of data that is longer than MAX_DATA and was skipped, else 0.
    """

    stream: int
    kind: int
    data: bytes
    flags: int = 0
    rejected: int = 0


class FrameDecoder:
    """Takes bytes as they arrive, however they are split, and gives whole frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._skip = 0

    def feed(self, data: bytes) -> list[TtrpcFrame]:
        """Return the frames that `data` completes; NriError if it cannot be ttrpc."""
        if self._skip:
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            data = data[skipped:]
        self._buffer += data
        frames = []
        while len(self._buffer) >= _HEADER.size:
            length, stream, kind, flags = _HEADER.unpack_from(self._buffer)
            if length >= _IMPOSSIBLE or kind not in {REQUEST, RESPONSE, DATA}:
                raise NriError(f"received bytes that are not ttrpc: a frame of type {kind} with {length} bytes")
            end = _HEADER.size + length
            if length > MAX_DATA:
                frames.append(TtrpcFrame(stream, kind, b"", flags, length))
                self._skip = max(0, end - len(self._buffer))
            elif len(self._buffer) < end:
                break
            else:
                frames.append(TtrpcFrame(stream, kind, bytes(self._buffer[_HEADER.size : end]), flags))
            del self._buffer[:end]
        return frames


def encode(frame: TtrpcFrame) -> bytes:
    """Return the bytes of a frame; TtrpcError RESOURCE_EXHAUSTED if its data is longer than MAX_DATA."""
    if len(frame.data) > MAX_DATA:
        raise TtrpcError(Code.RESOURCE_EXHAUSTED, f"a message has {len(frame.data)} bytes; the limit is {MAX_DATA}")
    return _HEADER.pack(len(frame.data), frame.stream, frame.kind, frame.flags) + frame.data


class TtrpcClient:
    """Calls methods of the peer, from any thread.

    peer: how messages name the other side.
    """

    def __init__(self, write: Write, peer: str) -> None:
        self.peer = peer
        self._write = write
        self._decoder = FrameDecoder()
        self._order = Lock()  # the stream ids on the wire grow
        self._lock = Lock()
        self._stream = -1
        self._pending: dict[int, Future[pb.Response]] = {}
        self._closed: NriError | None = None

    def call(self, service: str, method: str, request: Message, response: type[M], timeout: float) -> M:
        """Call a method and wait for its answer, an instance of `response`.

        TtrpcError with the code of the peer, with DEADLINE_EXCEEDED after `timeout` seconds, with RESOURCE_EXHAUSTED if
        the message is too long, or with UNAVAILABLE if the connection ends before.
        """
        sent = pb.Request(
            service=service, method=method, payload=request.SerializeToString(), timeout_nano=int(timeout * _NANO)
        )
        stream, future = self._send(method, sent.SerializeToString())
        try:
            answer = future.result(timeout)
        except TimeoutError:
            raise self._error(Code.DEADLINE_EXCEEDED, method, f"no answer within {timeout:g} s") from None
        finally:
            with self._lock:
                self._pending.pop(stream, None)
        if answer.status.code != Code.OK:
            raise self._error(answer.status.code, method, one_line(answer.status.message, _SHOWN))
        try:
            return response.FromString(answer.payload)
        except DecodeError as error:
            raise self._error(Code.INTERNAL, method, "the answer is not the expected message") from error

    def receive(self, data: bytes) -> None:
        """Take bytes of the peer; NriError if they break the protocol."""
        for frame in self._decoder.feed(data):
            if frame.kind != RESPONSE:
                raise NriError(f"received a frame of type {frame.kind} in place of a response")
            response = _response(frame)  # before the call is taken out: `close` ends a call that an error leaves
            with self._lock:
                future = self._pending.pop(frame.stream, None)
            if future is not None:  # else the call has ended without waiting for its answer
                future.set_result(response)

    def close(self, reason: NriError) -> None:
        """End all calls, and those to come, with a reason."""
        with self._lock:
            self._closed = reason
            pending = list(self._pending.values())
            self._pending.clear()
        for future in pending:
            future.set_result(pb.Response(status=pb.Status(code=Code.UNAVAILABLE, message=str(reason))))

    def _send(self, method: str, data: bytes) -> tuple[int, Future[pb.Response]]:
        future: Future[pb.Response] = Future()
        with self._order:
            with self._lock:
                if self._closed:
                    raise self._error(Code.UNAVAILABLE, method, str(self._closed))
                stream = self._stream + 2
                self._pending[stream] = future
            try:
                self._write(encode(TtrpcFrame(stream, REQUEST, data)))
            except NriError as error:
                with self._lock:
                    self._pending.pop(stream, None)
                code = error.code if isinstance(error, TtrpcError) else Code.UNAVAILABLE
                raise self._error(code, method, str(error)) from error
            self._stream = stream
        return stream, future

    def _error(self, code: int, method: str, message: str) -> TtrpcError:
        name = Code(code).name if code in {known.value for known in Code} else f"code {code}"
        where = "" if message.startswith(self.peer) else f"{self.peer}: "
        return TtrpcError(code, f"{where}{method} failed with {name}: {message}")


def _response(frame: TtrpcFrame) -> pb.Response:
    if frame.rejected:
        text = f"the answer has {frame.rejected} bytes; the limit is {MAX_DATA}"
        return pb.Response(status=pb.Status(code=Code.RESOURCE_EXHAUSTED, message=text))
    try:
        return pb.Response.FromString(frame.data)
    except DecodeError as error:
        raise NriError("received a response that cannot be decoded") from error


class TtrpcCall:
    """A call of the peer. It is answered once; what comes later is dropped.

    service: its full name.
    method: its name.
    payload: the encoded request.
    timeout: how long the peer waits, in seconds; None if it does not say.
    """

    def __init__(self, request: pb.Request, stream: int, write: Write) -> None:
        self.service, self.method, self.payload = request.service, request.method, request.payload
        self.timeout = request.timeout_nano / _NANO if request.timeout_nano > 0 else None
        self._stream, self._write = stream, write
        self._lock = Lock()
        self._answered = False

    def answer(self, message: Message) -> bool:
        """Answer with a message. False if the call was answered before; NriError if the connection is closed."""
        return self._respond(pb.Response(payload=message.SerializeToString()))

    def fail(self, code: Code, message: str) -> bool:
        """Answer with an error. False if the call was answered before; NriError if the connection is closed."""
        return self._respond(pb.Response(status=pb.Status(code=code, message=message)))

    def _respond(self, response: pb.Response) -> bool:
        with self._lock:
            if self._answered:
                return False
            self._answered = True
        try:
            data = encode(TtrpcFrame(self._stream, RESPONSE, response.SerializeToString()))
        except TtrpcError as error:
            status = pb.Status(code=error.code, message=f"the answer to {self.method}: {error}")
            data = encode(TtrpcFrame(self._stream, RESPONSE, pb.Response(status=status).SerializeToString()))
        self._write(data)
        return True


class TtrpcServer:
    """Takes the peer's calls.

    `handle` gets each valid call, on the thread that reads, and must not wait there. `refuse` gets a function that
    answers a call which breaks the protocol, and runs it on another thread, because writing may wait.
    """

    def __init__(
        self, write: Write, handle: Callable[[TtrpcCall], None], refuse: Callable[[Callable[[], object]], None]
    ) -> None:
        self._write, self._handle, self._refuse = write, handle, refuse
        self._decoder = FrameDecoder()
        self._last = -1

    def receive(self, data: bytes) -> None:
        """Take bytes of the peer; NriError if they break the protocol."""
        for frame in self._decoder.feed(data):
            if frame.kind == RESPONSE:
                raise NriError("received a response without a request")
            self._take(frame)

    def _take(self, frame: TtrpcFrame) -> None:
        try:
            request = pb.Request() if frame.kind == DATA else pb.Request.FromString(frame.data)
        except DecodeError as error:
            raise NriError("received a request that cannot be decoded") from error
        call = TtrpcCall(request, frame.stream, self._write)
        if frame.kind == DATA or frame.flags & _REMOTE_OPEN:
            refusal = Code.UNIMPLEMENTED, "streams of data are not supported"
        elif frame.stream % 2 == 0 or frame.stream <= self._last:
            text = f"stream id {frame.stream} must be odd and greater than {max(0, self._last)}"
            refusal = Code.INVALID_ARGUMENT, text
        else:
            self._last = frame.stream
            if not frame.rejected:
                self._handle(call)
                return
            refusal = Code.RESOURCE_EXHAUSTED, f"the request has {frame.rejected} bytes; the limit is {MAX_DATA}"
        self._refuse(partial(call.fail, *refusal))
