"""What is explained: a claim or all claims of a pod, in the cluster as it is once everything else is scheduled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dra_sdk.errors import DraError
from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator import AllocationError, Features
from dra_sdk.tools.scheduling.allocator.nodes import matches
from dra_sdk.tools.scheduling.cluster.amounts import Room, pod_requests
from dra_sdk.tools.scheduling.cluster.claims import deallocated, is_finished
from dra_sdk.tools.scheduling.cluster.core import Node, Pod
from dra_sdk.tools.scheduling.cluster.extended import classes_of_resources, extended_claim
from dra_sdk.tools.scheduling.cluster.names import Key, key_of, shown
from dra_sdk.tools.scheduling.cluster.outcome import Outcome, Placement
from dra_sdk.tools.scheduling.cluster.places import obstacle
from dra_sdk.tools.scheduling.cluster.snapshot import Snapshot
from dra_sdk.tools.scheduling.cluster.wishes import UnschedulableError, Wish, allocation_of, wish_of
from dra_sdk.tools.scheduling.explain.setting import Setting


class ExplainError(DraError):
    """There is no such claim, pod or node."""


@dataclass(frozen=True)
class Subject:
    """The cluster after scheduling, and the pod in question, None for claims that no pod uses.

    `refused` says why no node can ever fulfil the pod's wish. `claims` are those it waits for, in its order.
    """

    outcome: Outcome
    pod: Pod | None
    placement: Placement | None
    claims: tuple[JSON, ...]
    refused: str = ""

    @property
    def snapshot(self) -> Snapshot:
        """The cluster after scheduling."""
        return self.outcome.snapshot

    def setting(self, claims: Sequence[JSON], nodes: Sequence[JSON]) -> Setting:
        """Where these claims are to be allocated together: all others keep their devices."""
        keys = {key_of(each) for each in claims}
        after = self.snapshot
        holders = tuple(each for each in after.claims if key_of(each) not in keys and allocation_of(each))
        features = Features.of(after.profile)
        wanted = tuple(map(deallocated, claims))
        return Setting(tuple(nodes), after.slices, after.rules, after.classes_by_name, features, wanted, holders)

    def obstacles(self, nodes: Sequence[JSON]) -> Mapping[str, str]:
        """Why the pod cannot run on some nodes, whatever devices they have."""
        if self.pod is None or (self.placement is not None and self.placement.node):
            return {}
        room = _room(self.snapshot)
        wish = _wish(self.snapshot, self.pod)
        found = {each["metadata"]["name"]: _obstacle(self.pod, wish, room, each) for each in nodes}
        return {name: text for name, text in found.items() if text}


def subject_of_claim(outcome: Outcome, key: Key) -> Subject:
    """The claim and who uses it; ExplainError if there is no such claim."""
    claim = outcome.snapshot.claims_by_key.get(key)
    if claim is None:
        raise ExplainError(f"there is no claim {shown(key)}; claims are: {_listed(outcome.snapshot.claims_by_key)}")
    placement = next((each for each in outcome.pods if key in each.claims), None)
    if placement is None:
        return Subject(outcome, None, None, (claim,))
    found = subject_of_pod(outcome, placement.pod)
    return (
        found if any(key_of(each) == key for each in found.claims) else Subject(outcome, found.pod, placement, (claim,))
    )


def subject_of_pod(outcome: Outcome, key: Key) -> Subject:
    """A pod and its claims; ExplainError if there is no such pod."""
    obj, placement = outcome.snapshot.pods_by_key.get(key), outcome.pods_by_key.get(key)
    if obj is None or placement is None:
        raise ExplainError(f"there is no pod {shown(key)} that waits or runs; pods are: {_listed(outcome.pods_by_key)}")
    pod = Pod.model_validate(obj)
    known = outcome.snapshot.claims_by_key
    own = tuple(known[each] for each in placement.claims if each in known)
    if placement.node is not None:
        return Subject(outcome, pod, placement, own)
    try:
        wish = _wish_of(outcome.snapshot, pod)
    except (UnschedulableError, AllocationError) as error:
        return Subject(outcome, pod, placement, own, str(error))
    extended = (extended_claim(pod, wish.resources)[0],) if wish.resources else ()
    return Subject(outcome, pod, placement, (*own, *extended))


def nodes_of(snapshot: Snapshot, name: str | None) -> tuple[JSON, ...]:
    """All nodes, or the one of that name; ExplainError if there is none."""
    if name is None:
        return snapshot.nodes
    if name not in snapshot.nodes_by_name:
        raise ExplainError(f"there is no node {name}; nodes are: {', '.join(snapshot.nodes_by_name) or 'none'}")
    return (snapshot.nodes_by_name[name],)


def _listed(keys: Mapping[Key, object], limit: int = 12) -> str:
    names = [shown(each) for each in keys]
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return (", ".join(names[:limit]) + more) or "none"


def _wish_of(snapshot: Snapshot, pod: Pod) -> Wish:
    features = Features.of(snapshot.profile)
    resources = classes_of_resources(snapshot.classes) if features.extended_resources else {}
    return wish_of(pod, snapshot.claims_by_key, snapshot.classes_by_name, resources)


def _wish(snapshot: Snapshot, pod: Pod) -> Wish | None:
    try:
        return _wish_of(snapshot, pod)
    except (UnschedulableError, AllocationError):
        return None


def _room(snapshot: Snapshot) -> Room:
    room = Room(Node.model_validate(each) for each in snapshot.nodes)
    for each in snapshot.pods:
        pod = Pod.model_validate(each)
        if pod.spec.node_name and not is_finished(pod):
            room.add(pod.spec.node_name, pod_requests(pod))
    return room


def _obstacle(pod: Pod, wish: Wish | None, room: Room, obj: JSON) -> str:
    node = Node.model_validate(obj)
    if found := obstacle(pod, node, obj):
        return found
    if wish is None:
        return ""
    devices = {name for name in wish.resources if not room.provides(node.metadata.name, name)}
    if lacking := room.lacking(node.metadata.name, wish.requests, devices):
        return f"not enough {', '.join(lacking)}"
    return ", ".join(f"claim {name} has its devices elsewhere" for name in _elsewhere(wish, obj))


def _elsewhere(wish: Wish, node: JSON) -> Iterator[str]:
    for name, claim in wish.allocated.items():
        selector = (allocation_of(claim) or {}).get("nodeSelector")
        if selector is not None and not matches(selector, node):
            yield name
