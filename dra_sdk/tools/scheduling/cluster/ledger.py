"""The cluster while it is being scheduled: who has which devices, and how full the nodes are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator import Allocated
from dra_sdk.tools.scheduling.cluster.amounts import Room, pod_requests
from dra_sdk.tools.scheduling.cluster.attempts import EXTENDED, Fit
from dra_sdk.tools.scheduling.cluster.claims import FINALIZER, consumer, deallocated, used_claims, with_status
from dra_sdk.tools.scheduling.cluster.core import Node, Pod
from dra_sdk.tools.scheduling.cluster.names import Key, key_of
from dra_sdk.tools.scheduling.cluster.snapshot import Snapshot
from dra_sdk.tools.scheduling.cluster.wishes import Wish, allocation_of, consumers


class Ledger:
    """Starts as a snapshot; each change is written down here and nowhere else. `after` is the snapshot at the end."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.claims = dict(snapshot.claims_by_key)
        self.pods = dict(snapshot.pods_by_key)
        self.imagined = dict(snapshot.imagined)
        self.allocated = Allocated.of(snapshot.claims)
        self.room = Room(Node.model_validate(each) for each in snapshot.nodes)

    def after(self) -> Snapshot:
        """The snapshot as it has become."""
        return replace(
            self._snapshot,
            claims=tuple(self.claims.values()),
            pods=tuple(self.pods.values()),
            imagined=self.imagined,
        )

    def occupy(self, pod: Pod) -> None:
        """A pod that is on its node already."""
        self.room.add(pod.spec.node_name, pod_requests(pod))

    def bind(self, wish: Wish, fit: Fit) -> tuple[Key, ...]:
        """Put a pod on a node and give it its devices; the claims it uses."""
        key = key_of_pod(wish.pod)
        for name, claim in {**wish.allocated, **fit.claims}.items():
            self._reserve(claim, fit.allocations.get(name), consumer(wish.pod))
        as_devices = {name for name in wish.resources if not self.room.provides(fit.node, name)}
        self.room.add(fit.node, {name: each for name, each in wish.requests.items() if name not in as_devices})
        pod = self.pods[key] | {"spec": self.pods[key]["spec"] | {"nodeName": fit.node}}
        if EXTENDED in fit.claims:
            name = fit.claims[EXTENDED]["metadata"]["name"]
            status = {"requestMappings": list(fit.mappings), "resourceClaimName": name}
            pod = with_status(pod, extendedResourceClaimStatus=status)
        self.pods[key] = pod
        return tuple(used_claims(Pod.model_validate(pod)))

    def imagine(self, key: Key, node: str, allocation: JSON) -> None:
        """Give a claim devices although no pod uses it."""
        self._reserve(self.claims[key], allocation, None)
        self.imagined[key] = node

    def release(self, wish: Wish, names: Iterable[str]) -> int:
        """Take the devices from these claims of a pod, unless others use them; how many lost theirs.

        So that they are allocated anew where the pod can run. Source: scheduler plugin DynamicResources, PostFilter.
        """
        released = 0
        for claim in (wish.allocated[name] for name in names):
            if all(each.get("uid") == wish.pod.metadata.uid for each in consumers(claim)):
                self.allocated.remove(claim)
                self.claims[key_of(claim)] = deallocated(claim)
                self.imagined.pop(key_of(claim), None)
                released += 1
        return released

    def _reserve(self, claim: JSON, allocation: JSON | None, user: JSON | None) -> None:
        """Write down the allocation, if it is new, and who uses it."""
        if allocation is not None:
            finalizers = dict.fromkeys([*claim["metadata"].get("finalizers", ()), FINALIZER])
            claim = claim | {"metadata": claim["metadata"] | {"finalizers": list(finalizers)}}
            claim = with_status(claim, allocation=allocation)
            self.allocated.add(claim)
        if user is not None and user not in consumers(claim):
            claim = with_status(claim, reservedFor=[*consumers(claim), user])
        self.claims[key_of(claim)] = claim

    def is_allocated(self, key: Key) -> bool:
        """Whether a claim exists and has its devices."""
        return key in self.claims and allocation_of(self.claims[key]) is not None


def key_of_pod(pod: Pod) -> Key:
    """Namespace and name of a pod."""
    return pod.metadata.namespace, pod.metadata.name
