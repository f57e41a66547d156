"""The API server as the kit uses it: for slices, for claims of its own, and to be the scheduler of those claims."""

from __future__ import annotations

from dra_sdk.errors import NotFoundError
from dra_sdk.kube import paths
from dra_sdk.kube.client import KubeClient
from dra_sdk.model import JSON

_NAMESPACES = "/api/v1/namespaces"
ADMIN_ACCESS = "resource.kubernetes.io/admin-access"


class Api:
    """Every method may raise ApiError."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    def close(self) -> None:
        """Close idle connections."""
        self._client.close()

    def version(self) -> str:
        """The server's version, such as v1.36.3."""
        return str(self._client.get("/version").get("gitVersion", "unknown"))

    # -- slices

    def slices(self, driver: str) -> list[JSON]:
        """All ResourceSlices of a driver, by name."""
        found = self._client.list(paths.resource_slices(), {"fieldSelector": f"spec.driver={driver}"})
        return sorted(found["items"], key=lambda each: str(each["metadata"]["name"]))

    def create_slice(self, body: JSON) -> JSON:
        """Publish a slice."""
        return self._client.create(paths.resource_slices(), body)

    def delete_slice(self, name: str) -> None:
        """Delete a slice; no error where it is gone."""
        self._gone(paths.resource_slice(name))

    # -- claims

    def claims(self) -> list[JSON]:
        """The claims of all namespaces."""
        found: list[JSON] = self._client.list(paths.resource_claims())["items"]
        return found

    def create_claim(self, body: JSON) -> JSON:
        """Create a claim."""
        return self._client.create(paths.resource_claims(body["metadata"]["namespace"]), body)

    def update_claim_status(self, claim: JSON) -> JSON:
        """Write a claim's status."""
        metadata = claim["metadata"]
        return self._client.update(paths.resource_claim_status(metadata["namespace"], metadata["name"]), claim)

    def delete_claim(self, namespace: str, name: str) -> None:
        """Delete a claim; no error where it is gone."""
        self._gone(paths.resource_claim(namespace, name))

    # -- the rest

    def node(self, name: str) -> JSON:
        """A Node."""
        return self._client.get(paths.node(name))

    def create_node(self, name: str) -> None:
        """Create a Node that nothing is scheduled to."""
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        metadata = {"name": name, "labels": labels}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"unschedulable": True}}
        self._client.create("/api/v1/nodes", body)

    def delete_node(self, name: str) -> None:
        """Delete a Node; no error where it is gone."""
        self._gone(paths.node(name))

    def create_namespace(self, name: str) -> None:
        """Create a namespace whose claims may ask for admin access."""
        metadata = {"name": name, "labels": {ADMIN_ACCESS: "true"}}
        self._client.create(_NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def delete_namespace(self, name: str) -> None:
        """Delete a namespace; no error where it is gone."""
        self._gone(f"{_NAMESPACES}/{paths.segment(name)}")

    def _gone(self, path: str) -> None:
        try:
            self._client.delete(path)
        except NotFoundError:
            return
