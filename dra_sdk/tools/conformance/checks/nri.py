"""The protocol of NRI: how a plugin registers, synchronizes, and answers the container runtime."""

from __future__ import annotations

import socket
import struct
from functools import partial
from typing import Final

from dra_sdk.node.nri.events import PLUGIN, Event
from dra_sdk.node.nri.mux import PLUGIN_FRAME, PLUGIN_SERVICE, frames
from dra_sdk.node.nri.ttrpc import REQUEST, Code, TtrpcFrame, encode
from dra_sdk.tools.conformance.check import Level, Need
from dra_sdk.tools.conformance.nri_node import NriNode
from dra_sdk.tools.conformance.outcomes import CheckFailedError, NotApplicableError, expect
from dra_sdk.tools.conformance.run import UNKNOWN_FIELD, Run
from dra_sdk.tools.conformance.timeouts import wait_until
from dra_sdk.wire.proto import nri_ttrpc_pb2 as ttrpc
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb

NRI: Final = Level("nri", "NRI: registration and protocol")

_ADAPTATION: Final = "containerd/nri pkg/adaptation/plugin.go"
_API: Final = "containerd/nri pkg/api/api.proto"
_MUX: Final = "containerd/nri pkg/net/multiplex/mux.go"
_TTRPC: Final = "containerd/ttrpc PROTOCOL.md"

VERSIONS: Final = ("0.3.0", "0.8.0", "0.10.0", "0.12.0")
"""The versions of NRI that differ in their events and calls."""
BEFORE_SAFE_UPDATES: Final = ("0.10.0", "0.12.0")
CONTAINERS: Final = 200


@NRI.must("NRI-001", f"{_ADAPTATION}, DefaultPluginRegistrationTimeout", Need.RESTART)
def registers_in_time(run: Run) -> None:
    """The plugin connects to the runtime's socket and calls RegisterPlugin within 5 seconds."""
    node, timeouts = run.nri_node(), run.timeouts
    node.start()
    run.driver.start()
    wait_until(lambda: node.wire.connected or run.driver.crash, timeouts.nri_connect)
    expect(node.wire.connected, f"nothing has connected to the socket within {timeouts.nri_connect:g} s")
    wait_until(lambda: node.wire.calls or node.problems or run.driver.crash, timeouts.nri_registration)
    expect(
        node.calls("RegisterPlugin"),
        f"RegisterPlugin has not come within {timeouts.nri_registration:g} s of the connection",
    )


@NRI.must("NRI-002", f"{_API}, RegisterPluginRequest; {_ADAPTATION}, checkPluginIndex", Need.RESTART)
def valid_name_and_index(run: Run) -> None:
    """The plugin's name has only letters, digits and `_.+-`, and its index has two digits."""
    node = run.nri_node()
    node.start()
    run.driver.start()
    wait_until(lambda: node.calls("RegisterPlugin") or run.driver.crash, run.timeouts.nri_connect)
    expect(node.calls("RegisterPlugin"), "the plugin has not called RegisterPlugin")
    refused = node.calls("RegisterPlugin")[0]
    expect(refused.code == Code.OK, f"RegisterPlugin: {refused.status}")


@NRI.must("NRI-003", f"{_ADAPTATION}, start; {_TTRPC}", Need.RESTART)
def answers_before_its_own_answer(run: Run) -> None:
    """Configure is answered also while RegisterPlugin is not yet answered: runtimes may send it first."""
    run.connected_node(hold_reply=True)


@NRI.must("NRI-004", f"{_API}, Event; {_ADAPTATION}, configure: invalid plugin events", Need.RESTART)
def subscribes_to_known_events(run: Run) -> None:
    """The plugin subscribes only to events of the runtime's version: NRI 0.3, 0.8, 0.10 and 0.12 accept it."""
    for version in VERSIONS:
        try:
            run.connected_node(version)
        except CheckFailedError as error:
            raise CheckFailedError(f"with NRI {version}, {error}", **error.evidence) from error


@NRI.must("NRI-005", f"{_API}, SynchronizeRequest", Need.RESTART)
def synchronizes(run: Run) -> None:
    """Synchronize is answered, without pods and with them, and updates no container that does not exist."""
    node = run.connected_node()
    _, edits = run.prepared_edits()
    node.start()
    known = {node.run(container_edits).id for container_edits in (None, edits, None)}
    node.connect()
    strange = sorted({update.container for update in node.updates()} - known)
    expect(not strange, f"Synchronize updates containers that do not exist: {', '.join(strange)}")


@NRI.must("NRI-006", f"{_API}, SynchronizeRequest.more, since NRI 0.8", Need.RESTART)
def synchronizes_in_parts(run: Run) -> None:
    """Synchronize in parts has the same effect as in one message."""
    node = run.connected_node()
    edits = [None, None, run.prepared_edits()[1], None, None]
    cpus = []
    for part in (None, 2):
        node.start(part=part)
        containers = [node.run(edit) for edit in edits]
        node.connect()
        cpus.append([node.cpus(container) for container in containers])
    whole, parts = cpus
    expect(parts == whole, f"the containers' CPUs are {whole} after one message, {parts} after three")


@NRI.must("NRI-007", f"{_MUX}, conn.Read: ENOMEM", Need.RESTART)
def writes_frames_that_are_read(run: Run) -> None:
    """No frame of the plugin is longer than 4096 bytes, or than the rest of the message that it continues."""
    node = run.connected_node()
    _restart_full(node)
    node.call("X" * (PLUGIN_FRAME + 1), b"")  # many plugins repeat the name in their answer
    node.expect_no_problem()
    if node.wire.longest <= PLUGIN_FRAME:
        raise NotApplicableError(f"no message of the plugin was longer than {node.wire.longest} bytes")


def _restart_full(node: NriNode) -> None:
    """Start a runtime with many containers, and synchronize the plugin."""
    node.start()
    for _ in range(CONTAINERS):
        node.run()
    node.connect()


@NRI.must("NRI-008", f"{_MUX}: frames are parts of a stream of bytes", Need.RESTART)
def reads_frames_of_any_size(run: Run) -> None:
    """Messages of the runtime are understood however they are cut into frames, from 1 byte to all of Synchronize."""
    node = run.connected_node(small_frames=True)
    claim, edits = run.prepared_edits()
    small = node.cpus(node.run(edits))
    run.unprepare(claim)
    _restart_full(node)
    large = node.cpus(node.run(run.prepared_edits()[1]))
    expect(small == large, f"the container has CPUs {small!r} with small frames, {large!r} with large ones")


@NRI.must("NRI-009", f"{_TTRPC}; {_ADAPTATION}: the runtime falls back to StateChange", Need.RESTART)
def rejects_unknown_methods(run: Run) -> None:
    """An unknown method is answered with UNIMPLEMENTED, and the connection stays."""
    node = run.connected_node()
    answer = node.call("FutureEvent", b"")
    expect(answer.code == Code.UNIMPLEMENTED, f"FutureEvent: {answer.status}")
    node.run()


@NRI.must("NRI-010", "Protocol Buffers language guide (proto3), Unknown Fields", Need.RESTART)
def ignores_unknown_fields(run: Run) -> None:
    """Unknown fields in requests, pods and containers, which a newer runtime may send, are ignored."""
    node = run.connected_node()
    _, edits = run.prepared_edits()
    expected = node.cpus(container := node.run(edits))
    newer = pb.Container.FromString(node.again(container).SerializeToString() + UNKNOWN_FIELD)
    node.end(container)
    cpus = node.cpus(node.create(newer))
    expect(cpus == expected, f"the container has CPUs {expected!r}, with an unknown field {cpus!r}")
    request = pb.StopContainerRequest(pod=node.runtime.pods[newer.pod_sandbox_id], container=newer)
    if Event.STOP_CONTAINER in node.events:
        answer = node.call("StopContainer", request.SerializeToString() + UNKNOWN_FIELD)
        expect(answer.code == Code.OK, f"StopContainer with an unknown field: {answer.status}")


@NRI.must("NRI-011", f"{_ADAPTATION}: a failed creation stops and removes a container", Need.RESTART)
def ignores_unknown_containers(run: Run) -> None:
    """StopContainer and RemoveContainer of a container that the plugin does not know are no error."""
    node = run.connected_node()
    pod, container = pb.PodSandbox(id="f" * 64, name="p", uid="u", namespace="n"), pb.Container(id="e" * 64, name="c")
    container.pod_sandbox_id = pod.id
    stopped = pb.StopContainerRequest(pod=pod, container=container)
    removed = pb.StateChangeEvent(event=pb.REMOVE_CONTAINER, pod=pod, container=container)
    calls = {Event.STOP_CONTAINER: ("StopContainer", stopped), Event.REMOVE_CONTAINER: ("StateChange", removed)}
    asked = [call for event, call in calls.items() if event in node.events]
    if not asked:
        raise NotApplicableError("the plugin subscribes to neither StopContainer nor RemoveContainer")
    for method, request in asked:
        answer = node.call(method, request.SerializeToString())
        expect(answer.code == Code.OK, f"{method} for an unknown container: {answer.status}")
    node.run()


@NRI.must("NRI-012", f"{_ADAPTATION}, DefaultPluginRequestTimeout", Need.RESTART)
def answers_in_time(run: Run) -> None:
    """With 200 containers on the node, each call is answered within 2 seconds; a late plugin is disconnected."""
    node = run.connected_node()
    containers = [node.run() for _ in range(CONTAINERS)]
    node.run(run.prepared_edits()[1])
    node.restart_driver()
    for container in containers[::20]:
        node.end(container)
    slowest = max(node.wire.calls, key=lambda call: call.ended - call.began)
    seconds = slowest.ended - slowest.began
    expect(seconds <= run.timeouts.nri_request, f"{slowest.method} took {seconds:.2f} s with {CONTAINERS} containers")


@NRI.must("NRI-013", "containerd/containerd#13733, fixed in NRI 0.12.1", Need.RESTART)
def does_not_deadlock_old_runtimes(run: Run) -> None:
    """Before NRI 0.12.1, UpdateContainers is never called: such a runtime deadlocks if an event is under way."""
    for version in BEFORE_SAFE_UPDATES:
        node = run.connected_node(version)
        _life(run, node)
        wait_until(partial(node.calls, "UpdateContainers"), run.timeouts.settle)
        expect(not node.calls("UpdateContainers"), f"with NRI {version} the plugin calls UpdateContainers")


@NRI.must("NRI-014", f"{_API}, StateChange: replaced in NRI 0.12 by a call for each event", Need.RESTART)
def same_effect_in_every_version(run: Run) -> None:
    """Events have the same effect as StateChange, before NRI 0.12, and as calls of their own."""
    lives = {version: _life(run, run.connected_node(version)) for version in ("0.10.0", "0.12.0")}
    first, second = lives.values()
    expect(first == second, f"the containers' CPUs are {first} with NRI 0.10, {second} with NRI 0.12")


def _life(run: Run, node: NriNode) -> list[str]:
    """Return the CPUs of containers while others come and go, and how often removed containers were updated."""
    shared, brief = node.run(), node.create(node.container(), start=False)
    node.end(brief, stop=False)  # a container that has not started is removed without StopContainer
    claim, edits = run.prepared_edits()
    container = node.container(edits)
    node.create(container, start=False)
    cpus = [node.cpus(container), node.cpus(shared)]
    node.end(container, stop=False)
    again = node.create(node.again(container))
    cpus.append(node.cpus(again))
    node.end(again)
    node.end_pod(container.pod_sandbox_id)
    run.unprepare(claim)
    updated = len(list(node.updates()))
    node.end(node.run())
    claim, edits = run.prepared_edits()
    node.run(edits)
    run.unprepare(claim)
    ended = {brief.id, container.id, again.id}
    late = [update for update in list(node.updates())[updated:] if update.container in ended]
    return [*cpus, node.cpus(shared), f"{len(late)} updates of removed containers"]


@NRI.must("NRI-015", f"{_ADAPTATION}: a runtime that restarts has no plugins", Need.RESTART)
def connects_again(run: Run) -> None:
    """After a restart of the runtime, the plugin connects and registers again."""
    node = run.connected_node()
    node.restart(run.timeouts.quiet)
    node.reconnect()


@NRI.must("NRI-016", "CWE-20, improper input validation", Need.RESTART)
def survives_garbage(run: Run) -> None:
    """A runtime that sends what is not NRI does not end the plugin for good: it connects again, and works."""
    node = run.connected_node()
    node.send_garbage(_no_frames, _no_ttrpc, _no_message)
    node.reconnect()
    expect(not run.driver.crash, run.driver.crash)
    node.run()


def _no_frames(plugin: socket.socket) -> None:
    plugin.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def _no_ttrpc(plugin: socket.socket) -> None:
    plugin.sendall(struct.pack(">II", PLUGIN_SERVICE, 32) + b"\xff" * 32)


def _no_message(plugin: socket.socket) -> None:
    request = ttrpc.Request(service=PLUGIN, method="Configure", payload=b"\x0a\xff\xff\xff\xff\xff")
    data = encode(TtrpcFrame(1, REQUEST, request.SerializeToString()))
    plugin.sendall(b"".join(frames(PLUGIN_SERVICE, data)))
