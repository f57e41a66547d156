"""A case in the simulator: what its API server accepts and stores, and what its scheduler does with a pod."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from dra_sdk.tools.scheduling.allocator import (
    OPTIONAL_NODE_OPERATIONS,
    AllocatedState,
    AllocationError,
    Allocator,
    InvalidPoolsError,
    Inventory,
    SchedulerFeatures,
)
from dra_sdk.tools.scheduling.allocator.node_selection import declares_feature, matches_node_selector
from dra_sdk.tools.scheduling.cluster import Snapshot, schedule
from dra_sdk.tools.simulator.objects import ObjectStore, WriteOptions
from dra_sdk.tools.simulator.resources import server_catalog
from dra_sdk.tools.simulator.statuses import StatusError, bad_request
from dra_sdk.tools.simulator.strategy import Strategy
from dra_sdk.wire.profile import ServerProfile
from tests.cluster.differential.api import Refusal, collection, refusal
from tests.cluster.differential.case import JSON, PodPlan


@dataclass(frozen=True)
class Prospect:
    """What the scheduler should do with a pod.

    fitting: for each node that fits, the allocations of the pod's claims.
    error: why the pod cannot be scheduled at all; empty if there is no error.
    reasons: for each other node, why it does not fit.
    """

    fitting: dict[str, dict[str, JSON]] = field(default_factory=dict)
    error: str = ""
    reasons: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Placed:
    """What the simulated scheduler did with a pod.

    node: the node that the pod got; None if it got none.
    allocations: what its claims got.
    extended: the claim that the scheduler made for its extended resources.
    reason: why the pod got no node.
    """

    node: str | None
    allocations: dict[str, JSON] = field(default_factory=dict)
    extended: JSON | None = None
    reason: str = ""


class Ours:
    """One case: `create` each object; then, for each pod, ask for its `prospect` and store its real allocations."""

    def __init__(self, profile: ServerProfile, nodes: Iterable[JSON], namespaces: Iterable[JSON]) -> None:
        self._profile, self._features = profile, SchedulerFeatures.of(profile)
        self._store = ObjectStore(server_catalog(profile))
        Strategy(self._store, profile).install()
        self._nodes = {node["metadata"]["name"]: node for node in nodes}
        self._namespaces = list(namespaces)
        for each in self._namespaces:
            self._store.create(self._store.catalog["namespaces"], copy.deepcopy(each))
        self._stored: dict[str, list[JSON]] = {}
        self._claims: dict[tuple[str, str], JSON] = {}

    def create(self, obj: JSON) -> JSON | Refusal:
        """Creates an object; returns it as stored, or why it is refused."""
        group, version, plural = _address(obj)
        served = self._store.catalog.find(group, version, plural)
        if served is None and obj["kind"] == "DeviceTaintRule":  # of several served versions, the simulator has one
            served = next((each for each in self._store.catalog if each.plural == plural), None)
        if served is None:  # the real server may serve more beta APIs, which is a setting
            return copy.deepcopy(obj)
        namespace = obj["metadata"].get("namespace", "")
        try:
            wanted = copy.deepcopy(obj) | {"apiVersion": f"{served.group}/{served.version}" if served.group else "v1"}
            made = self._store.create(served, wanted, namespace, options=WriteOptions(unknown=_refuse_unknown)).copy()
        except StatusError as error:
            return refusal(error.status)
        if obj["kind"] == "ResourceClaim":
            self._claims[namespace, obj["metadata"]["name"]] = made
        self._stored.setdefault(obj["kind"], []).append(made)
        return made

    def has(self, plan: PodPlan) -> bool:
        """Returns whether all objects that a pod refers to were accepted."""
        claims = all((plan.namespace, name) in self._claims for name in plan.claims)
        return claims and self._templates.keys() >= set(plan.templates)

    def generate_claims(self, plan: PodPlan) -> None:
        """Makes the claims from the templates of a pod."""
        for name in plan.templates:
            metadata = {"name": f"{plan.name}-{name}", "namespace": plan.namespace}
            spec = self._templates[name]["spec"].get("spec") or {}
            claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}
            self._claims[plan.namespace, metadata["name"]] = claim

    def allocated(self, plan: PodPlan, allocations: dict[str, JSON], extended: JSON | None) -> None:
        """Stores the real allocations of a pod's claims, and the claim that was made for its extended resources."""
        if extended is not None:
            self._claims[plan.namespace, extended["metadata"]["name"]] = extended
        reserved = [{"resource": "pods", "name": plan.name, "uid": plan.name}]
        for name, allocation in allocations.items():
            key = (plan.namespace, name)
            status = {"allocation": allocation, "reservedFor": reserved}
            self._claims[key] = {**self._claims[key], "status": status}

    def decided(self) -> bool:
        """Returns whether the real scheduler always decides in the same way.

        If the slices of a pool disagree about their number, it uses the number of the slice that it sees first.
        """
        counts: dict[tuple[str, str, int], set[int]] = {}
        for each in self._of_kind("ResourceSlice"):
            pool = each["spec"]["pool"]
            key = (each["spec"]["driver"], pool["name"], pool.get("generation", 0))
            counts.setdefault(key, set()).add(pool["resourceSliceCount"])
        return all(len(each) == 1 for each in counts.values())

    @property
    def exact(self) -> bool:
        """Whether the real scheduler takes devices in a fixed order.

        Its oldest allocator, which it uses without the newer features, tries pools in random order.
        """
        return self._features.variant != "stable"

    def prospect(self, plan: PodPlan, pod: JSON, nodes: Iterable[str]) -> Prospect:
        """Returns what the scheduler would do with a pod on these nodes."""
        if plan.extended:
            placed = {name: self.placed(plan, pod, [name]) for name in nodes}
            fitting = {name: each.allocations for name, each in placed.items() if each.node}
            return Prospect(fitting, "", {name: each.reason for name, each in placed.items() if not each.node})
        claims = {name: self._claims[plan.namespace, name] for name in plan.claim_names()}
        open_claims = {name: claim for name, claim in claims.items() if not _allocation(claim)}
        if missing := [name for claim in open_claims.values() for name in _classes(claim) if name not in self._classes]:
            return Prospect(reasons=dict.fromkeys(nodes, f"class {missing[0]} does not exist"))
        known = {name: allocation for name, claim in claims.items() if (allocation := _allocation(claim))}
        found = Prospect()
        for name in nodes:
            node = self._nodes[name]
            try:
                given = self._allocate(node, list(open_claims.values()))
            except InvalidPoolsError as error:
                found.reasons[name] = str(error)
                continue
            except AllocationError as error:
                return Prospect(error=str(error))
            if given is None or not all(self._reaches(each, node) for each in known.values()):
                found.reasons[name] = "does not fit" if given is None else "an allocation is not available here"
                continue
            found.fitting[name] = {**known, **dict(zip(open_claims, given, strict=True))}
        return found

    def placed(self, plan: PodPlan, pod: JSON, nodes: Iterable[str] | None = None) -> Placed:
        """Returns what the simulated scheduler does with a pod, on all nodes or on some.

        It does not see other pods of the case, but the devices of their claims are taken.
        """
        own = {(plan.namespace, name) for name in plan.claims}
        snapshot = Snapshot(
            nodes=tuple(node for name, node in self._nodes.items() if nodes is None or name in nodes),
            slices=tuple(self._of_kind("ResourceSlice")),
            classes=tuple(self._of_kind("DeviceClass")),
            claims=tuple(claim for key, claim in self._claims.items() if key in own or _allocation(claim)),
            templates=tuple(self._of_kind("ResourceClaimTemplate")),
            pods=(pod,),
            rules=tuple(self._of_kind("DeviceTaintRule")),
            namespaces=tuple(self._namespaces),
            profile=self._profile,
        )
        outcome = schedule(snapshot)
        placement = outcome.pods_by_key[plan.namespace, plan.name]
        if placement.node is None:
            return Placed(None, reason=placement.reason)
        claims = zip(plan.claim_names(), placement.claims, strict=not plan.extended)
        allocations = {name: outcome.claims_by_key[key].allocation or {} for name, key in claims}
        return Placed(placement.node, allocations, _extended(plan, outcome.snapshot))

    def _allocate(self, node: JSON, claims: list[JSON]) -> list[JSON] | None:
        return self._allocator.allocate(node, claims, AllocatedState.of(self._claims.values())) if claims else []

    def _reaches(self, allocation: JSON, node: JSON) -> bool:
        selector = allocation.get("nodeSelector")
        skipped = any(each.get("skipNodeOperations") for each in allocation["devices"].get("results") or ())
        if (
            skipped
            and self._features.behaviour.knows_1_37_fields
            and not declares_feature(node, OPTIONAL_NODE_OPERATIONS)
        ):
            return False
        return selector is None or matches_node_selector(selector, node)

    @cached_property
    def _allocator(self) -> Allocator:
        inventory = Inventory(self._of_kind("ResourceSlice"), self._features, self._of_kind("DeviceTaintRule"))
        return Allocator(inventory, self._classes)

    @cached_property
    def _classes(self) -> dict[str, JSON]:
        return {each["metadata"]["name"]: each for each in self._of_kind("DeviceClass")}

    @property
    def _templates(self) -> dict[str, JSON]:
        return {each["metadata"]["name"]: each for each in self._of_kind("ResourceClaimTemplate")}

    def _of_kind(self, kind: str) -> list[JSON]:
        return self._stored.get(kind, [])


def _address(obj: JSON) -> tuple[str, str, str]:
    group, _, version = obj["apiVersion"].rpartition("/")
    return group, version, collection(obj["kind"]).rpartition("/")[2]


def _refuse_unknown(paths: list[str]) -> None:
    """Refuses unknown fields, as a server does with fieldValidation=Strict."""
    raise bad_request(f"unknown fields {', '.join(paths)}")


def _extended(plan: PodPlan, after: Snapshot) -> JSON | None:
    status = after.pods_by_key[plan.namespace, plan.name].get("status") or {}
    if made := status.get("extendedResourceClaimStatus"):
        claim = after.claims_by_key[plan.namespace, made["resourceClaimName"]]
        return {**claim, "mappings": made["requestMappings"]}
    return None


def _allocation(claim: JSON) -> JSON | None:
    return (claim.get("status") or {}).get("allocation")


def _classes(claim: JSON) -> list[str]:
    requests = (claim["spec"].get("devices") or {}).get("requests") or []
    return [
        each["deviceClassName"]
        for request in requests
        for each in (request.get("exactly"), *(request.get("firstAvailable") or []))
        if each
    ]
