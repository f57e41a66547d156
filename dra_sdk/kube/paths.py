"""URL paths of API objects, with every name quoted.

Names come from requests of the kubelet and from files, so a name such as `../x?y` must stay one path segment.
Source: the REST conventions of the Kubernetes API, resource.k8s.io/v1, policy/v1, scheduling.k8s.io/v1.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote

GROUP: Final = "resource.k8s.io"
API_VERSION: Final = "resource.k8s.io/v1"
EVENTS_VERSION: Final = "events.k8s.io/v1"
_RESOURCE: Final = "/apis/resource.k8s.io/v1"
_PLAIN: Final = re.compile(r"[A-Za-z0-9-]+")  # nearly all names; `quote` takes ten times as long
_SHORT: Final = {".": "%2E", "..": "%2E%2E"}


def segment(name: str) -> str:
    """Return one quoted path segment; ValueError for an empty name, which would address the whole collection."""
    if not name:
        raise ValueError("an API object needs a name, got an empty string")
    return name if _PLAIN.fullmatch(name) else _SHORT.get(name) or quote(name, safe="")


def resource_slices() -> str:
    """Return the collection of ResourceSlices (cluster-scoped)."""
    return f"{_RESOURCE}/resourceslices"


def resource_slice(name: str) -> str:
    """Return the path of one ResourceSlice."""
    return f"{resource_slices()}/{segment(name)}"


def resource_claims(namespace: str | None = None) -> str:
    """Return the collection of ResourceClaims, of one namespace or of all."""
    return f"{_RESOURCE}/resourceclaims" if namespace is None else f"{_namespaced(namespace)}/resourceclaims"


def resource_claim(namespace: str, name: str) -> str:
    """Return the path of one ResourceClaim."""
    return f"{resource_claims(namespace)}/{segment(name)}"


def resource_claim_status(namespace: str, name: str) -> str:
    """Return the status subresource of one ResourceClaim."""
    return f"{resource_claim(namespace, name)}/status"


def resource_claim_templates(namespace: str | None = None) -> str:
    """Return the collection of ResourceClaimTemplates, of one namespace or of all."""
    return f"{_RESOURCE if namespace is None else _namespaced(namespace)}/resourceclaimtemplates"


def device_taint_rules(api_version: str) -> str:
    """Return the collection of DeviceTaintRules (cluster-scoped); most servers have v1beta2, not v1."""
    return f"/apis/{api_version}/devicetaintrules"


def device_classes() -> str:
    """Return the collection of DeviceClasses (cluster-scoped)."""
    return f"{_RESOURCE}/deviceclasses"


def device_class(name: str) -> str:
    """Return the path of one DeviceClass."""
    return f"{device_classes()}/{segment(name)}"


def nodes() -> str:
    """Return the collection of Nodes."""
    return "/api/v1/nodes"


def node(name: str) -> str:
    """Return the path of one Node."""
    return f"{nodes()}/{segment(name)}"


def pods(namespace: str | None = None) -> str:
    """Return the collection of Pods, of one namespace or of all."""
    return "/api/v1/pods" if namespace is None else f"/api/v1/namespaces/{segment(namespace)}/pods"


def pod(namespace: str, name: str) -> str:
    """Return the path of one Pod."""
    return f"{pods(namespace)}/{segment(name)}"


def priority_classes() -> str:
    """Return the collection of PriorityClasses (cluster-scoped)."""
    return "/apis/scheduling.k8s.io/v1/priorityclasses"


def pod_disruption_budgets() -> str:
    """Return the collection of PodDisruptionBudgets of all namespaces."""
    return "/apis/policy/v1/poddisruptionbudgets"


def pod_groups(api_version: str) -> str:
    """Return the collection of PodGroups of all namespaces; servers with the gate GenericWorkload have it."""
    return f"/apis/{api_version}/podgroups"


def resource_quotas() -> str:
    """Return the collection of ResourceQuotas of all namespaces."""
    return "/api/v1/resourcequotas"


def events(namespace: str) -> str:
    """Return the collection of Events of one namespace (events.k8s.io/v1)."""
    return f"/apis/{EVENTS_VERSION}/namespaces/{segment(namespace)}/events"


def event(namespace: str, name: str) -> str:
    """Return the path of one Event."""
    return f"{events(namespace)}/{segment(name)}"


def describe(path: str) -> str:
    """Return the object of a path, for messages: `resourceclaims team-a/train`, `nodes worker-1`."""
    parts = [unquote(part) for part in path.partition("?")[0].strip("/").split("/")]
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[:1] == ["namespaces"] and len(parts) > 2:  # noqa: PLR2004 (namespaces/NAME/kind)
        _, namespace, kind, *rest = parts
        return f"{kind} {namespace}/{'/'.join(rest)}" if rest else f"{kind} of namespace {namespace}"
    kind, *rest = parts or [path]
    return f"{kind} {'/'.join(rest)}".rstrip()


def _namespaced(namespace: str) -> str:
    return f"{_RESOURCE}/namespaces/{segment(namespace)}"
