"""What a scheduler would consider and the simulation does not, and what has no effect with these feature gates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.texts import shortened
from dra_sdk.tools.scheduling.allocator import DeviceId
from dra_sdk.tools.scheduling.cluster.claim_controller import claim_consumers, claim_results
from dra_sdk.tools.scheduling.cluster.core_v1 import REQUIRED, pod_of
from dra_sdk.tools.scheduling.cluster.node_filter import rejection_reason
from dra_sdk.tools.scheduling.cluster.pod_groups import CLAIMS_GATE, GROUPS_GATE
from dra_sdk.tools.scheduling.cluster.priority_classes import missing_class
from dra_sdk.tools.scheduling.cluster.scheduling_outcome import PodPlacement
from dra_sdk.tools.scheduling.cluster.snapshot import (
    Snapshot,
    device_entries,
    display_name,
    grouped,
    newest_generation,
    object_key,
    slices_by_pool,
    value_at,
)

_SHOWN: Final = 5
_DEFAULT_SCHEDULER: Final = "default-scheduler"
_POD_AFFINITIES: Final = ("podAffinity", "podAntiAffinity")
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_FEWER_NODES: Final = "not simulated; a cluster may allow fewer nodes"
NO_PREEMPTION: Final = "kube-scheduler evicts no pods to free devices, though pods of lower priority have some"
_NO_DEVICES: Final = "no devices for"
_ANOTHER_NODE: Final = "not simulated; a cluster may choose another node"


def simulation_notes(snapshot: Snapshot, placements: Iterable[PodPlacement]) -> Iterator[str]:
    """Yield a sentence for each thing that is not simulated or has no effect; none about pods that already ran."""
    placements = tuple(placements)
    placed = [
        (display_name(placement.pod), snapshot.pods_by_key[placement.pod]["spec"], placement)
        for placement in placements
        if not placement.running
    ]
    for what, applies in _NOT_SIMULATED.items():
        if names := [name for name, spec, placement in placed if placement.scheduled and applies(spec)]:
            yield f"{_pod_names(names)}: {what}"
    yield from _pod_groups(snapshot)
    yield from _unpublished_devices(snapshot)
    yield from _ineffective_rules(snapshot)
    yield from _node_allocatable_devices(snapshot)
    yield from _unknown_priorities(snapshot)
    yield from _no_preemption_for_devices(snapshot, [placement for placement in placements if placement.node is None])


def _pod_groups(snapshot: Snapshot) -> Iterator[str]:
    """Yield what has no effect or is not simulated of PodGroups."""
    profile = snapshot.profile
    named = [display_name(object_key(pod)) for pod in snapshot.pods if (pod.get("spec") or {}).get("schedulingGroup")]
    if named and not profile.enabled(GROUPS_GATE):
        gate = f"feature gate {GROUPS_GATE} is off in Kubernetes {profile.version}"
        yield f"{_pod_names(named)}: schedulingGroup has no effect: {gate}"
    for group in snapshot.pod_groups:
        name = f"PodGroup {display_name(object_key(group))}"
        if group["spec"].get("resourceClaims") and not profile.enabled(CLAIMS_GATE):
            gate = f"feature gate {CLAIMS_GATE} is off in Kubernetes {profile.version}"
            yield f"{name}: resourceClaims have no effect: {gate}"
        if value_at(group, ("spec", "schedulingConstraints", "topology")):
            yield f"{name}: its topology constraints are {_FEWER_NODES}"


def _unpublished_devices(snapshot: Snapshot) -> Iterator[str]:
    """Yield devices that claims hold and no slice has, for example because a driver was removed."""
    held = [(claim, device) for claim in snapshot.claims for device in map(DeviceId.of, claim_results(claim))]
    unknown = {device for _, device in held}
    for raw_slice in snapshot.slices if unknown else ():
        unknown.difference_update(device for device, _ in device_entries(raw_slice))
    for claim, device in held:
        if device in unknown:
            yield f"claim {display_name(object_key(claim))} holds {device}, which is in no ResourceSlice"


def contradicting_slices(snapshot: Snapshot) -> Iterator[str]:
    """Yield the pools whose newest slices differ in `resourceSliceCount`: the order in which they arrive decides."""
    for (driver, pool), slices in slices_by_pool(snapshot.slices).items():
        newest = newest_generation(slices)
        counts = grouped(newest, lambda raw_slice: raw_slice["spec"]["pool"]["resourceSliceCount"])
        if len(counts) > 1:
            said = [
                f"{count} in {shortened([one['metadata']['name'] for one in some], 3)}"
                for count, some in counts.items()
            ]
            yield (
                f"slices of pool {driver}/{pool} contradict each other: resourceSliceCount is {' and '.join(said)}; "
                "whether the pool counts as complete depends on the order in which kube-scheduler sees them"
            )


def idle_daemon_sets(snapshot: Snapshot) -> Iterator[str]:
    """Yield the DaemonSets that select no node, with what is wrong with their claims all the same."""
    templates = {object_key(template) for template in snapshot.templates}
    made = {reference["uid"] for pod in snapshot.pods for reference in pod["metadata"].get("ownerReferences") or ()}
    for obj in snapshot.daemon_sets:
        template = pod_of({"spec": value_at(obj, ("spec", "template", "spec")) or {}})
        reasons = [rejection_reason(template, node) for node in snapshot.nodes]
        if made & {obj["metadata"].get("uid")} or not all(reasons):
            continue
        why = f": {shortened(list(dict.fromkeys(reasons)), _SHOWN)}" if reasons else ""
        name = display_name(object_key(obj))
        yield f"DaemonSet {name} selects no node, so it has no pod{why}"
        for entry in template.spec.resource_claims:
            wanted = entry.resource_claim_template_name
            if wanted and (object_key(obj)[0], wanted) not in templates:
                yield f"DaemonSet {name}: there is no ResourceClaimTemplate {wanted}"


def _ineffective_rules(snapshot: Snapshot) -> Iterator[str]:
    profile = snapshot.profile
    if not profile.enabled(profile.taint_rule_gate):
        for rule in snapshot.rules:
            gate = f"feature gate {profile.taint_rule_gate} is off in Kubernetes {profile.version}"
            yield f"DeviceTaintRule {rule['metadata']['name']} has no effect: {gate}"


def _node_allocatable_devices(snapshot: Snapshot) -> Iterator[str]:
    """Yield a note on devices that count as CPU, memory and the like of their node (KEP-5517)."""
    fields = ("nodeAllocatableResources", "nodeAllocatableResourceMappings")
    devices = (device for slice_ in snapshot.slices for device in slice_["spec"].get("devices") or ())
    if snapshot.profile.enabled("DRANodeAllocatableResources") and any(
        device.get(field) for device in devices for field in fields
    ):
        yield f"devices with node-allocatable resources: what they use of the node's CPU and memory is {_FEWER_NODES}"


def _no_preemption_for_devices(snapshot: Snapshot, unplaced: Iterable[PodPlacement]) -> Iterator[str]:
    """Yield a note on pods that lack devices while pods of lower priority have some."""
    unplaced = [obj for obj in unplaced if _NO_DEVICES in obj.reason]
    if not unplaced:
        return
    pods = {key: pod_of(consumer).spec for key, consumer in snapshot.pods_by_key.items()}
    holders = {
        (object_key(claim)[0], str(consumer["name"]))
        for claim in snapshot.claims
        if claim_results(claim)
        for consumer in claim_consumers(claim)
    }
    lowest = min((pods[key].effective_priority for key in holders & pods.keys()), default=None)
    names = [
        display_name(placement.pod)
        for placement in unplaced
        if lowest is not None and pods[placement.pod].effective_priority > lowest
    ]
    if names:
        yield f"{_pod_names(names)}: {NO_PREEMPTION}; `dra-sdk explain --make-room POD` plans evictions"


def _unknown_priorities(snapshot: Snapshot) -> Iterator[str]:
    """Yield the PriorityClasses that pods name and that are not given; a server would refuse such pods."""
    for name, pods in grouped(snapshot.pods, partial(missing_class, snapshot=snapshot)).items():
        if name:
            names = [display_name(object_key(pod)) for pod in pods]
            yield f"{_pod_names(names)}: PriorityClass {name} is not given, so the priority is taken as 0"


def _pod_names(names: list[str]) -> str:
    return f"pod{'s' if len(names) > 1 else ''} {shortened(names, _SHOWN)}"


def _has_pod_affinity(spec: JSON) -> bool:
    return any(value_at(spec, ("affinity", kind, REQUIRED)) for kind in _POD_AFFINITIES)


def _has_volumes(spec: JSON) -> bool:
    kinds = ("persistentVolumeClaim", "ephemeral")
    return any(value_at(volume, (kind,)) is not None for volume in spec.get("volumes") or () for kind in kinds)


def _has_host_ports(spec: JSON) -> bool:
    return any(
        value_at(port, ("hostPort",)) or (value_at(port, ("containerPort",)) and spec.get("hostNetwork"))
        for container in spec.get("containers") or ()
        for port in value_at(container, ("ports",)) or ()
    )


def _has_other_scheduler(spec: JSON) -> bool:
    return spec.get("schedulerName") not in {None, "", _DEFAULT_SCHEDULER}


def _has_spread(spec: JSON, when_unsatisfiable: str) -> bool:
    constraints = spec.get("topologySpreadConstraints") or ()
    return any(value_at(constraint, ("whenUnsatisfiable",)) == when_unsatisfiable for constraint in constraints)


def _has_preferences(spec: JSON) -> bool:
    kinds = ("nodeAffinity", *_POD_AFFINITIES)
    return _has_spread(spec, "ScheduleAnyway") or any(value_at(spec, ("affinity", kind, _PREFERRED)) for kind in kinds)


_NOT_SIMULATED: Final[Mapping[str, Callable[[JSON], bool]]] = {
    f"affinity between pods (spec.affinity) is {_FEWER_NODES}": _has_pod_affinity,
    f"topology spread (spec.topologySpreadConstraints) is {_FEWER_NODES}": partial(
        _has_spread, when_unsatisfiable="DoNotSchedule"
    ),
    f"on which nodes volumes (spec.volumes) can be used is {_FEWER_NODES}": _has_volumes,
    f"whether host ports (ports[].hostPort) are free is {_FEWER_NODES}": _has_host_ports,
    "its scheduler (spec.schedulerName) is not simulated; it is scheduled as by kube-scheduler": _has_other_scheduler,
    f"preferences among nodes (preferred terms, ScheduleAnyway) are {_ANOTHER_NODE}": _has_preferences,
}
