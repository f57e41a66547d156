"""The claims of pods: which claims a pod uses, which requests of them its containers use, and what they get.

Pods and claims are raw API objects. Source: k8s.io/dynamic-resource-allocation resourceclaim; KEP-4381.
"""

from __future__ import annotations

from dataclasses import dataclass

from dra_sdk.model import JSON
from dra_sdk.model.claim import ClaimRef
from dra_sdk.tools.scheduling.cluster.claim_controller import claim_results, owner_uids
from dra_sdk.tools.simulator.kubelet.claims import ClaimInfo
from dra_sdk.tools.simulator.kubelet.records import AnsweredDevice, PodClaimError, claim_name

EXTENDED = "<extended-resources>"
"""Stands for the name in the pod of the claim that the scheduler made for the pod's extended resources."""


@dataclass(frozen=True)
class PodClaim:
    """One claim of a pod.

    name: in `spec.resourceClaims` of the pod; `EXTENDED` for the claim of the pod's extended resources.
    claim: the name of the ResourceClaim.
    generated: whether it comes from a template; the pod must be its owner then.
    """

    name: str
    claim: str
    generated: bool


@dataclass(frozen=True)
class ContainerRequest:
    """One entry of a container's `resources.claims`.

    claim: the claim's name in the pod.
    request: a request of the claim, "" for the whole claim.
    """

    claim: str
    request: str


@dataclass(frozen=True)
class RunningPod:
    """A pod whose claims are prepared.

    namespace: of the pod.
    name: of the pod.
    uid: of the pod.
    claims: its claims, by name in the pod.
    devices: the devices of each claim, by the claim's name in the pod.
    containers: the requests of each container, by the container's name.
    """

    namespace: str
    name: str
    uid: str
    claims: dict[str, ClaimRef]
    devices: dict[str, tuple[AnsweredDevice, ...]]
    containers: dict[str, tuple[ContainerRequest, ...]]

    def cdi_ids(self, claim: str, request: str = "") -> tuple[str, ...]:
        """Return the CDI ids of one request of a claim (by its name in the pod), or of the whole claim."""
        devices = [device for device in self.devices[claim] if device.serves(request)]
        return tuple(cdi_id for device in devices for cdi_id in device.cdi_ids)

    def container_cdi_ids(self, container: str) -> tuple[str, ...]:
        """Return the CDI ids that a container gets, in the order in which the runtime gets them."""
        return tuple(
            cdi_id for wanted in self.containers[container] for cdi_id in self.cdi_ids(wanted.claim, wanted.request)
        )


def pod_claims(pod: JSON) -> list[PodClaim]:
    """Return the claims of a pod; `PodClaimError` if a claim from a template does not exist yet."""
    statuses = {entry["name"]: entry for entry in pod.get("status", {}).get("resourceClaimStatuses", [])}
    claims = []
    for entry in pod["spec"].get("resourceClaims", []):
        name = entry["name"]
        if entry.get("resourceClaimName"):
            claims.append(PodClaim(name, entry["resourceClaimName"], generated=False))
        elif name not in statuses:
            why = f"pod {_key(pod)}: ResourceClaim not created yet for {name}"
            raise PodClaimError("claim-exists", why, claim=name)
        elif statuses[name].get("resourceClaimName"):
            claims.append(PodClaim(name, statuses[name]["resourceClaimName"], generated=True))
        # Otherwise the claim controller decided that the pod needs no claim here.
    if extended := _extended_claim(pod):
        claims.append(PodClaim(EXTENDED, extended["resourceClaimName"], generated=False))
    return claims


def check_claim(pod: JSON, pod_claim: PodClaim, claim: JSON) -> ClaimInfo:
    """Return the claim as the kubelet keeps it; `PodClaimError` if the pod may not use it or it is not allocated."""
    metadata, status, uid = claim["metadata"], claim.get("status", {}), pod["metadata"]["uid"]
    ref = ClaimRef(metadata["namespace"], metadata["name"], metadata["uid"])
    if pod_claim.generated and uid not in owner_uids(claim):
        why = f"ResourceClaim {claim_name(ref)} was not created for pod {_key(pod)} (pod is not owner)"
        raise PodClaimError("claim-owner", why, claim=claim_name(ref))
    if not _is_reserved(status, pod):
        why = f"pod {pod['metadata']['name']} ({uid}) is not allowed to use ResourceClaim {ref.name} ({ref.uid})"
        raise PodClaimError("claim-reserved", why, claim=claim_name(ref))
    if "allocation" not in status:
        raise PodClaimError("claim-allocated", f"ResourceClaim {ref.name}: not allocated", claim=claim_name(ref))
    drivers = dict.fromkeys(result["driver"] for result in claim_results(claim))
    return ClaimInfo(ref, dict.fromkeys(drivers, ()))


def container_requests(pod: JSON) -> dict[str, tuple[ContainerRequest, ...]]:
    """Return the requests of each container, init containers included."""
    requests: dict[str, tuple[ContainerRequest, ...]] = {}
    spec = pod["spec"]
    for container in [*spec.get("initContainers", []), *spec.get("containers", [])]:
        resources = container.get("resources", {})
        wanted = [ContainerRequest(entry["name"], entry.get("request", "")) for entry in resources.get("claims", [])]
        for mapping in _extended_claim(pod).get("requestMappings", []):
            asked = str(resources.get("requests", {}).get(mapping["resourceName"], "0"))
            if mapping["containerName"] == container["name"] and asked != "0":
                wanted.append(ContainerRequest(EXTENDED, mapping["requestName"]))
        requests[container["name"]] = tuple(wanted)
    return requests


def _extended_claim(pod: JSON) -> JSON:
    """Return the claim for the pod's extended resources (KEP-5004), as the scheduler wrote it into the pod's status."""
    status: JSON = pod.get("status", {}).get("extendedResourceClaimStatus") or {}
    return status


def _is_reserved(status: JSON, pod: JSON) -> bool:
    """Return whether a claim is reserved for a pod or its PodGroup (KEP-5729)."""
    group = ("podgroups", "name", (pod["spec"].get("schedulingGroup") or {}).get("podGroupName"))
    return any(
        consumer[key] == wanted
        for consumer in status.get("reservedFor", [])
        for resource, key, wanted in (("pods", "uid", pod["metadata"]["uid"]), group)
        if consumer["resource"] == resource
    )


def _key(pod: JSON) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
