"""The objects of a running cluster, read once; nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from dra_sdk.errors import NotFoundError
from dra_sdk.kube import paths
from dra_sdk.kube.client import KubeClient
from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster import ObjectSource
from dra_sdk.wire.documents import Document
from dra_sdk.wire.profile import ServerProfile

_COLLECTIONS = {
    "Node": paths.nodes(),
    "Pod": paths.pods(),
    "ResourceSlice": paths.resource_slices(),
    "DeviceClass": paths.device_classes(),
    "ResourceClaim": paths.resource_claims(),
    "ResourceClaimTemplate": paths.resource_claim_templates(),
}
_API = {"Node": "v1", "Pod": "v1"}


def read_cluster(kubeconfig: Path | None) -> tuple[ObjectSource, str]:
    """All objects that count, and the version of the server such as `v1.36.3`; SettingsError or ApiError."""
    with closing(KubeClient.connect(kubeconfig)) as client:
        version = str(client.get("/version").get("gitVersion", ""))
        found = [*_objects(client), *_rules(client, ServerProfile.of(version))]
        return ObjectSource(client.server, [Document(each) for each in found], stored=True), version


def _objects(client: KubeClient) -> Iterator[JSON]:
    for kind, path in _COLLECTIONS.items():
        for item in client.list(path)["items"]:
            yield {"apiVersion": _API.get(kind, paths.API_VERSION), "kind": kind} | item


def _rules(client: KubeClient, profile: ServerProfile) -> Iterator[JSON]:
    """DeviceTaintRules, in the best version that the server has; before 1.37 many have none."""
    for version in profile.taint_rule_versions():
        api_version = f"{paths.GROUP}/{version}"
        try:
            items = client.list(paths.device_taint_rules(api_version))["items"]
        except NotFoundError:
            continue
        yield from ({"apiVersion": api_version, "kind": "DeviceTaintRule"} | each for each in items)
        return
