"""What a scheduler would look at and the simulation does not, and what has no effect with these feature gates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from dra_sdk.tools.scheduling.cluster.core import Pod, PodSpec
from dra_sdk.tools.scheduling.cluster.names import key_of, shown
from dra_sdk.tools.scheduling.cluster.outcome import Placement
from dra_sdk.tools.scheduling.cluster.snapshot import Snapshot

_SHOWN: Final = 5
_DEFAULT_SCHEDULER: Final = "default-scheduler"
_FEWER: Final = "not simulated, a cluster may let it run on fewer nodes"
_OTHER: Final = "not simulated, a cluster may take another node"


def notes_on(snapshot: Snapshot, placements: Iterable[Placement]) -> Iterator[str]:
    """A sentence for each kind of thing, with the pods that have it; of those that ran before nothing is said."""
    placed = [
        (shown(each.pod), Pod.model_validate(snapshot.pods_by_key[each.pod]).spec, each)
        for each in placements
        if not each.running
    ]
    for what, applies in _FEATURES.items():
        if names := [name for name, spec, each in placed if each.scheduled and applies(spec)]:
            yield f"{_pods(names)}: {what}"
    yield from _unpublished(snapshot)
    yield from _rules(snapshot)
    yield from _node_resources(snapshot)
    yield from _preemption(snapshot, [(name, spec) for name, spec, each in placed if each.node is None])


def priority_of(spec: PodSpec) -> int:
    """`spec.priority`; of classes only those that every cluster has are known."""
    return _SYSTEM.get(spec.priority_class_name, 0) if spec.priority is None else spec.priority


#: Source: scheduling/v1, the priority classes that every cluster has.
_SYSTEM: Final[Mapping[str, int]] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}


def _unpublished(snapshot: Snapshot) -> Iterator[str]:
    """Devices that claims hold and no driver publishes, as after a driver is gone, or where files are missing."""
    specs = [each["spec"] for each in snapshot.slices]
    known = {
        (each["driver"], each["pool"]["name"], device["name"]) for each in specs for device in each.get("devices") or ()
    }
    for claim in snapshot.claims:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or ():
            device = (result["driver"], result["pool"], result["device"])
            if device not in known:
                yield f"claim {shown(key_of(claim))} holds {'/'.join(device)}, which no ResourceSlice has"


def _rules(snapshot: Snapshot) -> Iterator[str]:
    profile = snapshot.profile
    if not profile.enabled(profile.taint_rule_gate):
        for rule in snapshot.rules:
            gate = f"feature gate {profile.taint_rule_gate} is off in Kubernetes {profile.version}"
            yield f"DeviceTaintRule {rule['metadata']['name']} has no effect: {gate}"


def _node_resources(snapshot: Snapshot) -> Iterator[str]:
    """Devices that count as CPU, memory and the like of their node (KEP-5517)."""
    fields = ("nodeAllocatableResources", "nodeAllocatableResourceMappings")
    devices = (device for each in snapshot.slices for device in each["spec"].get("devices") or ())
    if snapshot.profile.enabled("DRANodeAllocatableResources") and any(
        device.get(field) for device in devices for field in fields
    ):
        yield f"devices with node-allocatable resources: what they use of CPU and memory of a node is {_FEWER}"


def _preemption(snapshot: Snapshot, unplaced: Iterable[tuple[str, PodSpec]]) -> Iterator[str]:
    """Pods without a place for which a scheduler may take one from pods of lower priority."""
    specs = (Pod.model_validate(each).spec for each in snapshot.pods)
    lowest = min((priority_of(each) for each in specs if each.node_name), default=None)
    names = [
        name
        for name, spec in unplaced
        if lowest is not None and priority_of(spec) > lowest and spec.preemption_policy != "Never"
    ]
    if names:
        yield f"{_pods(names)}: preemption is not simulated, pods of lower priority may have to go in a cluster"


def _pods(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"pod{'s' if len(names) > 1 else ''} {', '.join(names[:_SHOWN])}{more}"


def _is_between_pods(spec: PodSpec) -> bool:
    affinity = spec.affinity
    return any(each is not None and each.required for each in (affinity.pod_affinity, affinity.pod_anti_affinity))


def _is_spread(spec: PodSpec) -> bool:
    return any(each.when_unsatisfiable == "DoNotSchedule" for each in spec.topology_spread_constraints)


def _has_volumes(spec: PodSpec) -> bool:
    return any(each.persistent_volume_claim is not None or each.ephemeral is not None for each in spec.volumes)


def _has_host_ports(spec: PodSpec) -> bool:
    return any(
        port.host_port or (port.container_port and spec.host_network) for each in spec.containers for port in each.ports
    )


def _has_other_scheduler(spec: PodSpec) -> bool:
    return spec.scheduler_name not in {"", _DEFAULT_SCHEDULER}


def _prefers(spec: PodSpec) -> bool:
    affinity = spec.affinity
    kinds = (affinity.node_affinity, affinity.pod_affinity, affinity.pod_anti_affinity)
    softly = any(each.when_unsatisfiable == "ScheduleAnyway" for each in spec.topology_spread_constraints)
    return softly or any(each is not None and each.preferred for each in kinds)


_FEATURES: Final[Mapping[str, Callable[[PodSpec], bool]]] = {
    f"affinity between pods is {_FEWER}": _is_between_pods,
    f"topology spread is {_FEWER}": _is_spread,
    f"where volumes can be used is {_FEWER}": _has_volumes,
    f"whether ports of the host are free is {_FEWER}": _has_host_ports,
    "being scheduled with its group or not at all is not simulated": lambda spec: spec.scheduling_group is not None,
    "another scheduler's decisions are not simulated, kube-scheduler's are": _has_other_scheduler,
    f"preferences among nodes are {_OTHER}": _prefers,
}
