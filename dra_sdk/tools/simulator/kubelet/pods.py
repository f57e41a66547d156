"""Pods as far as claims go: which claims a pod refers to, which requests its containers ask for, what they get.

Pods and claims are raw API objects. Source: k8s.io/dynamic-resource-allocation resourceclaim; KEP-4381.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dra_sdk.tools.simulator.kubelet.claims import ClaimInfo
from dra_sdk.tools.simulator.kubelet.errors import PodClaimError
from dra_sdk.tools.simulator.kubelet.records import ClaimRef

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dra_sdk.model import JSON
    from dra_sdk.tools.simulator.kubelet.records import PreparedDevice


EXTENDED = "<extended-resources>"


@dataclass(frozen=True)
class PodClaim:
    """One entry of a pod's `spec.resourceClaims`: its name in the pod, and the ResourceClaim it stands for.

    `generated` tells that the claim came from a template, so the pod must be its owner. The claim that the scheduler
    made for the pod's extended resources has no name in the pod; it goes by `EXTENDED`.
    """

    name: str
    claim: str
    generated: bool


@dataclass(frozen=True)
class ContainerRequest:
    """One entry of a container's `resources.claims`; `request` "" asks for the whole claim."""

    claim: str
    request: str


@dataclass(frozen=True)
class RunningPod:
    """What a pod got. `devices` are those of each of its claims, by the claim's name in the pod."""

    namespace: str
    name: str
    uid: str
    claims: dict[str, ClaimRef]
    devices: dict[str, tuple[PreparedDevice, ...]]
    containers: dict[str, tuple[ContainerRequest, ...]]

    def cdi_ids(self, claim: str, request: str = "") -> tuple[str, ...]:
        """The CDI ids that a container gets for one request of a claim (by its name in the pod), or for all of it."""
        found = [device for device in self.devices[claim] if device.serves(request)]
        return tuple(cdi_id for device in found for cdi_id in device.cdi_ids)

    def container_cdi_ids(self, container: str) -> tuple[str, ...]:
        """The CDI ids that a container gets, in the order in which the runtime is given them."""
        return tuple(
            cdi_id for wanted in self.containers[container] for cdi_id in self.cdi_ids(wanted.claim, wanted.request)
        )


def pod_claims(pod: JSON) -> list[PodClaim]:
    """The claims a pod refers to; `PodClaimError` where a claim from a template does not exist yet."""
    statuses = {entry["name"]: entry for entry in pod.get("status", {}).get("resourceClaimStatuses", [])}
    found = []
    for entry in pod["spec"].get("resourceClaims", []):
        name = entry["name"]
        if entry.get("resourceClaimName"):
            found.append(PodClaim(name, entry["resourceClaimName"], generated=False))
        elif name not in statuses:
            why = f"pod {_key(pod)}: ResourceClaim not created yet for {name}"
            raise PodClaimError("claim-exists", why, claim=name)
        elif statuses[name].get("resourceClaimName"):
            found.append(PodClaim(name, statuses[name]["resourceClaimName"], generated=True))
        # Otherwise the pod was decided to need no claim here.
    if extended := _extended(pod):
        found.append(PodClaim(EXTENDED, extended["resourceClaimName"], generated=False))
    return found


def check_claim(pod: JSON, pod_claim: PodClaim, claim: JSON) -> ClaimInfo:
    """The claim as the kubelet remembers it; `PodClaimError` where the pod may not use it or it is not allocated."""
    metadata, status, uid = claim["metadata"], claim.get("status", {}), pod["metadata"]["uid"]
    ref = ClaimRef(metadata["namespace"], metadata["name"], metadata["uid"])
    owners = [owner["uid"] for owner in metadata.get("ownerReferences", []) if owner.get("controller")]
    if pod_claim.generated and uid not in owners:
        why = f"ResourceClaim {ref} was not created for pod {_key(pod)} (pod is not owner)"
        raise PodClaimError("claim-owner", why, claim=str(ref))
    if uid not in [consumer["uid"] for consumer in status.get("reservedFor", [])]:
        why = f"pod {pod['metadata']['name']} ({uid}) is not allowed to use ResourceClaim {ref.name} ({ref.uid})"
        raise PodClaimError("claim-reserved", why, claim=str(ref))
    if "allocation" not in status:
        raise PodClaimError("claim-allocated", f"ResourceClaim {ref.name}: not allocated", claim=str(ref))
    drivers = dict.fromkeys(result["driver"] for result in allocation_results(claim))
    return ClaimInfo(ref, dict.fromkeys(drivers, ()))


def allocation_results(claim: JSON) -> list[JSON]:
    """`status.allocation.devices.results` of a claim."""
    results: list[JSON] = claim["status"]["allocation"].get("devices", {}).get("results", [])
    return results


def container_requests(pod: JSON) -> dict[str, tuple[ContainerRequest, ...]]:
    """What each container, init containers included, asks for."""
    return {name: tuple(wanted) for name, wanted in _container_requests(pod)}


def _container_requests(pod: JSON) -> Iterator[tuple[str, list[ContainerRequest]]]:
    spec = pod["spec"]
    for container in [*spec.get("initContainers", []), *spec.get("containers", [])]:
        resources = container.get("resources", {})
        wanted = [ContainerRequest(entry["name"], entry.get("request", "")) for entry in resources.get("claims", [])]
        for mapping in _extended(pod).get("requestMappings", []):
            asked = str(resources.get("requests", {}).get(mapping["resourceName"], "0"))
            if mapping["containerName"] == container["name"] and asked != "0":
                wanted.append(ContainerRequest(EXTENDED, mapping["requestName"]))
        yield container["name"], wanted


def _extended(pod: JSON) -> JSON:
    """Which claim stands for the pod's extended resources (KEP-5004), as the scheduler noted it in the pod's status."""
    noted: JSON = pod.get("status", {}).get("extendedResourceClaimStatus") or {}
    return noted


def _key(pod: JSON) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
