"""A plugin with the simulator's container runtime: it connects, answers in time, and connects again."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event as ThreadEvent
from threading import Thread
from time import monotonic
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dra_sdk.errors import NriError, SettingsError
from dra_sdk.node.nri.events import Event
from dra_sdk.node.nri.plugin import ConnectOptions, Launch, NriPlugin
from dra_sdk.node.nri.session import EventResponse, FailurePolicy, SessionLimits, Subscription
from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.tools.simulator.nri import NriRuntime, RefusedError
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb
from tests.node.nri.nri_objects import LIMITS, container, nothing, pinned, plugin, pod, repinned


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "nri.sock"


@pytest.fixture
def runtime(path: Path) -> Iterator[NriRuntime]:
    with NriRuntime(path, request_timeout=LONG) as runtime:
        yield runtime


def recorder(events: list[tuple[Event, Any]], event: Event) -> Subscription:
    def handle(request: Any) -> None:
        events.append((event, request))

    return Subscription(handle)


# Registration


def test_a_plugin_registers_and_learns_what_the_runtime_is(runtime: NriRuntime, path: Path) -> None:
    with plugin(path) as connected:
        assert runtime.wait_plugins(1, LONG)
        assert runtime.plugins == ["10-test"]
        assert connected.runtime == runtime.info
        assert connected.connections == 1


def test_configure_may_come_before_the_answer_to_the_registration(path: Path) -> None:
    with NriRuntime(path, configure_first=True, request_timeout=LONG) as runtime, plugin(path):
        assert runtime.wait_plugins(1, LONG)


@pytest.mark.parametrize("name", ["", "no spaces", "é", "a/b"])
def test_a_name_that_nri_forbids_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=r"only letters, digits and _\.\+- are allowed"):
        NriPlugin(name, nothing, {}, ConnectOptions(0))


@pytest.mark.parametrize("index", [-1, 100])
def test_an_index_has_two_digits(index: int) -> None:
    with pytest.raises(SettingsError, match=f"NRI plugin x: index {index} is not between 0 and 99"):
        NriPlugin("x", nothing, {}, ConnectOptions(index))


# Started by the runtime


@contextmanager
def launched(environment: dict[str, str], ended: Callable[[], None] = lambda: None) -> Iterator[NriPlugin]:
    """A plugin in a process that a runtime has started with this environment."""
    options = ConnectOptions(10, limits=LIMITS, launch=Launch.take(environment), ended=ended)
    started = NriPlugin("own", nothing, {}, options)
    started.start()
    try:
        yield started
    finally:
        assert started.stop(LONG)


def test_a_plugin_that_the_runtime_starts_uses_its_connection_name_and_index(runtime: NriRuntime) -> None:
    environment = {"NRI_PLUGIN_SOCKET": str(runtime.launch().detach())}
    environment |= {"NRI_PLUGIN_NAME": "given", "NRI_PLUGIN_IDX": "07"}
    ends = ThreadEvent()
    with launched(environment, ends.set) as plugin:
        assert "NRI_PLUGIN_SOCKET" not in environment
        assert plugin.wait_synchronized(LONG)
        assert runtime.plugins == ["07-given"]
    assert not ends.is_set(), "it was stopped"


def test_a_plugin_that_the_runtime_starts_may_keep_its_own_name(runtime: NriRuntime) -> None:
    with launched({"NRI_PLUGIN_SOCKET": str(runtime.launch().detach()), "NRI_PLUGIN_NAME": ""}) as plugin:
        assert plugin.wait_synchronized(LONG)
        assert runtime.plugins == ["10-own"]


@pytest.mark.parametrize("when", ["connected", "before Synchronize"])
def test_the_end_of_an_inherited_connection_is_told_once(
    path: Path, caplog: pytest.LogCaptureFixture, when: str
) -> None:
    ends: list[str] = []
    with NriRuntime(path, request_timeout=LONG) as runtime:
        ours, theirs = socket.socketpair()
        sock = runtime.launch() if when == "connected" else theirs
        with launched({"NRI_PLUGIN_SOCKET": str(sock.detach())}, lambda: ends.append("ended")) as plugin:
            if when == "connected":
                assert plugin.wait_synchronized(LONG)
            runtime.stop()
            ours.close()
            wait(lambda: ends)
        theirs.close()
        assert plugin.connections == (when == "connected")
    assert ends == ["ended"]
    assert "only the runtime can start the plugin again" in caplog.text


def test_a_plugin_that_is_stopped_before_it_starts_closes_its_connection() -> None:
    ours, theirs = socket.socketpair()
    launch = Launch.take({"NRI_PLUGIN_SOCKET": str(theirs.detach())})
    plugin = NriPlugin("own", nothing, {}, ConnectOptions(10, launch=launch))
    assert plugin.stop(LONG)
    with ours:
        assert ours.recv(1) == b""


def test_a_process_that_no_runtime_has_started_has_no_connection() -> None:
    assert Launch.take({"NRI_PLUGIN_NAME": "x"}) is None
    assert Launch.take({"NRI_PLUGIN_SOCKET": ""}) is None


@pytest.mark.parametrize("number", ["three", "-1", "987654", "file", "udp"])
def test_what_is_no_connected_socket_is_refused(tmp_path: Path, number: str) -> None:
    with (tmp_path / "file").open("w") as file, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        number = {"file": str(file.fileno()), "udp": str(udp.fileno())}.get(number, number)
        with pytest.raises(
            SettingsError, match=f"NRI_PLUGIN_SOCKET='{number}': must be the file descriptor of a unix socket"
        ):
            Launch.take({"NRI_PLUGIN_SOCKET": number})


@pytest.mark.parametrize("index", ["x", "100", "-1"])
def test_an_index_of_the_environment_that_is_no_index_is_refused(index: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(SettingsError, match=f"NRI_PLUGIN_IDX='{index}': must be a number from 0 to 99"):
        Launch.take({"NRI_PLUGIN_SOCKET": str(theirs.fileno()), "NRI_PLUGIN_IDX": index})


VERSIONS = ["0.3.0", "0.6.1", "0.8.0", "0.9.0", "0.10.0", "0.11.0", "0.12.0", "0.12.1"]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_event_arrives_from_every_version(path: Path, version: str) -> None:
    """StateChange carries most events before 0.12, and updates of pods are no events before 0.10."""
    events: list[tuple[Event, Any]] = []
    with NriRuntime(path, nri_version=version, request_timeout=LONG) as runtime:
        with plugin(path, {event: recorder(events, event) for event in Event}):
            assert runtime.wait_plugins(1, LONG)
            runtime.run_pod(pod())
            runtime.update_pod("pod0", pb.LinuxResources())
            runtime.create_container(container())
            runtime.start_container("c0")
            runtime.update_container("c0", pb.LinuxResources())
            runtime.stop_container("c0")
            runtime.remove_container("c0")
            runtime.stop_pod("pod0")
            runtime.remove_pod("pod0")
        new = {Event.UPDATE_POD_SANDBOX, Event.POST_UPDATE_POD_SANDBOX, Event.VALIDATE_CONTAINER_ADJUSTMENT}
        assert {event for event, _ in events} == {event for event in Event if runtime.info.knows(event)}
        assert all(runtime.info.knows(event) for event in new) == (version not in VERSIONS[:4])
        assert all(request.pod.name == "web-0" for _event, request in events)
        assert all(request.container.id == "c0" for event, request in events if "CONTAINER" in event.name)


def test_events_that_the_runtime_is_too_old_for_are_named_in_the_log(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    subscriptions = {Event.UPDATE_POD_SANDBOX: Subscription(lambda _request: None)}
    with NriRuntime(path, nri_version="0.9.0", request_timeout=LONG), plugin(path, subscriptions):
        assert f"{path}: containerd 2.1.4 (NRI 0.8) has no UpdatePodSandbox; the plugin goes on without" in caplog.text


def test_a_plugin_without_events_lets_everything_pass(runtime: NriRuntime, path: Path) -> None:
    with plugin(path):
        assert runtime.wait_plugins(1, LONG)
        runtime.run_pod(pod())
        runtime.create_container(container())
        runtime.stop_container("c0")
        runtime.remove_container("c0")
        runtime.remove_pod("pod0")


# Synchronize


@pytest.mark.parametrize("part", [None, 1, 7])
def test_synchronize_gets_everything_at_once_however_it_was_split(path: Path, part: int | None) -> None:
    seen: list[tuple[int, int]] = []

    def synchronize(pods: Sequence[pb.PodSandbox], containers: Sequence[pb.Container]) -> list[pb.ContainerUpdate]:
        seen.append((len(pods), len(containers)))
        return [repinned(each.id, "0-3") for each in containers]

    with NriRuntime(path, part=part, request_timeout=LONG) as runtime:
        for number in range(10):
            runtime.run_pod(pod(number))
        for number in range(20):
            runtime.create_container(container(number, of=number % 10))
        with plugin(path, synchronize=synchronize):
            assert seen == [(10, 20)]
            assert runtime.wait_plugins(1, LONG)
            assert {each.linux.resources.cpu.cpus for each in runtime.containers.values()} == {"0-3"}


def test_more_than_fits_into_one_message_comes_in_parts(runtime: NriRuntime, path: Path) -> None:
    seen: list[int] = []
    runtime.run_pod(pod())
    for number in range(30):
        runtime.create_container(container(number, env=[f"LONG={'x' * 300_000}"]))

    def synchronize(_pods: Sequence[pb.PodSandbox], containers: Sequence[pb.Container]) -> list[pb.ContainerUpdate]:
        seen.append(len(containers))
        return []

    with plugin(path, synchronize=synchronize):
        assert seen == [30]


def test_a_synchronize_that_raises_is_tried_again_with_the_next_connection(
    runtime: NriRuntime, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[int] = []

    def synchronize(_pods: Sequence[pb.PodSandbox], _containers: Sequence[pb.Container]) -> list[pb.ContainerUpdate]:
        attempts.append(1)
        if len(attempts) == 1:
            raise ValueError("no CPUs yet")
        return []

    with plugin(path, synchronize=synchronize):
        assert len(attempts) == 2
    assert f"{path}: Synchronize failed: no CPUs yet (test_plugin.py, line" in caplog.text


# Answers


def test_an_answer_pins_the_container_and_others(runtime: NriRuntime, path: Path) -> None:
    def create(request: pb.CreateContainerRequest) -> pb.CreateContainerResponse:
        answer = pinned("2-3", "0")
        if request.container.id == "c1":
            answer.update.append(repinned("c0", "4-5"))
        return answer

    with plugin(path, {Event.CREATE_CONTAINER: Subscription(create)}):
        assert runtime.wait_plugins(1, LONG)
        runtime.run_pod(pod())
        first = runtime.create_container(container(0))
        assert (first.linux.resources.cpu.cpus, first.linux.resources.cpu.mems) == ("2-3", "0")
        runtime.create_container(container(1))
        assert runtime.containers["c0"].linux.resources.cpu.cpus == "4-5"


def test_an_answer_longer_than_a_frame_arrives(runtime: NriRuntime, path: Path) -> None:
    def create(_request: pb.CreateContainerRequest) -> pb.CreateContainerResponse:
        return pb.CreateContainerResponse(adjust=pb.ContainerAdjustment(annotations={"long": "x" * 500_000}))

    with plugin(path, {Event.CREATE_CONTAINER: Subscription(create)}):
        assert runtime.wait_plugins(1, LONG)
        runtime.run_pod(pod())
        assert len(runtime.create_container(container()).annotations["long"]) == 500_000


def raising(_request: Any) -> None:
    raise ValueError("no free CPUs")


def test_a_handler_that_raises_fails_the_container_by_default(
    runtime: NriRuntime, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with plugin(path, {Event.CREATE_CONTAINER: Subscription(raising)}):
        assert runtime.wait_plugins(1, LONG)
        runtime.run_pod(pod())
        with pytest.raises(
            RefusedError, match=r"CreateContainer for container app-0 of pod shop/web-0: no free CPUs \(test_plugin"
        ):
            runtime.create_container(container())
        assert runtime.containers == {}
        assert runtime.plugins == ["10-test"]
    assert f"{path}: CreateContainer for container app-0 of pod shop/web-0: no free CPUs" in caplog.text
    assert "the runtime gets the error" in caplog.text


def test_with_policy_ignore_a_handler_that_raises_lets_containers_pass(
    runtime: NriRuntime, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with plugin(path, {Event.CREATE_CONTAINER: Subscription(raising, FailurePolicy.IGNORE)}):
        assert runtime.wait_plugins(1, LONG)
        runtime.run_pod(pod())
        runtime.create_container(container())
        assert set(runtime.containers) == {"c0"}
    assert "no free CPUs (test_plugin.py, line" in caplog.text
    assert "the runtime goes on without the plugin" in caplog.text


def test_a_policy_may_depend_on_the_request(runtime: NriRuntime, path: Path) -> None:
    def policy(request: pb.CreateContainerRequest) -> FailurePolicy:
        return FailurePolicy.IGNORE if request.container.id == "c0" else FailurePolicy.FAIL

    with plugin(path, {Event.CREATE_CONTAINER: Subscription(raising, policy)}):
        assert runtime.wait_plugins(1, LONG)
        runtime.run_pod(pod())
        runtime.create_container(container())
        with pytest.raises(RefusedError, match="no free CPUs"):
            runtime.create_container(container(1))


def test_a_handler_may_be_told_that_its_response_was_sent(runtime: NriRuntime, path: Path) -> None:
    sent: list[bool] = []
    subscription = Subscription(lambda _request: EventResponse(pinned("3"), sent.append))
    with plugin(path, {Event.CREATE_CONTAINER: subscription}):
        assert runtime.wait_plugins(1, LONG)
        runtime.run_pod(pod())
        assert runtime.create_container(container()).linux.resources.cpu.cpus == "3"
        wait(lambda: sent)
    assert sent == [True]


def test_a_handler_is_told_that_its_response_was_too_late(path: Path) -> None:
    sent: list[bool] = []
    go_on = ThreadEvent()

    def create(_request: pb.CreateContainerRequest) -> EventResponse:
        assert go_on.wait(LONG)
        return EventResponse(pinned("3"), sent.append)

    with (
        NriRuntime(path, request_timeout=2.0) as runtime,
        plugin(path, {Event.CREATE_CONTAINER: Subscription(create, FailurePolicy.IGNORE)}),
    ):
        assert runtime.wait_plugins(1, LONG)
        runtime.run_pod(pod())
        assert runtime.create_container(container()).linux.resources.cpu.cpus == ""
        go_on.set()
        wait(lambda: sent)
    assert sent == [False]


def test_a_handler_is_told_that_there_is_no_connection_for_its_response(path: Path) -> None:
    sent: list[bool] = []
    began, go_on = ThreadEvent(), ThreadEvent()

    def create(_request: pb.CreateContainerRequest) -> EventResponse:
        began.set()
        assert go_on.wait(LONG)
        return EventResponse(pinned("3"), sent.append)

    with (
        NriRuntime(path, request_timeout=LONG) as runtime,
        plugin(path, {Event.CREATE_CONTAINER: Subscription(create)}) as started,
    ):
        assert runtime.wait_plugins(1, LONG)
        runtime.run_pod(pod())
        creating = Thread(target=runtime.create_container, args=(container(),))
        creating.start()
        assert began.wait(LONG)
        assert not started.stop(0.0), "the handler still runs"
        creating.join(LONG)
        go_on.set()
        wait(lambda: sent)
    assert sent == [False]


def test_a_handler_that_returns_another_message_fails_the_container(runtime: NriRuntime, path: Path) -> None:
    with plugin(path, {Event.CREATE_CONTAINER: Subscription(lambda _request: pb.Empty())}):
        assert runtime.wait_plugins(1, LONG)
        runtime.run_pod(pod())
        with pytest.raises(RefusedError, match="the handler returned Empty, not CreateContainerResponse"):
            runtime.create_container(container())


@pytest.mark.parametrize("policy", FailurePolicy)
def test_a_late_handler_is_answered_at_half_of_the_time_and_delays_no_other(path: Path, policy: FailurePolicy) -> None:
    go_on, began = ThreadEvent(), ThreadEvent()

    def create(request: pb.CreateContainerRequest) -> None:
        if request.container.id == "c0":
            began.set()
            go_on.wait(LONG)

    with (
        NriRuntime(path, request_timeout=6.0) as runtime,
        plugin(path, {Event.CREATE_CONTAINER: Subscription(create, policy)}),
    ):
        assert runtime.wait_plugins(1, LONG)
        runtime.run_pod(pod())
        if policy is FailurePolicy.FAIL:
            with pytest.raises(RefusedError, match="app-0 of pod shop/web-0: the handler has not answered within 3 s"):
                runtime.create_container(container(0))
        else:
            runtime.create_container(container(0))
        late = [each for each in runtime.calls if each.method == "CreateContainer"][-1]
        assert began.is_set()
        assert 2.9 < late.seconds < 6.0
        runtime.create_container(container(1))
        assert runtime.calls[-1].seconds < 3.0
        assert runtime.plugins == ["10-test"]
        go_on.set()


# Updates outside events


def test_containers_are_updated_outside_events(runtime: NriRuntime, path: Path) -> None:
    with plugin(path) as connected:
        assert runtime.wait_plugins(1, LONG)
        runtime.run_pod(pod())
        runtime.create_container(container())
        assert connected.update_containers([repinned("c0", "1"), repinned("unknown", "1")], LONG) == []
        assert runtime.containers["c0"].linux.resources.cpu.cpus == "1"


def test_a_handler_may_not_update_containers_by_a_call(runtime: NriRuntime, path: Path) -> None:
    problems: list[str] = []

    def create(_request: pb.CreateContainerRequest) -> None:
        with pytest.raises(NriError) as raised:
            plugins[0].update_containers([], LONG)
        problems.append(str(raised.value))

    with plugin(path, {Event.CREATE_CONTAINER: Subscription(create)}) as connected:
        plugins = [connected]
        assert runtime.wait_plugins(1, LONG)
        runtime.run_pod(pod())
        runtime.create_container(container())
    assert problems == [f"{path}: UpdateContainers: a handler must return its updates instead"]


def test_a_runtime_that_may_deadlock_is_not_called(path: Path) -> None:
    problem = r"containerd 2\.3\.4 \(NRI 0\.12\.0\) may deadlock; NRI 0\.12\.1 is needed"
    with (
        NriRuntime(path, nri_version="0.12.0", request_timeout=LONG),
        plugin(path) as connected,
        pytest.raises(NriError, match=problem),
    ):
        connected.update_containers([], LONG)


def test_updates_need_a_connection(path: Path) -> None:
    alone = NriPlugin("test", nothing, {}, ConnectOptions(10, path))
    with pytest.raises(NriError, match=f"{path}: UpdateContainers: the plugin is not connected"):
        alone.update_containers([], LONG)


# Connections that end


def test_a_plugin_waits_for_the_socket_and_says_so_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with plugin(path, connected=False) as waiting:
        wait(lambda: "cannot connect to the container runtime: No such file or directory" in caplog.text)
        assert not waiting.wait_synchronized(0.6)
        with NriRuntime(path, request_timeout=LONG):
            assert waiting.wait_synchronized(LONG)
        assert caplog.text.count("No such file or directory") <= 2  # once before, perhaps once after


def test_a_plugin_connects_again_after_each_restart_of_the_runtime(path: Path) -> None:
    runtime = NriRuntime(path, request_timeout=LONG)
    with runtime, plugin(path) as connected:
        runtime.run_pod(pod())
        for number in range(2, 5):
            runtime.stop()
            wait(lambda: connected.runtime is None)
            runtime.start()
            assert connected.wait_synchronized(LONG, number)
        assert runtime.wait_plugins(1, LONG)


def test_stop_ends_a_plugin_that_waits_for_a_runtime_that_does_not_answer(path: Path) -> None:
    with silent(path) as peers, plugin(path, connected=False):
        wait(lambda: peers)


def test_a_runtime_that_does_not_answer_the_registration_is_left(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with silent(path) as peers:
        started = NriPlugin("test", nothing, {}, ConnectOptions(10, path, SessionLimits(register=0.1)))
        started.start()
        wait(lambda: len(peers) >= 2)
        assert started.stop(LONG)
    assert f"{path}: RegisterPlugin failed with DEADLINE_EXCEEDED: no answer within 0.1 s" in caplog.text


def test_a_runtime_that_refuses_the_plugin_is_tried_again_with_back_off(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A release that should have the event, but has not."""
    with (
        NriRuntime(path, nri_version="0.9.0", version="2.2.0", request_timeout=LONG) as runtime,
        plugin(path, {Event.UPDATE_POD_SANDBOX: Subscription(lambda _request: None)}, connected=False),
    ):
        wait(lambda: "it starts again in 1.0 s" in caplog.text)
    assert "plugin 10-test subscribes to events that containerd 2.2.0 (NRI 0.9.0) does not know: 0x800" in str(
        runtime.problems[0]
    )
    assert f"{path}: the runtime has closed the connection before Synchronize; it starts again in 0.5 s" in caplog.text


@contextmanager
def silent(path: Path, answer: bytes | None = None) -> Iterator[list[socket.socket]]:
    """A socket that accepts, sends `answer` to the first connection if there is one, and never says anything else."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()
    peers: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            if answer is not None and not peers:
                sock.sendall(answer)
                sock.shutdown(socket.SHUT_WR)
            peers.append(sock)

    thread = Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield peers
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(LONG)
        for each in [listener, *peers]:
            each.close()


GARBAGE = {
    b"HTTP/1.1 400 Bad Request\r\n\r\n": "a frame of connection 1213486160 has 791752241 bytes, more than 4194314",
    b"\0\0\0\1\0\0\0\x14" + b"\xff" * 20: "received bytes that are not ttrpc: a frame of type 255",
    b"\0\0\0\1\0\0\0\x0c\0\0\0\x02\0\0\0\1\1\0\xff\xff": "received a request that cannot be decoded",
    b"\0\0\0\2\0\0\0\x0c\0\0\0\x02\0\0\0\1\2\0\xff\xff": "received a response that cannot be decoded",
    b"\0\0\0\2\0\0\0\x0a\0\0\0\0\0\0\0\1\1\0": "received a frame of type 1 in place of a response",
    b"\0\0\0": "the connection ended inside a frame",
}


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_ends_the_connection_and_the_plugin_connects_again(
    path: Path, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with silent(path, garbage) as peers, plugin(path, connected=False):
        wait(lambda: len(peers) >= 2)
    message = next(each.getMessage() for each in caplog.records if each.levelno == logging.ERROR)
    assert message.startswith("NRI plugin test failed: ")
    assert f"{path}: {GARBAGE[garbage]}" in message
    assert message.endswith("; it starts again in 0.5 s")


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(garbage=st.binary(max_size=64))
def test_after_any_bytes_the_plugin_connects_again(path: Path, garbage: bytes) -> None:
    path.unlink(missing_ok=True)
    began = monotonic()
    with silent(path, garbage) as peers, plugin(path, connected=False):
        wait(lambda: len(peers) >= 2)
    assert monotonic() - began < LONG


def test_shutdown_ends_the_connection_and_the_plugin_connects_again(runtime: NriRuntime, path: Path) -> None:
    with plugin(path) as connected:
        assert runtime.wait_plugins(1, LONG)
        runtime.shut_down_plugins()
        assert connected.wait_synchronized(LONG, 2)
