"""The simulator's side of NRI: order, conflicts, plugins that are late or break the protocol."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from dra_sdk.node.nri.events import Event
from dra_sdk.node.nri.session import FailurePolicy, Subscription
from dra_sdk.node.nri.ttrpc import Code, TtrpcFrame, encode
from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.tools.simulator.nri import NriRuntime, RefusedError
from dra_sdk.wire.proto import nri_ttrpc_pb2 as wire
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb
from tests.node.nri.nri_objects import container, pinned, plugin, pod, repinned


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "nri.sock"


@pytest.fixture
def runtime(path: Path) -> Iterator[NriRuntime]:
    with NriRuntime(path, request_timeout=LONG) as runtime:
        runtime.run_pod(pod())
        yield runtime


def test_plugins_are_called_by_index_and_see_what_was_adjusted_before(runtime: NriRuntime, path: Path) -> None:
    seen: list[tuple[str, str, str]] = []

    def pinning(name: str, answer: pb.CreateContainerResponse) -> dict[Event, Subscription]:
        def create(request: pb.CreateContainerRequest) -> pb.CreateContainerResponse:
            cpu = request.container.linux.resources.cpu
            seen.append((name, cpu.cpus, cpu.mems))
            return answer

        return {Event.CREATE_CONTAINER: Subscription(create)}

    with ExitStack() as stack:
        stack.enter_context(plugin(path, pinning("late", pinned(mems="1")), name="late", index=90))
        stack.enter_context(plugin(path, pinning("early", pinned(cpus="2")), name="early", index=5))
        assert runtime.wait_plugins(2, LONG)
        assert runtime.plugins == ["05-early", "90-late"]
        runtime.create_container(container())
        assert seen == [("early", "", ""), ("late", "2", "")]


def test_two_plugins_that_pin_one_container_fail_it_and_it_is_undone(runtime: NriRuntime, path: Path) -> None:
    undone: list[str] = []
    subscriptions = {
        Event.CREATE_CONTAINER: Subscription(lambda _request: pinned(cpus="1")),
        Event.STOP_CONTAINER: Subscription(lambda _request: undone.append("stop")),
        Event.REMOVE_CONTAINER: Subscription(lambda request: undone.append(request.container.id)),
    }
    with plugin(path, subscriptions, index=1), plugin(path, subscriptions, index=2):
        assert runtime.wait_plugins(2, LONG)
        with pytest.raises(
            RefusedError,
            match=r"^container app-0 of pod web-0: plugins 01-test and 02-test both set cpu cpus of container c0$",
        ):
            runtime.create_container(container())
        assert undone == ["stop", "stop", "c0", "c0"]
        assert runtime.containers == {}


def test_a_late_plugin_is_closed_and_the_container_created_without_it(path: Path) -> None:
    with NriRuntime(path, request_timeout=2.0) as runtime:
        runtime.run_pod(pod())
        with RawPlugin(path, answers={"Configure", "Synchronize"}):
            assert runtime.wait_plugins(1, LONG)
            runtime.create_container(container())
            assert runtime.plugins == []
            assert "CreateContainer failed with DEADLINE_EXCEEDED: no answer within 2 s" in str(runtime.problems[0])
        last = runtime.calls[-1]
        assert (last.plugin, last.method, last.code) == ("07-raw", "CreateContainer", Code.DEADLINE_EXCEEDED)
        assert last.seconds >= 2.0


def test_a_plugin_that_disconnects_is_left_out(runtime: NriRuntime, path: Path) -> None:
    with plugin(path, {Event.CREATE_CONTAINER: Subscription(lambda _request: None)}):
        assert runtime.wait_plugins(1, LONG)
    wait(lambda: not runtime.plugins)
    runtime.create_container(container())


def test_an_error_of_a_plugin_fails_a_pod(runtime: NriRuntime, path: Path) -> None:
    def refuse(_request: Any) -> None:
        raise ValueError("no room")

    with plugin(path, {Event.RUN_POD_SANDBOX: Subscription(refuse)}):
        assert runtime.wait_plugins(1, LONG)
        with pytest.raises(RefusedError, match=r"plugin 10-test: .* failed with UNKNOWN: RunPodSandbox for pod shop"):
            runtime.run_pod(pod(1))
        assert set(runtime.pods) == {"pod0"}


def test_a_validator_rejects_what_others_adjusted(runtime: NriRuntime, path: Path) -> None:
    def validate(request: pb.ValidateContainerAdjustmentRequest) -> pb.ValidateContainerAdjustmentResponse:
        cpus = request.adjust.linux.resources.cpu.cpus
        return pb.ValidateContainerAdjustmentResponse(reject=cpus == "7", reason=f"CPUs {cpus} are not ours")

    subscriptions = {
        Event.CREATE_CONTAINER: Subscription(lambda request: pinned(cpus=request.container.id[1:])),
        Event.VALIDATE_CONTAINER_ADJUSTMENT: Subscription(validate, FailurePolicy.FAIL),
    }
    with plugin(path, subscriptions):
        assert runtime.wait_plugins(1, LONG)
        runtime.create_container(container(1))
        with pytest.raises(RefusedError, match="plugin 10-test rejects the adjustments: CPUs 7 are not ours"):
            runtime.create_container(container(7))


def test_stopping_and_updating_a_container_may_change_others(runtime: NriRuntime, path: Path) -> None:
    subscriptions = {
        Event.STOP_CONTAINER: Subscription(
            lambda _request: pb.StopContainerResponse(update=[repinned("c0", "0-3"), repinned("unknown", "1")])
        ),
        Event.UPDATE_CONTAINER: Subscription(lambda _request: pb.UpdateContainerResponse(update=[repinned("c0", "2")])),
    }
    with plugin(path, subscriptions):
        assert runtime.wait_plugins(1, LONG)
        for number in range(2):
            runtime.create_container(container(number))
            runtime.start_container(f"c{number}")
        resources = pb.LinuxResources(memory=pb.LinuxMemory(limit=pb.OptionalInt64(value=5)))
        updated = runtime.update_container("c0", resources)
        assert (updated.linux.resources.cpu.cpus, updated.linux.resources.memory.limit.value) == ("2", 5)
        runtime.stop_container("c1")
        assert runtime.containers["c0"].linux.resources.cpu.cpus == "0-3"


def test_pods_of_before_a_restart_end_without_events_as_with_containerd(runtime: NriRuntime, path: Path) -> None:
    events: list[str] = []
    subscriptions = {
        event: Subscription(lambda request: events.append(request.pod.id))
        for event in (Event.STOP_POD_SANDBOX, Event.REMOVE_POD_SANDBOX)
    }
    with plugin(path, subscriptions) as connected:
        runtime.stop()
        runtime.start()
        assert connected.wait_synchronized(LONG, 2)
        assert runtime.wait_plugins(1, LONG)
        runtime.run_pod(pod(1))
        for pod_id in ("pod0", "pod1"):
            runtime.stop_pod(pod_id)
            runtime.remove_pod(pod_id)
        assert events == ["pod1", "pod1"]
        assert runtime.pods == {}


def test_only_containers_that_have_not_ended_are_synchronized(runtime: NriRuntime, path: Path) -> None:
    seen: list[str] = []
    for number in range(3):
        runtime.create_container(container(number))
    runtime.start_container("c1")
    runtime.stop_container("c2")
    with plugin(path, synchronize=lambda _pods, containers: seen.extend(running.id for running in containers) or []):
        assert seen == ["c0", "c1"]


class RawPlugin:
    """A plugin of bare bytes, which answers only some methods, or registers wrongly.

    refuses: methods that it answers with UNIMPLEMENTED.
    """

    def __init__(self, path: Path, name: str = "raw", index: str = "07", answers: set[str] | None = None) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.connect(str(path))
        self._answers = answers or set()
        self.refuses: set[str] = set()
        self._thread = Thread(target=self._serve, daemon=True)
        payload = pb.RegisterPluginRequest(plugin_name=name, plugin_idx=index).SerializeToString()
        request = wire.Request(service="nri.pkg.api.v1alpha1.Runtime", method="RegisterPlugin", payload=payload)
        self._send(2, TtrpcFrame(1, 1, request.SerializeToString()))

    def __enter__(self) -> RawPlugin:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(LONG)
        self._sock.close()

    def _send(self, connection: int, frame: TtrpcFrame) -> None:
        data = encode(frame)
        self._sock.sendall(struct.pack(">II", connection, len(data)) + data)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._sock.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def _serve(self) -> None:
        stream = b""
        try:
            while True:
                connection, length = struct.unpack(">II", self._exactly(8))
                data = self._exactly(length)
                if connection == 1:
                    stream = self._answer(stream + data)
        except (EOFError, OSError):
            return

    def _answer(self, stream: bytes) -> bytes:
        while len(stream) >= 10 and len(stream) >= 10 + int.from_bytes(stream[:4]):
            end = 10 + int.from_bytes(stream[:4])
            request = wire.Request.FromString(stream[10:end])
            response = wire.Response()
            if request.method in self.refuses:
                response.status.code = Code.UNIMPLEMENTED
            if request.method in self._answers | self.refuses:
                self._send(1, TtrpcFrame(int.from_bytes(stream[4:8]), 2, response.SerializeToString()))
            stream = stream[end:]
        return stream


def test_a_plugin_that_writes_a_frame_longer_than_4096_bytes_is_closed(runtime: NriRuntime, path: Path) -> None:
    with RawPlugin(path, name="x" * 5000):
        wait(lambda: runtime.problems)
    assert str(runtime.problems[0]) == f"a plugin at {path}: a frame of connection 2 has 5066 bytes, more than 4096"


@pytest.mark.parametrize(
    ("name", "index", "problem"),
    [
        ("no spaces", "07", "plugin name 'no spaces' has other characters than letters, digits and _.+-"),
        ("fine", "7", "plugin index '7' is not of two digits"),
    ],
)
def test_a_plugin_with_a_wrong_name_or_index_is_refused(
    runtime: NriRuntime, path: Path, name: str, index: str, problem: str
) -> None:
    with RawPlugin(path, name, index):
        wait(lambda: runtime.problems)
    assert str(runtime.problems[0]) == f"a plugin at {path}: {problem}"


def test_a_plugin_that_does_not_register_is_closed(path: Path) -> None:
    with NriRuntime(path, registration_timeout=0.2) as runtime:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.connect(str(path))
            sock.settimeout(LONG)
            assert sock.recv(1) == b""
        assert str(runtime.problems[0]) == f"a plugin at {path} has not registered within 0.2 s"


def test_a_plugin_that_does_not_know_parts_is_refused(path: Path) -> None:
    with NriRuntime(path, request_timeout=LONG, part=1) as runtime:
        runtime.run_pod(pod(0))
        runtime.run_pod(pod(1))
        with RawPlugin(path, answers={"Configure", "Synchronize"}):
            wait(lambda: runtime.problems)
        assert str(runtime.problems[0]) == "plugin 07-raw does not handle Synchronize in parts"


def test_a_runtime_before_0_8_has_no_parts(path: Path) -> None:
    with NriRuntime(path, request_timeout=LONG, nri_version="0.6.1", part=1) as runtime:
        runtime.run_pod(pod(0))
        runtime.run_pod(pod(1))
        with RawPlugin(path, answers={"Configure", "Synchronize"}):
            wait(lambda: runtime.problems)
        assert "(NRI 0.6.1) cannot synchronize" in str(runtime.problems[0])


def test_a_plugin_without_dedicated_calls_gets_state_changes(path: Path) -> None:
    """The plugin answers UNIMPLEMENTED to RunPodSandbox, as one that was made before NRI 0.12."""
    with NriRuntime(path, request_timeout=LONG) as runtime:
        with RawPlugin(path, answers={"Configure", "Synchronize", "StateChange"}) as old:
            old.refuses = {"RunPodSandbox"}
            assert runtime.wait_plugins(1, LONG)
            runtime.run_pod(pod())
        assert [call.method for call in runtime.calls][-2:] == ["RunPodSandbox", "StateChange"]
        assert runtime.calls[-1].code == Code.OK
