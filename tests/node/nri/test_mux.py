"""The multiplexer: frames however they are split, messages of many threads, peers that stall or send garbage."""

from __future__ import annotations

import socket
import struct
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dra_sdk.errors import NriError
from dra_sdk.node.nri.mux import MAX_FRAME, PLUGIN_FRAME, Mux, MuxDecoder, frames
from dra_sdk.testing.waiting import LONG

SPLITS = st.lists(st.integers(1, 9000), max_size=40)


def split(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    """`data` in pieces of these sizes, and the rest."""
    for size in sizes:
        yield data[:size]
        data = data[size:]
    yield data


def decode(pieces: Iterator[bytes]) -> dict[int, bytes]:
    decoder = MuxDecoder()
    streams: dict[int, bytes] = defaultdict(bytes)
    for piece in pieces:
        for connection, part in decoder.feed(piece):
            streams[connection] += part
    assert not decoder.inside
    return dict(streams)


def test_a_frame_is_connection_length_and_payload() -> None:
    assert frames(2, b"abc") == [bytes.fromhex("00000002 00000003") + b"abc"]


@given(st.lists(st.tuples(st.integers(1, 3), st.binary(min_size=1, max_size=10000)), max_size=5), SPLITS)
def test_each_connection_gets_its_bytes_however_the_frames_are_split(
    messages: list[tuple[int, bytes]], sizes: list[int]
) -> None:
    wanted: dict[int, bytes] = defaultdict(bytes)
    for connection, data in messages:
        wanted[connection] += data
    wire = b"".join(frame for connection, data in messages for frame in frames(connection, data))
    assert decode(split(wire, sizes)) == wanted


@given(st.binary(max_size=20000))
def test_no_frame_is_longer_than_the_buffer_of_the_peer(data: bytes) -> None:
    lengths = [struct.unpack(">II", frame[:8])[1] for frame in frames(1, data)]
    assert all(0 < length <= PLUGIN_FRAME for length in lengths)
    assert sum(lengths) == len(data)


def test_a_frame_beyond_the_limit_is_an_error() -> None:
    with pytest.raises(NriError, match=f"a frame of connection 1 has {MAX_FRAME + 1} bytes, more than {MAX_FRAME}"):
        list(MuxDecoder().feed(struct.pack(">II", 1, MAX_FRAME + 1)))


class Side:
    """One end of a connection, with all that it was told."""

    def __init__(self, sock: socket.socket, stall: float) -> None:
        self.mux = Mux(sock, "the peer", stall=stall)
        self.received: dict[int, bytes] = defaultdict(bytes)
        self.arrived, self.ended = Event(), Event()
        self.wanted = 0
        self.reason: NriError | None = None

    def start(self) -> None:
        def receive(connection: int, data: bytes) -> None:
            self.received[connection] += data
            if sum(map(len, self.received.values())) >= self.wanted:
                self.arrived.set()

        def end(reason: NriError | None) -> None:
            self.reason = reason
            self.ended.set()

        self.mux.start({1: lambda data: receive(1, data), 2: lambda data: receive(2, data)}, end)


@contextmanager
def connected(stall: float = LONG) -> Iterator[tuple[Side, socket.socket]]:
    """A multiplexer that reads, and the socket of its peer."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    theirs.settimeout(LONG)
    side = Side(ours, stall)
    side.start()
    try:
        yield side, theirs
    finally:
        side.mux.close()
        theirs.close()
        assert side.mux.join(LONG)


def test_messages_of_many_threads_are_never_mixed() -> None:
    messages = [bytes([number]) * 20000 for number in range(1, 9)]
    with connected() as (side, theirs):
        threads = [Thread(target=side.mux.write, args=(1, each)) for each in messages]
        for thread in threads:
            thread.start()
        wire = b""
        wanted = sum(len(frame) for each in messages for frame in frames(1, each))
        while len(wire) < wanted:
            wire += theirs.recv(65536)
        for thread in threads:
            thread.join(LONG)
        stream = decode(iter([wire]))[1]
    found = [stream[start : start + 20000] for start in range(0, len(stream), 20000)]
    assert sorted(found) == messages


def test_both_directions_flow_while_both_write_more_than_a_socket_holds() -> None:
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    size = 3_000_000
    sides = [Side(a, LONG), Side(b, LONG)]
    for side in sides:
        side.wanted = size
        side.start()
    threads = [Thread(target=side.mux.write, args=(1, b"x" * size)) for side in sides]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert all(side.arrived.wait(LONG) for side in sides)
    sides[0].mux.close()
    for side in sides:
        assert side.ended.wait(LONG)
        assert side.mux.join(LONG)
        assert side.reason is None


def test_a_peer_that_does_not_read_ends_the_connection_with_a_sentence() -> None:
    with connected(stall=0.2) as (side, _theirs):
        with pytest.raises(NriError, match=r"the peer: the peer has not read 9000000 bytes within 0\.2 s"):
            side.mux.write(1, b"x" * 9_000_000)
        assert side.ended.wait(LONG)
        assert "has not read" in str(side.reason)
        with pytest.raises(NriError, match="has not read"):
            side.mux.write(1, b"x")


def test_a_frame_that_does_not_end_ends_the_connection_with_a_sentence() -> None:
    with connected(stall=0.2) as (side, theirs):
        theirs.sendall(struct.pack(">II", 1, 10) + b"half")
        assert side.ended.wait(LONG)
        assert str(side.reason) == "the peer: the rest of a frame has not come within 0.2 s"


def test_a_peer_that_is_silent_between_frames_stays_connected() -> None:
    with connected(stall=0.05) as (side, theirs):
        assert not side.ended.wait(0.3)
        theirs.sendall(frames(1, b"later")[0])
        side.wanted = 5
        assert side.arrived.wait(LONG)


def test_an_end_inside_a_frame_is_told_with_its_reason() -> None:
    with connected() as (side, theirs):
        theirs.sendall(b"\0\0\0")
        theirs.shutdown(socket.SHUT_WR)
        assert side.ended.wait(LONG)
        assert str(side.reason) == "the peer: the connection ended inside a frame"


def test_an_end_between_frames_has_no_reason() -> None:
    with connected() as (side, theirs):
        theirs.shutdown(socket.SHUT_WR)
        assert side.ended.wait(LONG)
        assert side.reason is None
        with pytest.raises(NriError, match="the peer: the connection is closed"):
            side.mux.write(1, b"x")


def test_frames_of_unknown_connections_are_dropped() -> None:
    with connected() as (side, theirs):
        side.wanted = 4
        theirs.sendall(b"".join([*frames(7, b"x" * 5000), *frames(2, b"kept")]))
        assert side.arrived.wait(LONG)
        assert side.received == {2: b"kept"}


@settings(max_examples=25)
@given(st.binary(max_size=300))
def test_any_bytes_end_the_connection_at_last_and_are_never_written_back(garbage: bytes) -> None:
    with connected() as (side, theirs):
        theirs.sendall(garbage)
        theirs.shutdown(socket.SHUT_WR)
        assert side.ended.wait(LONG)
        assert theirs.recv(1) == b""
