"""NRI's multiplexer: several connections on one unix socket.

A frame is a header of 8 bytes (connection id and length of the payload, big-endian uint32) and the payload. Where a
frame ends means nothing to a connection, which is a stream of bytes. Frames of unknown connections are dropped.

The multiplexer of containerd and CRI-O fails with ENOMEM for a frame that is longer than its reader's buffer of
4096 bytes, and closes the socket when 256 frames of a connection wait to be read. So frames that are written here have
at most 4096 bytes, and a long message is written in bursts with pauses.

Source: containerd/nri pkg/net/multiplex.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from threading import Lock, Thread
from time import sleep
from typing import Final

from dra_sdk.errors import NriError

PLUGIN_SERVICE: Final = 1
"""The connection on which the runtime calls the plugin."""
RUNTIME_SERVICE: Final = 2
"""The connection on which the plugin calls the runtime."""
PLUGIN_FRAME: Final = 4096
"""Bytes of payload in a frame that a plugin may write."""
MAX_FRAME: Final = 10 + 4 * 1024 * 1024
"""Bytes of payload in a frame that a runtime may write: the longest message of ttrpc, with its header."""
STALL_SECONDS: Final = 10.0
"""How long a peer may read nothing while we write, or leave a frame unfinished, until the socket is closed."""

_HEADER: Final = struct.Struct(">II")
_BURST: Final = 64  # frames in a row; a fourth of what the peer's queue holds
_PAUSE: Final = 0.001  # seconds between two bursts
_READ: Final = 65536  # bytes

Receiver = Callable[[bytes], None]
"""Takes the next bytes of a connection, on the thread that reads. It must not wait; an NriError closes the socket."""


class MuxDecoder:
    """Takes bytes as they arrive, however they are split, and gives the payload of each connection, also in pieces.

    limit: bytes of payload in a frame.
    """

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self.limit = limit
        self._header = b""
        self._connection = 0
        self._missing = 0

    @property
    def inside(self) -> bool:
        """Whether a frame has begun and not ended."""
        return bool(self._header or self._missing)

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Return connection ids with bytes of their payload; NriError for a frame that is longer than the limit."""
        position = 0
        while position < len(data):
            if self._missing:
                piece = data[position : position + self._missing]
                position += len(piece)
                self._missing -= len(piece)
                yield self._connection, piece
                continue
            wanted = _HEADER.size - len(self._header)
            self._header += data[position : position + wanted]
            position += wanted
            if len(self._header) == _HEADER.size:
                self._connection, self._missing = _HEADER.unpack(self._header)
                self._header = b""
                if self._missing > self.limit:
                    raise NriError(
                        f"a frame of connection {self._connection} has {self._missing} bytes, more than {self.limit}"
                    )


def frames(connection: int, data: bytes, size: int = PLUGIN_FRAME) -> list[bytes]:
    """Return `data` as frames of at most `size` bytes of payload."""
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    return [_HEADER.pack(connection, len(piece)) + piece for piece in pieces]


class Mux:
    """A connected unix socket with several connections. One thread reads it; any thread writes.

    peer: how messages name the other side, such as `/var/run/nri/nri.sock`.
    stall: see STALL_SECONDS.
    written: bytes of payload in a frame that is written.
    read: bytes of payload in a frame that is accepted.
    """

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        *,
        stall: float = STALL_SECONDS,
        written: int = PLUGIN_FRAME,
        read: int = MAX_FRAME,
    ) -> None:
        self.peer = peer
        self._socket = sock
        self._socket.settimeout(stall)
        self._stall, self._size = stall, written
        self._decoder = MuxDecoder(read)
        self._receivers: Mapping[int, Receiver] = {}
        self._ended: Callable[[NriError | None], None] = lambda _reason: None
        self._writing = Lock()
        self._closing = Lock()
        self._closed = False
        self._reason: NriError | None = None
        self._thread = Thread(target=self._run, name="nri-reader", daemon=True)

    def start(self, receivers: Mapping[int, Receiver], ended: Callable[[NriError | None], None]) -> None:
        """Read, and hand the bytes of each connection to its receiver.

        `ended` is called once, on the reader's thread, with the reason; None if the peer or `close` ended it in order.
        """
        self._receivers, self._ended = receivers, ended
        self._thread.start()

    def write(self, connection: int, data: bytes) -> None:
        """Write a whole message; messages of other threads come before or after it.

        NriError if the socket is closed, or if the peer has not read for the stall time, which closes the socket.
        """
        with self._writing:
            if self._closed:
                raise self._reason or NriError(f"{self.peer}: the connection is closed")
            pending = frames(connection, data, self._size)
            try:
                while pending:
                    self._socket.sendall(b"".join(pending[:_BURST]))
                    pending = pending[_BURST:]
                    if pending:
                        sleep(_PAUSE)
            except TimeoutError:
                reason = NriError(f"{self.peer}: the peer has not read {len(data)} bytes within {self._stall:g} s")
            except OSError as error:
                reason = NriError(f"{self.peer}: cannot write {len(data)} bytes: {error.strerror or error}")
            else:
                return
        self.close(reason)
        raise self._reason or reason

    def close(self, reason: NriError | None = None) -> None:
        """Close the socket; the first reason counts. Returns at once."""
        with self._closing:
            if self._closed:
                return
            self._closed, self._reason = True, reason
            if self._thread.ident is None:
                self._socket.close()
                return
            try:
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the reader, which closes the socket
            except OSError:
                return  # the peer was faster

    def join(self, timeout: float) -> bool:
        """Wait until the reader's thread has ended; False if it has not within `timeout` seconds."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._read()
        except NriError as error:
            self.close(NriError(f"{self.peer}: {error}"))
        finally:
            self.close()
            with self._writing:
                self._socket.close()
            self._ended(self._reason)

    def _read(self) -> None:
        """Read until the peer or `close` ends the connection; NriError if it breaks the protocol."""
        while data := self._received():
            for connection, piece in self._decoder.feed(data):
                if receiver := self._receivers.get(connection):
                    receiver(piece)
        if self._decoder.inside and not self._closed:
            raise NriError("the connection ended inside a frame")

    def _received(self) -> bytes:
        """Return the next bytes; empty at the end."""
        while True:
            try:
                return self._socket.recv(_READ)
            except TimeoutError:
                if self._decoder.inside:
                    raise NriError(f"the rest of a frame has not come within {self._stall:g} s") from None
            except OSError as error:
                if self._closed:
                    return b""
                raise NriError(f"cannot read: {error.strerror or error}") from error
