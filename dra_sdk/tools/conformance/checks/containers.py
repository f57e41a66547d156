"""What an NRI plugin changes in containers.

A CPU driver may move containers without claims to the CPUs that no claim holds. Nothing else in them may change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dra_sdk.hardware.cpuset import CpuSet, format_cpuset, parse_cpuset
from dra_sdk.model import JSON
from dra_sdk.node.nri.events import Event
from dra_sdk.node.nri.plugin import ConnectOptions, NriPlugin
from dra_sdk.node.nri.session import Subscription
from dra_sdk.tools.conformance.check import Level, Need
from dra_sdk.tools.conformance.claims import TestClaim
from dra_sdk.tools.conformance.nri_node import NriNode
from dra_sdk.tools.conformance.outcomes import CheckFailedError, NotApplicableError, NotRunError, expect
from dra_sdk.tools.conformance.run import Run
from dra_sdk.tools.conformance.timeouts import wait_until
from dra_sdk.tools.simulator.kubelet.calls import to_json
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb

CONTAINERS: Final = Level("containers", "NRI: changes in containers")

_API: Final = "containerd/nri pkg/api/api.proto"
_RESULT: Final = "containerd/nri pkg/adaptation/result.go"
_KEP: Final = "KEP-4381, Managing resources: a device belongs to the claims that it is allocated to"

OTHER_INDEX: Final = 99


@CONTAINERS.must("CTR-001", f"{_API}, LinuxCPU: an empty list changes nothing; cpuset(7)", Need.RESTART)
def chooses_cpus_that_exist(run: Run) -> None:
    """CPUs and memory nodes that the plugin sets are lists that are not empty, of CPUs and nodes that are online."""
    node = run.connected_node()
    containers = [node.run()]
    claim, edits = run.prepared_edits()
    containers += [node.run(edits), node.run()]
    node.end(containers[1])
    run.unprepare(claim)
    containers.append(node.run())
    chosen = [(update.container, update.resources) for update in node.updates()]
    for created in containers:
        adjust = node.adjustment(created)
        if adjust.linux.HasField("resources"):
            chosen.append((created.id, adjust.linux.resources))
    changed = [(container, resources.cpu) for container, resources in chosen if resources.HasField("cpu")]
    if not changed:
        raise NotApplicableError("the plugin does not choose CPUs")
    for container, cpu in changed:
        _expect_online(run, cpu, container)


def _expect_online(run: Run, cpu: pb.LinuxCPU, container: str) -> None:
    given = to_json(cpu)
    expect(given, f"container {container[-8:]} gets an empty cpuset, which leaves it on the CPUs that it had")
    root = run.environment.host_root / "sys/devices/system"
    for name, where in (("cpus", root / "cpu/online"), ("mems", root / "node/online")):
        if text := given.get(name):
            try:
                online = parse_cpuset(where.read_text()) if where.exists() else None
                absent = parse_cpuset(text) - (parse_cpuset(text) if online is None else online)
            except ValueError as error:
                raise CheckFailedError(f"container {container[-8:]} gets {name} {text!r}: {error}") from error
            expect(not absent, f"container {container[-8:]} gets {name} {text}; {format_cpuset(absent)} are not online")


@CONTAINERS.must("CTR-002", _KEP, Need.RESTART)
def keeps_others_off(run: Run) -> None:
    """No other container runs on the CPUs of a claim, if the plugin moves containers without claims at all."""
    node = run.connected_node()
    early = node.run()
    claimed = [_pinned(run, node)[1]]
    if not _is_exclusive(node):
        raise NotApplicableError("the plugin leaves containers without claims on all CPUs")
    if len(run.claims.free_devices()) > 1:
        claim = run.claims.create_one(run.claims.pick(2)[1])
        claimed.append(node.run(run.container(run.cdi_ids(run.prepare_one(claim)))))
    late = node.run()
    _expect_apart(node, claimed, [early, late])


@CONTAINERS.must("CTR-003", f"{_KEP}; NodeUnprepareResources", Need.RESTART)
def trusts_no_container(run: Run) -> None:
    """A container with what CDI added for a claim that is no longer prepared is refused, or treated as without it."""
    node = run.connected_node()
    claim, edits = run.prepared_edits()
    container = node.run(edits)
    given = node.cpus(container)
    if not given or not _is_exclusive(node):
        raise NotApplicableError("the plugin gives no CPUs to claims alone")
    node.end(container)
    run.unprepare(claim)
    shared = node.cpus(node.run())
    try:
        late = node.cpus(node.run(edits))
    except CheckFailedError:
        node.expect_no_problem()
        return  # refused
    expect(late == shared, f"after the claim was unprepared, a container that names it gets CPUs {late}, not {shared}")


@CONTAINERS.must("CTR-004", f"{_RESULT}: conflicting owners; containerd stops and removes the container", Need.RESTART)
def survives_a_conflict(run: Run) -> None:
    """After a creation that failed because another plugin set the same CPUs, the container can be created as before."""
    node = run.connected_node()
    expected, edits = _prepared_again(run, node)
    planned = node.container(edits)
    other = _pinning_plugin(node)
    other.start()
    try:
        if not other.wait_synchronized(run.timeouts.nri_connect):
            raise NotRunError("the kit's second plugin has not connected")
        try:
            node.create(planned)
        except CheckFailedError:
            node.expect_no_problem()
        else:
            raise NotApplicableError("another plugin can set the CPUs of the container")
    finally:
        other.stop(run.timeouts.nri_connect)
        wait_until(lambda: len(node.runtime.plugins) == 1, run.timeouts.nri_connect)
    cpus = node.cpus(node.create(node.again(planned)))
    expect(cpus == expected, f"after the conflict the container gets CPUs {cpus!r}, not {expected!r}")


def _pinning_plugin(node: NriNode) -> NriPlugin:
    """Return a plugin that pins every container, and is asked last."""
    answer = pb.CreateContainerResponse()
    answer.adjust.linux.resources.cpu.cpus = "0"
    subscriptions = {Event.CREATE_CONTAINER: Subscription(lambda _request: answer)}
    options = ConnectOptions(OTHER_INDEX, node.runtime.path)
    return NriPlugin("conformance", lambda _pods, _containers: [], subscriptions, options)


@CONTAINERS.should("CTR-005", f"{_API}, ContainerUpdate.ignore_failure", Need.RESTART)
def ignores_failed_updates(run: Run) -> None:
    """Updates of other containers set ignore_failure: one that ends at that moment must not make the creation fail."""
    node = run.connected_node()
    node.run()
    node.run(run.prepared_edits()[1])
    updates = [update for update in node.updates() if update.method == "CreateContainer"]
    if not updates:
        raise NotApplicableError("the plugin updates no other container when one is created")
    strict = [update.container[-8:] for update in updates if not update.ignores_failure]
    expect(not strict, f"CreateContainer updates {', '.join(strict)} without ignore_failure")


@CONTAINERS.must("CTR-006", "NRI README, Containers; KEP-4381: only pods with claims use the driver", Need.RESTART)
def changes_only_what_it_needs(run: Run) -> None:
    """In a container without a claim nothing changes but its CPUs and memory nodes: no env, mount or annotation."""
    node = run.connected_node()
    containers = [node.run()]
    node.run(run.prepared_edits()[1])
    containers.append(node.run())
    for container in containers:
        changed = pb.ContainerAdjustment()
        changed.CopyFrom(node.adjustment(container))
        _clear_cpuset(changed.linux.resources)
        changes = _values(to_json(changed))
        expect(not changes, f"a container without a claim gets {', '.join(changes)}", adjustment=to_json(changed))
    names = {container.id for container in containers}
    for update in [update for update in node.updates() if update.container in names]:
        _clear_cpuset(update.resources)
        changes = _values(to_json(update.resources))
        expect(not changes, f"{update.method} changes {', '.join(changes)} in a container without a claim")


def _clear_cpuset(resources: pb.LinuxResources) -> None:
    resources.cpu.cpus = resources.cpu.mems = ""


def _values(message: Any, path: str = "") -> list[str]:
    """Return the names of all values in a message."""
    if isinstance(message, dict):
        return [name for key, value in message.items() for name in _values(value, f"{path}.{key}" if path else key)]
    return [path]


@CONTAINERS.must("CTR-007", f"{_KEP}; {_API}, Synchronize", Need.RESTART)
def same_state_after_reconnection(run: Run) -> None:
    """After a restart of the runtime, claims keep their CPUs, and new containers get none of them."""
    node = run.connected_node()
    _expect_kept(run, node, lambda: _restart_runtime(run, node))


def _restart_runtime(run: Run, node: NriNode) -> None:
    """Restart the runtime; a plugin that does not connect again is started again, as the kubelet would do."""
    node.restart(run.timeouts.quiet)
    if not node.reconnected():
        node.restart_driver()


@CONTAINERS.must("CTR-008", f"{_KEP}; {_API}, Synchronize", Need.RESTART)
def same_state_after_its_own_restart(run: Run) -> None:
    """After the plugin was killed and started again, claims keep their CPUs, and new containers get none of them."""
    node = run.connected_node()
    _expect_kept(run, node, node.restart_driver)


def _expect_kept(run: Run, node: NriNode, restart: Callable[[], None]) -> None:
    early = node.run()
    _, claimed = _pinned(run, node)
    exclusive = _is_exclusive(node)
    before = node.cpus(claimed), node.cpus(early)
    restart()
    after = node.cpus(claimed), node.cpus(early)
    expect(after == before, f"the CPUs of the claim and of the others were {before}, and are {after} afterwards")
    late = node.run()
    if exclusive:
        _expect_apart(node, [claimed], [early, late])
    again = node.again(claimed)
    node.end(claimed)
    cpus = node.cpus(node.create(again))
    expect(cpus == before[0], f"the claim's container starts again with CPUs {cpus!r}, not {before[0]!r}")


@CONTAINERS.must("CTR-009", "containerd/nri issue 282: containers start while the plugin is away", Need.RESTART)
def moves_what_started_without_it(run: Run) -> None:
    """A container that started while the plugin was away is moved off the claims' CPUs by Synchronize."""
    node = run.connected_node()
    _, claimed = _pinned(run, node)
    if not _is_exclusive(node):
        raise NotApplicableError("the plugin leaves containers without claims on all CPUs")
    node.kill_driver()
    alone = node.run()
    node.connect()
    _expect_apart(node, [claimed], [alone])


@CONTAINERS.must("CTR-010", "KEP-4381, NodePrepareResource: a prepared claim stays prepared", Need.RESTART)
def pins_what_was_prepared_before(run: Run) -> None:
    """A claim that was prepared before the plugin was killed gets its CPUs in a container that is created later."""
    node = run.connected_node()
    expected, edits = _prepared_again(run, node)
    node.restart_driver()
    shared = node.run()
    pinned = node.run(edits)
    cpus = node.cpus(pinned)
    expect(cpus == expected, f"the container gets CPUs {cpus!r}; before a restart it gets {expected!r}")
    if node.cpus(shared):
        _expect_apart(node, [pinned], [shared])


def _pinned(run: Run, node: NriNode) -> tuple[TestClaim, pb.Container]:
    """Return a container with a claim; NotApplicableError if the plugin does not choose its CPUs."""
    claim, edits = run.prepared_edits()
    container = node.run(edits)
    if not node.cpus(container):
        raise NotApplicableError("the plugin does not choose the CPUs of a container with a claim")
    return claim, container


def _prepared_again(run: Run, node: NriNode) -> tuple[str, JSON]:
    """Return the CPUs of a container that has ended, and the edits for the next one, whose claim is prepared."""
    claim, container = _pinned(run, node)
    cpus = node.cpus(container)
    node.end(container)
    run.unprepare(claim)
    return cpus, run.prepared_edits()[1]


def _is_exclusive(node: NriNode) -> bool:
    """Whether the plugin keeps containers without claims off the CPUs of claims: it moves one that is new."""
    return bool(node.cpus(node.run()))


def _expect_apart(node: NriNode, claimed: list[pb.Container], others: list[pb.Container]) -> None:
    """Expect that containers of different claims, and those without, have no CPU in common."""
    taken: CpuSet = frozenset()
    for container in claimed:
        cpus = node.cpu_set(container)
        common = format_cpuset(taken & cpus)
        expect(not common, f"containers of two claims have CPUs {common} in common")
        taken |= cpus
    for container in others:
        given = node.cpus(container)
        expect(given, "a container without a claim is left on all CPUs, with those of a claim")
        common = format_cpuset(taken & node.cpu_set(container))
        expect(not common, f"a container without a claim has CPUs {given}; {common} belong to a claim")
