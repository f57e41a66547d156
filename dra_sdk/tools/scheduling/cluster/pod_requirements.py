"""What a pod needs from a node, as far as it is known before any node is examined.

Source: scheduler plugin DynamicResources, PreFilter; component-helpers, PodRequests.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.model.quantity import Quantity
from dra_sdk.tools.scheduling.cluster.claim_controller import (
    MAX_CONSUMERS,
    claim_allocation,
    claim_consumers,
    claim_key,
    claim_results,
    is_made_for,
    is_reserved_for,
)
from dra_sdk.tools.scheduling.cluster.core_v1 import Pod, ResourceRequirements
from dra_sdk.tools.scheduling.cluster.generated_claims import refusal_key
from dra_sdk.tools.scheduling.cluster.snapshot import ObjectKey

ResourceAmounts = dict[str, Fraction]
_POD_LEVEL: Final = ("cpu", "memory", "hugepages-")
_FIRST_ALTERNATIVE_SCORE: Final = 8


def pod_requests(pod: Pod) -> ResourceAmounts:
    """Return the requests of a pod: those of all its containers, or of its largest init container if that is more."""
    return _pod_amounts(pod, lambda resources: resources.effective_requests)


def pod_limits(pod: Pod) -> ResourceAmounts:
    """Return the limits of a pod, likewise."""
    return _pod_amounts(pod, lambda resources: resources.limits)


def _pod_amounts(pod: Pod, amounts_of: Callable[[ResourceRequirements], Mapping[str, Quantity]]) -> ResourceAmounts:
    total: ResourceAmounts = defaultdict(Fraction)
    sidecars: ResourceAmounts = defaultdict(Fraction)
    init_phase: ResourceAmounts = defaultdict(Fraction)
    for container in pod.spec.containers:
        _add(total, amounts_of(container.resources))
    for container in pod.spec.init_containers:
        wanted = amounts_of(container.resources)
        if container.is_sidecar:
            _add(sidecars, wanted)
            _raise_to(init_phase, sidecars)
        else:
            with_sidecars = defaultdict(Fraction, sidecars)
            _add(with_sidecars, wanted)
            _raise_to(init_phase, with_sidecars)
    for name, amount in sidecars.items():
        total[name] += amount
    _raise_to(total, init_phase)
    for name, quantity in amounts_of(pod.spec.resources).items():
        if name.startswith(_POD_LEVEL):
            total[name] = quantity.value
    _add(total, pod.spec.overhead)
    return {name: amount for name, amount in total.items() if amount}


def _add(total: ResourceAmounts, amounts: Mapping[str, Quantity]) -> None:
    for name, quantity in amounts.items():
        total[name] += quantity.value


def _raise_to(total: ResourceAmounts, others: Mapping[str, Fraction]) -> None:
    for name, amount in others.items():
        total[name] = max(total[name], amount)


class UnschedulableError(Exception):
    """The pod cannot run on any node; the message says why, without naming the pod."""


@dataclass(frozen=True)
class PodRequirements:
    """What a pod needs from a node.

    pod: the pod.
    claims: its claims, by the names that the pod has for them.
    extended_resources: the DeviceClass of each extended resource that it requests.
    requests: its resource requests, extended resources included.
    """

    pod: Pod
    claims: Mapping[str, JSON]
    extended_resources: Mapping[str, str]
    requests: ResourceAmounts

    @cached_property
    def unallocated_claims(self) -> dict[str, JSON]:
        """The claims without an allocation."""
        return {name: claim for name, claim in self.claims.items() if claim_allocation(claim) is None}

    @cached_property
    def allocated_claims(self) -> dict[str, JSON]:
        """The claims with an allocation."""
        return {name: claim for name, claim in self.claims.items() if claim_allocation(claim) is not None}

    @cached_property
    def equivalence_key(self) -> str:
        """Text that is equal for pods that fit on the same nodes."""
        spec = self.pod.spec
        containers = [*spec.init_containers, *spec.containers] if self.extended_resources else []
        return json.dumps(
            [
                [(name, claim.get("spec")) for name, claim in self.unallocated_claims.items()],
                [(name, *_usable_nodes(claim)) for name, claim in self.allocated_claims.items()],
                [(name, str(amount)) for name, amount in self.requests.items()],
                [(container.restart_policy, container.resources.to_json()) for container in containers],
                [spec.node_selector, spec.affinity.to_json()],
                spec.tolerations,
            ]
        )

    @cached_property
    def best_score(self) -> int:
        """The score of a node where each request gets its first alternative."""
        return sum(_FIRST_ALTERNATIVE_SCORE for _ in _prioritized_requests(self.unallocated_claims))

    def score(self, allocations: Mapping[str, JSON]) -> int:
        """Return how good the alternatives in these allocations are, by the pod's names for the claims."""
        allocated = {
            (name, result["request"])
            for name, allocation in allocations.items()
            for result in allocation["devices"]["results"]
        }
        return sum(
            _FIRST_ALTERNATIVE_SCORE - index
            for name, request in _prioritized_requests(self.unallocated_claims)
            for index, alternative in enumerate(request["firstAvailable"])
            if (name, f"{request['name']}/{alternative['name']}") in allocated
        )


def requirements_of(
    pod: Pod,
    claims: Mapping[ObjectKey, JSON],
    classes: Mapping[str, JSON],
    resources: Mapping[str, str],
    refusals: Mapping[str, str] | None = None,
) -> PodRequirements:
    """Return the requirements of a pod; UnschedulableError if no node could ever meet them.

    resources: the DeviceClass of each extended resource of the cluster.
    refusals: see `QuotaAdmission`.
    """
    refusals = refusals or {}
    if pod.metadata.uid in refusals:
        raise UnschedulableError(refusals[pod.metadata.uid])
    if pod.spec.scheduling_gates:
        gates = [gate.get("name") or "" for gate in pod.spec.scheduling_gates]
        raise UnschedulableError(f"blocked by scheduling gate{'s' if len(gates) > 1 else ''} {', '.join(gates)}")
    pod_claims = dict(_pod_claims(pod, claims, refusals))
    for name, claim in pod_claims.items():
        _check_claim(name, claim, pod, classes)
    requests = pod_requests(pod)
    return PodRequirements(pod, pod_claims, {name: resources[name] for name in requests if name in resources}, requests)


def has_skipped_operations(claim: JSON) -> bool:
    """Return whether any allocated device skips operations, which the node then has to support."""
    return any(result.get("skipNodeOperations") for result in claim_results(claim))


def _usable_nodes(claim: JSON) -> tuple[JSON | None, bool]:
    """Return what decides on which nodes an allocated claim can be used."""
    return (claim_allocation(claim) or {}).get("nodeSelector"), has_skipped_operations(claim)


def _pod_claims(pod: Pod, claims: Mapping[ObjectKey, JSON], refusals: Mapping[str, str]) -> Iterator[tuple[str, JSON]]:
    for entry in pod.spec.resource_claims:
        try:
            key = claim_key(pod, entry)
        except LookupError as error:
            reason = refusals.get(refusal_key(pod, entry.name), str(error))
            raise UnschedulableError(f"claim {entry.name}: {reason}") from error
        if key is None:
            continue
        claim = claims.get(key)
        if claim is None:
            raise UnschedulableError(f"claim {entry.name}: there is no ResourceClaim {key[1]} in namespace {key[0]}")
        if claim["metadata"].get("uid") in refusals:
            raise UnschedulableError(f"claim {entry.name}: {refusals[claim['metadata']['uid']]}")
        if entry.resource_claim_template_name and not is_made_for(claim, pod):
            raise UnschedulableError(f"claim {entry.name}: {key[1]} was not made for this pod")
        yield entry.name, claim


def _check_claim(name: str, claim: JSON, pod: Pod, classes: Mapping[str, JSON]) -> None:
    if claim["metadata"].get("deletionTimestamp"):
        raise UnschedulableError(f"claim {name} is being deleted")
    consumers = claim_consumers(claim)
    if len(consumers) >= MAX_CONSUMERS and not is_reserved_for(claim, pod):
        raise UnschedulableError(f"claim {name} is already reserved for {len(consumers)} pods, and no more are allowed")
    if claim_allocation(claim) is None and (missing := missing_class(claim, classes)):
        raise UnschedulableError(f"claim {name}: {missing}")


def missing_class(claim: JSON, classes: Mapping[str, JSON]) -> str:
    """Return which request names a class that does not exist, as text; empty if all classes exist."""
    for request in claim["spec"].get("devices", {}).get("requests") or ():
        for alternative in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            wanted = (alternative or {}).get("deviceClassName")
            if wanted is not None and wanted not in classes:
                name = "/".join(filter(None, (request["name"], alternative.get("name"))))
                return f"request {name}: there is no DeviceClass {wanted}"
    return ""


def _prioritized_requests(claims: Mapping[str, JSON]) -> Iterator[tuple[str, JSON]]:
    """Yield the requests with `firstAvailable`, with the name of their claim."""
    for name, claim in claims.items():
        for request in claim["spec"].get("devices", {}).get("requests") or ():
            if request.get("firstAvailable"):
                yield name, request
