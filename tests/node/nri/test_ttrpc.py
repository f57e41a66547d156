"""ttrpc: frames for any split of bytes, calls in both directions, deadlines, errors, garbage."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock, Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_sdk.errors import NriError
from dra_sdk.node.nri.ttrpc import (
    DATA,
    MAX_DATA,
    REQUEST,
    RESPONSE,
    Code,
    FrameDecoder,
    TtrpcCall,
    TtrpcClient,
    TtrpcError,
    TtrpcFrame,
    TtrpcServer,
    encode,
)
from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.wire.proto import nri_ttrpc_pb2 as wire
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb

FRAMES = st.builds(
    TtrpcFrame,
    stream=st.integers(0, 2**32 - 1),
    kind=st.sampled_from([REQUEST, RESPONSE, DATA]),
    data=st.binary(max_size=3000),
    flags=st.integers(0, 255),
    rejected=st.just(0),
)


def split(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    for size in sizes:
        yield data[:size]
        data = data[size:]
    yield data


def test_a_frame_is_length_stream_type_flags_and_data() -> None:
    assert encode(TtrpcFrame(3, REQUEST, b"abc")) == bytes.fromhex("00000003 00000003 01 00") + b"abc"


@given(st.lists(FRAMES, max_size=6), st.lists(st.integers(1, 2000), max_size=30))
def test_frames_come_out_as_they_went_in_however_they_are_split(sent: list[TtrpcFrame], sizes: list[int]) -> None:
    decoder = FrameDecoder()
    pieces = split(b"".join(map(encode, sent)), sizes)
    assert [frame for piece in pieces for frame in decoder.feed(piece)] == sent


@pytest.mark.parametrize("sizes", [[], [10], [3, 7, 1], [4_000_000, 300_000], [MAX_DATA + 10, 1], [MAX_DATA + 11]])
def test_a_frame_that_is_too_long_is_skipped_and_the_next_one_read(sizes: list[int]) -> None:
    long = struct.pack(">IIBB", MAX_DATA + 1, 5, REQUEST, 0) + bytes(MAX_DATA + 1)
    decoder = FrameDecoder()
    after = TtrpcFrame(7, RESPONSE, b"after")
    found = [frame for piece in split(long + encode(after), sizes) for frame in decoder.feed(piece)]
    assert found == [TtrpcFrame(5, REQUEST, b"", 0, MAX_DATA + 1), after]


def test_a_message_that_is_too_long_is_not_written() -> None:
    with pytest.raises(TtrpcError, match=f"a message has {MAX_DATA + 1} bytes; the limit is {MAX_DATA}") as raised:
        encode(TtrpcFrame(1, REQUEST, bytes(MAX_DATA + 1)))
    assert raised.value.code == Code.RESOURCE_EXHAUSTED


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused_with_a_sentence(garbage: bytes) -> None:
    server = TtrpcServer(lambda _data: None, lambda _call: None, lambda _refusal: None)
    client = TtrpcClient(lambda _data: None, "the peer")
    for receive in (server.receive, client.receive):
        problem = ""
        try:
            receive(garbage)
        except NriError as error:
            problem = str(error)
        assert not problem or problem.startswith("received")


def respond(response: wire.Response, stream: int = 1) -> bytes:
    return encode(TtrpcFrame(stream, RESPONSE, response.SerializeToString()))


class Wires:
    """A client and a server whose bytes go to each other; calls are handled on threads that `join` waits for."""

    def __init__(self, handle: Callable[[TtrpcCall], Any]) -> None:
        self.threads: list[Thread] = []
        self._handle = handle
        self._lock = Lock()
        self.client = TtrpcClient(self._to_server, "the peer")
        self.server = TtrpcServer(self._to_client, self._run, lambda refusal: refusal())

    def _to_server(self, data: bytes) -> None:
        self.server.receive(data)

    def _to_client(self, data: bytes) -> None:
        with self._lock:
            self.client.receive(data)

    def _run(self, call: TtrpcCall) -> None:
        thread = Thread(target=self._handle, args=(call,))
        self.threads.append(thread)
        thread.start()

    def call(self, text: str = "", timeout: float = LONG) -> str:
        request = pb.KeyValue(key=text)
        return self.client.call("a.Service", "Method", request, pb.KeyValue, timeout).value

    def join(self) -> None:
        for thread in self.threads:
            thread.join(LONG)


def test_a_call_has_service_method_payload_and_timeout() -> None:
    calls: list[TtrpcCall] = []

    def echo(call: TtrpcCall) -> None:
        calls.append(call)
        call.answer(pb.KeyValue(value=pb.KeyValue.FromString(call.payload).key.upper()))

    wires = Wires(echo)
    assert wires.call("hello", timeout=60.0) == "HELLO"
    wires.join()
    assert (calls[0].service, calls[0].method, calls[0].timeout) == ("a.Service", "Method", 60.0)


def test_the_bytes_of_a_call_are_those_of_the_specification() -> None:
    sent: list[bytes] = []
    client = TtrpcClient(sent.append, "the peer")
    with pytest.raises(TtrpcError, match=r"the peer: Get failed with DEADLINE_EXCEEDED: no answer within 0\.001 s"):
        client.call("s", "Get", pb.Empty(), pb.Empty, 0.001)
    # length, stream 1, request, no flags; fields 1 and 2 are strings, field 4 is a number: 1 000 000 ns
    assert sent == [bytes.fromhex("0000000c 00000001 01 00  0a01 73  1203 476574  20 c0843d")]


def test_calls_of_many_threads_get_their_own_answers_in_any_order() -> None:
    together = Barrier(8)

    def answer_when_all_are_there(call: TtrpcCall) -> None:
        together.wait(LONG)
        call.answer(pb.KeyValue(value=pb.KeyValue.FromString(call.payload).key))

    wires = Wires(answer_when_all_are_there)
    found: dict[str, str] = {}
    callers = [Thread(target=lambda text=str(n): found.update({text: wires.call(text)})) for n in range(8)]
    for each in callers:
        each.start()
    for each in callers:
        each.join(LONG)
    wires.join()
    assert found == {str(number): str(number) for number in range(8)}


def test_an_error_has_the_code_and_the_message_of_the_peer() -> None:
    wires = Wires(lambda call: call.fail(Code.RESOURCE_EXHAUSTED, "not yet"))
    with pytest.raises(TtrpcError, match=r"^the peer: Method failed with RESOURCE_EXHAUSTED: not yet$") as raised:
        wires.call()
    wires.join()
    assert raised.value.code == Code.RESOURCE_EXHAUSTED


def test_an_answer_that_cannot_be_decoded_leaves_its_call_to_the_end_of_the_connection() -> None:
    """The error ends the connection, which must end the call too: it waited for its whole timeout."""
    sent: list[bytes] = []
    client = TtrpcClient(sent.append, "the peer")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.call, "s", "Get", pb.Empty(), pb.Empty, LONG)
        wait(lambda: sent)
        with pytest.raises(NriError, match="received a response that cannot be decoded") as ended:
            client.receive(encode(TtrpcFrame(1, RESPONSE, b"\xff\xff")))
        client.close(ended.value)
        with pytest.raises(TtrpcError, match="UNAVAILABLE: received a response that cannot be decoded"):
            waiting.result(LONG / 2)


def test_an_answer_after_the_deadline_is_dropped() -> None:
    held: list[TtrpcCall] = []
    wires = Wires(held.append)
    with pytest.raises(TtrpcError) as raised:
        wires.call(timeout=0.05)
    assert raised.value.code == Code.DEADLINE_EXCEEDED
    wires.join()
    assert held[0].answer(pb.KeyValue(value="late"))


def test_a_call_is_answered_once() -> None:
    results: list[bool] = []

    def twice(call: TtrpcCall) -> None:
        results.extend([call.answer(pb.KeyValue(value="first")), call.fail(Code.UNKNOWN, "second")])

    wires = Wires(twice)
    assert wires.call() == "first"
    wires.join()
    assert results == [True, False]


def test_an_answer_that_is_too_long_is_an_error_that_names_the_call() -> None:
    wires = Wires(lambda call: call.answer(pb.KeyValue(value="x" * (MAX_DATA + 1))))
    with pytest.raises(TtrpcError, match="RESOURCE_EXHAUSTED: the answer to Method: a message has") as raised:
        wires.call()
    wires.join()
    assert raised.value.code == Code.RESOURCE_EXHAUSTED


def test_a_request_that_is_too_long_is_not_sent_and_the_next_works() -> None:
    wires = Wires(lambda call: call.answer(pb.KeyValue(value="ok")))
    with pytest.raises(TtrpcError, match=r"Method failed with RESOURCE_EXHAUSTED: a message has \d+ bytes"):
        wires.call("x" * MAX_DATA)
    assert wires.call() == "ok"
    wires.join()


def test_a_closed_connection_ends_calls_that_wait_and_those_to_come() -> None:
    problems: list[TtrpcError] = []
    sent: list[bytes] = []
    client = TtrpcClient(lambda data: (sent.append(data), client.close(NriError("the peer: gone")))[0], "the peer")
    for _ in range(2):
        with pytest.raises(TtrpcError) as raised:
            client.call("s", "Get", pb.Empty(), pb.Empty, LONG)
        problems.append(raised.value)
    assert [each.code for each in problems] == [Code.UNAVAILABLE] * 2
    assert str(problems[0]) == "Get failed with UNAVAILABLE: the peer: gone"
    assert len(sent) == 1


def server() -> tuple[TtrpcServer, list[TtrpcCall], list[wire.Response]]:
    """A server with the calls that it hands on, and the responses that it writes by itself."""
    calls: list[TtrpcCall] = []
    responses: list[wire.Response] = []

    def write(data: bytes) -> None:
        responses.extend(wire.Response.FromString(frame.data) for frame in FrameDecoder().feed(data))

    return TtrpcServer(write, calls.append, lambda refusal: refusal()), calls, responses


@pytest.mark.parametrize(("streams", "wrong"), [([2], 2), ([1, 1], 1), ([5, 3], 3)])
def test_stream_ids_are_odd_and_grow(streams: list[int], wrong: int) -> None:
    receiver, calls, responses = server()
    for stream in streams:
        receiver.receive(encode(TtrpcFrame(stream, REQUEST, b"")))
    assert len(calls) == len(streams) - 1
    assert responses[0].status.code == Code.INVALID_ARGUMENT
    assert f"stream id {wrong} must be odd" in responses[0].status.message


def test_a_request_that_is_too_long_is_answered_with_the_limit() -> None:
    receiver, calls, responses = server()
    receiver.receive(struct.pack(">IIBB", MAX_DATA + 9, 1, REQUEST, 0) + bytes(MAX_DATA + 9))
    receiver.receive(encode(TtrpcFrame(3, REQUEST, b"")))
    assert len(calls) == 1
    assert responses[0].status.code == Code.RESOURCE_EXHAUSTED
    assert f"has {MAX_DATA + 9} bytes; the limit is {MAX_DATA}" in responses[0].status.message


@pytest.mark.parametrize("frame", [TtrpcFrame(1, REQUEST, b"", 2), TtrpcFrame(1, DATA, b"\xff\xff")])
def test_streams_of_data_are_refused(frame: TtrpcFrame) -> None:
    receiver, calls, responses = server()
    receiver.receive(encode(frame))
    assert calls == []
    assert responses[0].status.code == Code.UNIMPLEMENTED


def test_what_cannot_be_decoded_or_comes_in_the_wrong_direction_is_refused() -> None:
    receiver, _calls, _responses = server()
    with pytest.raises(NriError, match="received a request that cannot be decoded"):
        receiver.receive(encode(TtrpcFrame(1, REQUEST, b"\xff\xff")))
    with pytest.raises(NriError, match="received a response without a request"):
        receiver.receive(encode(TtrpcFrame(1, RESPONSE, b"")))
    client = TtrpcClient(lambda _data: None, "the peer")
    with pytest.raises(NriError, match="received a frame of type 1 in place of a response"):
        client.receive(encode(TtrpcFrame(1, REQUEST, b"")))
    client.receive(respond(wire.Response(), stream=9))  # of no call: dropped
