"""What the API server and the Node object must have, and what the account of a driver may do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from dra_sdk.errors import ApiError, SettingsError
from dra_sdk.kube.api import KubeApi
from dra_sdk.tools.doctor.diagnosis import Diagnosis
from dra_sdk.wire.profile import GATES, ServerProfile

PERMISSIONS: Final = (
    ("", "nodes", "get"),
    ("resource.k8s.io", "resourceclaims", "get"),
    *(("resource.k8s.io", "resourceslices", verb) for verb in ("list", "watch", "create", "update", "delete")),
    *(("events.k8s.io", "events", verb) for verb in ("create", "patch")),
)
"""API group, resource and verb of what every driver asks for."""
_OLDEST_KUBELET: Final = (1, 34)
_MINIMUM: Final = "Kubernetes 1.34 or later serves resource.k8s.io/v1"


def read_node(api: KubeApi | None, name: str) -> tuple[dict[str, Any], list[Diagnosis]]:
    """Return the Node object, and what is found about the API server and about the node."""
    if api is None:
        return {}, [
            Diagnosis("unknown", "API server", "there are no credentials", "give --kubeconfig, or run it in a pod")
        ]
    try:
        release = str(api.get("/version").get("gitVersion", ""))
    except ApiError as error:
        return {}, [
            Diagnosis("missing", "API server", str(error), "check the address, the certificate and the network")
        ]
    findings = [*_served(api, release)]
    try:
        node = api.get(f"/api/v1/nodes/{name}")
    except ApiError as error:
        remedy = "set NODE_NAME from spec.nodeName, or give --node-name; the account needs `get` of nodes"
        return {}, [*findings, Diagnosis("missing", f"Node {name}", str(error), remedy)]
    return node, [*findings, _kubelet_version(node, name)]


def _served(api: KubeApi, release: str) -> Iterator[Diagnosis]:
    try:
        api.get("/apis/resource.k8s.io/v1")
        profile = ServerProfile.of(release)
    except (ApiError, SettingsError) as error:
        yield Diagnosis("missing", "API server", f"{release} does not serve resource.k8s.io/v1: {error}", _MINIMUM)
        return
    yield Diagnosis("ok", "API server", f"{release} serves resource.k8s.io/v1")
    if off := [name for name in GATES if name not in profile.gates and GATES[name][0] <= profile.minor]:
        yield Diagnosis(
            "unknown",
            "feature gates of the API server",
            f"off in {release} unless switched on: {', '.join(off)}",
            "kubectl get --raw /metrics has kubernetes_feature_enabled; drivers' READMEs name what they need",
        )


def _kubelet_version(node: Mapping[str, Any], name: str) -> Diagnosis:
    version = str(node.get("status", {}).get("nodeInfo", {}).get("kubeletVersion", ""))
    match = re.match(r"v?(\d+)\.(\d+)", version)
    subject = f"kubelet of {name}"
    if match is None:
        return Diagnosis("unknown", subject, "the Node does not tell its version", "kubelet --version on the node")
    if (int(match[1]), int(match[2])) < _OLDEST_KUBELET:
        return Diagnosis("missing", subject, f"is {version}", "upgrade it to 1.34 or later")
    return Diagnosis("ok", subject, f"is {version}")


def permissions(api: KubeApi) -> Iterator[Diagnosis]:
    """Yield what the account of these credentials may do, of what a driver asks for."""
    refused = []
    for group, resource, verb in PERMISSIONS:
        attributes = {"group": group, "resource": resource, "verb": verb}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        try:
            answer = api.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
        except ApiError as error:
            yield Diagnosis("unknown", "permissions", str(error), "kubectl auth can-i --list as the driver's account")
            return
        if not answer.get("status", {}).get("allowed"):
            refused.append(f"{verb} {resource}")
    if refused:
        remedy = "apply the objects of `dra-sdk manifests DRIVER`, and use its account"
        yield Diagnosis("missing", "permissions", f"this account may not {', '.join(refused)}", remedy)
    else:
        yield Diagnosis("ok", "permissions", "this account may all that every driver asks for")
