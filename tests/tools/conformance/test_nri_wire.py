"""What is between a plugin and the kit's runtime: frames and records."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_sdk.errors import NriError
from dra_sdk.node.nri.events import Event
from dra_sdk.node.nri.session import Subscription
from dra_sdk.node.nri.ttrpc import REQUEST, RESPONSE, Code, FrameDecoder, TtrpcFrame, encode
from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.tools.conformance.nri_wire import NriWire, listen
from dra_sdk.tools.conformance.outcomes import Recorder
from dra_sdk.tools.conformance.run import UNKNOWN_FIELD
from dra_sdk.tools.simulator.nri import NriRuntime
from dra_sdk.wire.proto import nri_ttrpc_pb2 as ttrpc
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb
from tests.node.nri.nri_objects import container, pinned, plugin, pod


class Node:
    """A runtime with a wire in front of it."""

    def __init__(self, root: Path, *, small_frames: bool = False) -> None:
        self.path = root / "nri.sock"
        self.recorder = Recorder()
        self.runtime = NriRuntime(root / "runtime.sock", request_timeout=LONG, registration_timeout=LONG)
        self.wire = NriWire(self.path, self.runtime.path, self.recorder, small_frames=small_frames)

    def __enter__(self) -> Node:
        self.runtime.start()
        self.wire.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.wire.stop()
        self.runtime.stop()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path) as node:
        yield node


@pytest.mark.parametrize("small_frames", [False, True])
def test_a_plugin_works_through_the_wire(tmp_path: Path, small_frames: bool) -> None:
    with Node(tmp_path, small_frames=small_frames) as node:
        node.runtime.run_pod(pod())
        for number in range(150):
            node.runtime.create_container(container(number))
        subscriptions = {Event.CREATE_CONTAINER: Subscription(lambda _request: pinned(cpus="3"))}
        with plugin(node.path, subscriptions):
            assert node.runtime.wait_plugins(1, LONG)
            assert node.runtime.create_container(container(200)).linux.resources.cpu.cpus == "3"
        methods = [call.method for call in node.wire.calls]
        assert sorted(methods[:2]) == ["Configure", "RegisterPlugin"]
        assert methods[2:] == ["Synchronize", "CreateContainer"]
        assert node.wire.calls[-1].answer.adjust.linux.resources.cpu.cpus == "3"
        assert len(node.wire.connected) == 1
        assert node.wire.problems == []


def test_calls_are_recorded_as_evidence(node: Node) -> None:
    with plugin(node.path):
        assert node.runtime.wait_plugins(1, LONG)
    recorded = {exchange.method: exchange for exchange in node.recorder.take()}
    assert recorded["RegisterPlugin"].request == {"plugin_name": "test", "plugin_idx": "10", "NRI_version": "0.12.0"}
    assert recorded["Synchronize"].answer == {}


def test_the_kit_calls_the_plugin_between_the_calls_of_the_runtime(node: Node) -> None:
    node.runtime.run_pod(pod())
    with plugin(node.path, {Event.CREATE_CONTAINER: Subscription(lambda _request: pinned(cpus="3"))}):
        assert node.runtime.wait_plugins(1, LONG)
        for number in range(3):
            with pytest.raises(NriError, match="Future"):
                node.runtime.call("Future", b"")
            answer = node.wire.calls[-1]
            assert (answer.code, answer.status) == (Code.UNIMPLEMENTED, f"UNIMPLEMENTED: {answer.message}")
            assert node.runtime.create_container(container(number)).linux.resources.cpu.cpus == "3"


def test_a_call_needs_a_plugin(node: Node) -> None:
    with pytest.raises(NriError, match="no plugin is connected"):
        node.runtime.call("Future", b"")


def test_a_request_keeps_what_its_message_does_not_know(node: Node) -> None:
    with plugin(node.path):
        assert node.runtime.wait_plugins(1, LONG)
        request = pb.StopContainerRequest(container=container(1)).SerializeToString() + UNKNOWN_FIELD
        node.runtime.call("StopContainer", request)
    assert node.wire.calls[-1].request == request


def test_a_stopped_wire_is_gone_and_can_start_again(node: Node) -> None:
    with plugin(node.path) as connected:
        assert node.runtime.wait_plugins(1, LONG)
        node.wire.stop()
        assert not node.path.exists()
        wait(lambda: not node.runtime.plugins)
        node.wire.start()
        assert connected.wait_synchronized(LONG, 2)


def test_a_socket_that_has_replaced_it_stays(node: Node) -> None:
    other = listen(node.path)
    node.wire.stop(replaced=True)
    assert node.path.is_socket()
    other.close()


class RawPlugin:
    """A socket that registers with frames of given sizes."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(LONG)
        self._socket.connect(str(path))

    def __enter__(self) -> RawPlugin:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._socket.close()

    def write(self, message: bytes, *sizes: int) -> None:
        for size in sizes:
            piece, message = message[:size], message[size:]
            self._socket.sendall(struct.pack(">II", 2, len(piece)) + piece)

    def frames_until(self, method: str) -> list[int]:
        """The sizes of the frames of a call of the plugin; Configure is answered before."""
        decoder = FrameDecoder()
        sizes = []
        while True:
            connection, size = struct.unpack(">II", _exactly(self._socket, 8))
            data = _exactly(self._socket, size)
            if connection != 1:
                continue
            sizes.append(size)
            for frame in decoder.feed(data):
                if ttrpc.Request.FromString(frame.data).method == method:
                    return sizes
                answer = encode(TtrpcFrame(frame.stream, RESPONSE, ttrpc.Response().SerializeToString()))
                self._socket.sendall(struct.pack(">II", 1, len(answer)) + answer)
                sizes.clear()

    def answered(self) -> bool:
        """Whether something comes back before the connection ends."""
        try:
            return bool(self._socket.recv(1))
        except ConnectionError:
            return False


def request_of(size: int) -> bytes:
    """A request of so many bytes with its header."""
    empty = len(encode(TtrpcFrame(1, REQUEST, _request(size).SerializeToString()))) - size
    return encode(TtrpcFrame(1, REQUEST, _request(size - empty).SerializeToString()))


def _request(size: int) -> ttrpc.Request:
    return ttrpc.Request(service="nri.pkg.api.v1alpha1.Runtime", method="Any", payload=b"x" * size)


def test_the_rest_of_a_message_may_come_in_one_frame_as_go_plugins_write_it(node: Node) -> None:
    with RawPlugin(node.path) as raw:
        raw.write(request_of(20000), 4096, 20000 - 4096)
        assert raw.answered()
        assert node.wire.problems == []
        assert node.wire.longest == 20000


@pytest.mark.parametrize("sizes", [(4097,), (3000, 1000, 4097)])
def test_a_frame_that_a_go_runtime_has_no_room_for_ends_the_connection(node: Node, sizes: tuple[int, ...]) -> None:
    """The first frame of a message, and one that begins in a message of 5000 bytes and goes on with the next."""
    with RawPlugin(node.path) as raw:
        raw.write(request_of(5000) + request_of(20000), *sizes)
        wait(lambda: node.wire.problems)
        assert not raw.answered()
    (problem,) = node.wire.problems
    assert problem == "the plugin broke the protocol: a frame of connection 2 has 4097 bytes, more than 4096"


def test_bytes_that_are_not_ttrpc_are_a_problem(node: Node) -> None:
    with RawPlugin(node.path) as raw:
        raw.write(b"\xff" * 32, 32)
        wait(lambda: node.wire.problems)
    assert "received bytes that are not ttrpc" in node.wire.problems[0]


def test_a_message_that_ttrpc_does_not_allow_is_a_problem(node: Node) -> None:
    with RawPlugin(node.path) as raw:
        raw.write(struct.pack(">IIBB", 5 << 20, 1, REQUEST, 0), 10)
        wait(lambda: node.wire.problems)
    assert node.wire.problems == ["the plugin broke the protocol: a message has 5242880 bytes, more than 4194304"]


def test_messages_are_cut_as_a_go_runtime_cuts_them(tmp_path: Path) -> None:
    """4096 bytes, which fill its buffer, and the rest."""
    with Node(tmp_path) as node:
        node.runtime.run_pod(pod())
        for number in range(300):
            node.runtime.create_container(container(number, env=["X=" + "y" * 100]))
        with RawPlugin(node.path) as raw:
            payload = pb.RegisterPluginRequest(plugin_name="raw", plugin_idx="07").SerializeToString()
            request = ttrpc.Request(service="nri.pkg.api.v1alpha1.Runtime", method="RegisterPlugin", payload=payload)
            message = encode(TtrpcFrame(1, REQUEST, request.SerializeToString()))
            raw.write(message, len(message))
            sizes = raw.frames_until("Synchronize")
    assert sizes[0] == 4096
    assert len(sizes) == 2
    assert sizes[1] > 30000


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise NriError("the connection has ended")
        data += piece
    return data
