"""What a pod needs from a node besides being let in, as far as it can be known before any node is looked at.

Source: scheduler plugin DynamicResources, PreFilter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.amounts import Amounts, pod_requests
from dra_sdk.tools.scheduling.cluster.claims import claim_key, is_owned
from dra_sdk.tools.scheduling.cluster.core import Pod
from dra_sdk.tools.scheduling.cluster.names import Key

_MOST_CONSUMERS: Final = 256
_BEST_ALTERNATIVE: Final = 8


class UnschedulableError(Exception):
    """The pod cannot run on any node; says why in half a sentence."""


@dataclass(frozen=True)
class Wish:
    """The claims of a pod by the names it has for them, the classes of its extended resources, and CPU and the like."""

    pod: Pod
    claims: Mapping[str, JSON]
    resources: Mapping[str, str]
    requests: Amounts

    @cached_property
    def to_allocate(self) -> dict[str, JSON]:
        """The claims that have no devices yet."""
        return {name: each for name, each in self.claims.items() if allocation_of(each) is None}

    @cached_property
    def allocated(self) -> dict[str, JSON]:
        """Those that have."""
        return {name: each for name, each in self.claims.items() if allocation_of(each) is not None}

    @cached_property
    def kind(self) -> str:
        """The same for all pods that, at one moment, would fit on the same nodes."""
        spec = self.pod.spec
        containers = [*spec.init_containers, *spec.containers] if self.resources else []
        return json.dumps(
            [
                [(name, each.get("spec")) for name, each in self.to_allocate.items()],
                [(name, *_reach(each)) for name, each in self.allocated.items()],
                [(name, str(amount)) for name, amount in self.requests.items()],
                [(each.restart_policy, each.resources.to_json()) for each in containers],
                [spec.node_selector, spec.affinity.to_json(), [each.to_json() for each in spec.tolerations]],
            ]
        )

    @cached_property
    def best_score(self) -> int:
        """The score of a node where each request gets its first alternative."""
        return sum(_BEST_ALTERNATIVE for _ in _lists(self.to_allocate))

    def score(self, allocations: Mapping[str, JSON]) -> int:
        """How good the alternatives are that a node offers; `allocations` by the pod's name for the claim."""
        taken = {
            (name, result["request"]) for name, each in allocations.items() for result in each["devices"]["results"]
        }
        return sum(
            _BEST_ALTERNATIVE - index
            for name, request in _lists(self.to_allocate)
            for index, alternative in enumerate(request["firstAvailable"])
            if (name, f"{request['name']}/{alternative['name']}") in taken
        )


def wish_of(pod: Pod, claims: Mapping[Key, JSON], classes: Mapping[str, JSON], resources: Mapping[str, str]) -> Wish:
    """The wish of a pod; UnschedulableError if no node could ever fulfil it.

    `resources` has the class behind each extended resource of the cluster.
    """
    if pod.spec.scheduling_gates:
        gates = [each.name for each in pod.spec.scheduling_gates]
        raise UnschedulableError(f"held back by scheduling gate{'s' if len(gates) > 1 else ''} {', '.join(gates)}")
    found = dict(_claims(pod, claims))
    for name, claim in found.items():
        _check(name, claim, pod, classes)
    requests = pod_requests(pod)
    return Wish(pod, found, {name: resources[name] for name in requests if name in resources}, requests)


def allocation_of(claim: JSON) -> JSON | None:
    """`status.allocation`."""
    found: JSON | None = (claim.get("status") or {}).get("allocation")
    return found


def skips_operations(claim: JSON) -> bool:
    """Whether any of its devices skips operations, which a node has to be able to leave out."""
    results = ((allocation_of(claim) or {}).get("devices") or {}).get("results") or ()
    return any(each.get("skipNodeOperations") for each in results)


def _reach(claim: JSON) -> tuple[JSON | None, bool]:
    """What decides on which nodes an allocated claim can be used."""
    return (allocation_of(claim) or {}).get("nodeSelector"), skips_operations(claim)


def consumers(claim: JSON) -> list[JSON]:
    """`status.reservedFor`."""
    return list((claim.get("status") or {}).get("reservedFor") or ())


def _claims(pod: Pod, claims: Mapping[Key, JSON]) -> Iterator[tuple[str, JSON]]:
    for entry in pod.spec.resource_claims:
        try:
            key = claim_key(pod, entry)
        except LookupError as error:
            raise UnschedulableError(f"claim {entry.name}: {error}") from error
        if key is None:
            continue
        claim = claims.get(key)
        if claim is None:
            raise UnschedulableError(f"claim {entry.name}: there is no ResourceClaim {key[1]} in namespace {key[0]}")
        if entry.resource_claim_template_name and not is_owned(claim, pod):
            raise UnschedulableError(f"claim {entry.name}: {key[1]} was not made for this pod")
        yield entry.name, claim


def _check(name: str, claim: JSON, pod: Pod, classes: Mapping[str, JSON]) -> None:
    if claim["metadata"].get("deletionTimestamp"):
        raise UnschedulableError(f"claim {name} is being deleted")
    users = consumers(claim)
    if len(users) >= _MOST_CONSUMERS and not any(each.get("uid") == pod.metadata.uid for each in users):
        raise UnschedulableError(f"claim {name} is reserved for {len(users)} pods already, more is not allowed")
    if allocation_of(claim) is None and (missing := missing_class(claim, classes)):
        raise UnschedulableError(f"claim {name}: {missing}")


def missing_class(claim: JSON, classes: Mapping[str, JSON]) -> str:
    """Which class a request of the claim names and nobody made, in half a sentence; nothing if all are there."""
    for request in claim["spec"].get("devices", {}).get("requests") or ():
        for alternative in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            wanted = (alternative or {}).get("deviceClassName")
            if wanted is not None and wanted not in classes:
                name = "/".join(filter(None, (request["name"], alternative.get("name"))))
                return f"request {name}: there is no DeviceClass {wanted}"
    return ""


def _lists(claims: Mapping[str, JSON]) -> Iterator[tuple[str, JSON]]:
    """The requests with alternatives, and the name of their claim."""
    for name, claim in claims.items():
        for request in claim["spec"].get("devices", {}).get("requests") or ():
            if request.get("firstAvailable"):
                yield name, request
