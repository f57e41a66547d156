"""Real ResourceClaims, allocated by hand: the benchmark is its own scheduler."""

from __future__ import annotations

from dra_sdk.kube import paths
from dra_sdk.kube.client import KubeClient
from dra_sdk.model import JSON
from dra_sdk.model.claim import ClaimRef
from tests.bench.contestants import NODE, Contestant

NAMESPACE = "default"
_REQUEST = "device"
_CONFIG = {"apiVersion": "bench.dra-sdk.example/v1", "kind": "BenchConfig", "level": 7, "label": "side-by-side"}


def create_node(client: KubeClient) -> None:
    """The Node both drivers run on; they own their slices through it."""
    client.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})


def create_claims(client: KubeClient, contestant: Contestant, count: int) -> list[ClaimRef]:
    """Claim number i holds device number i of the contestant, with one opaque configuration."""
    return [_create(client, contestant.driver, f"{contestant.user}-{index:03d}", index) for index in range(count)]


def delete_slices(client: KubeClient, driver: str) -> None:
    """What a kubelet does when a driver is gone for good."""
    for item in client.list(paths.resource_slices(), {"fieldSelector": f"spec.driver={driver}"})["items"]:
        client.delete(paths.resource_slice(item["metadata"]["name"]))


def _create(client: KubeClient, driver: str, name: str, index: int) -> ClaimRef:
    opaque = {"opaque": {"driver": driver, "parameters": _CONFIG}}
    claim: JSON = {
        "apiVersion": paths.API_VERSION,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "devices": {
                "requests": [{"name": _REQUEST, "exactly": {"deviceClassName": "bench"}}],
                "config": [opaque],
            }
        },
    }
    claim = client.create(paths.resource_claims(NAMESPACE), claim)
    result = {"request": _REQUEST, "driver": driver, "pool": NODE, "device": f"device-{index:04d}"}
    claim["status"] = {"allocation": {"devices": {"results": [result], "config": [{"source": "FromClaim", **opaque}]}}}
    claim = client.update(paths.resource_claim_status(NAMESPACE, name), claim)
    return ClaimRef(NAMESPACE, name, claim["metadata"]["uid"])
