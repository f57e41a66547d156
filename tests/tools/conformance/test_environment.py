from __future__ import annotations

from pathlib import Path

import pytest

from dra_sdk.errors import NotFoundError, SettingsError
from dra_sdk.kube import paths
from dra_sdk.kube.client import KubeClient
from dra_sdk.tools.conformance.environment import (
    PREFIX,
    USER_AGENT,
    cluster_environment,
    embedded_environment,
    node_environment,
)
from dra_sdk.tools.simulator import EmbeddedCluster


def test_an_embedded_server_speaks_https_and_requires_a_token() -> None:
    with embedded_environment() as environment:
        assert environment.kubeconfig
        text = environment.kubeconfig.read_text()
        assert "https://127.0.0.1:" in text
        assert "token:" in text
        assert "certificate-authority" in text
        assert environment.registry_dir.is_dir()
        assert environment.cdi_dir == environment.cdi_dirs[-1]
        assert environment.api.client.get(paths.node(environment.node_name))["metadata"]["name"] == "node-1"
        assert environment.requests
        assert environment.requests() == []
        other = KubeClient.connect(environment.kubeconfig, agent="driver")
        other.get("/api/v1/nodes/node-1")
        other.close()
        assert [(record.request.verb, record.request.plural) for record in environment.requests()] == [("get", "nodes")]
        assert USER_AGENT not in environment.requests()[0].user_agent
        root = environment.kubeconfig.parent
    assert not root.exists()


def test_an_existing_server_is_left_as_it_was() -> None:
    with EmbeddedCluster() as cluster:
        before = [cluster.api.list(plural) for plural in ("nodes", "namespaces")]
        with cluster_environment(cluster.kubeconfig) as environment:
            assert environment.node_name.startswith(PREFIX)
            assert cluster.api.get("nodes", environment.node_name)["spec"]["unschedulable"]
            assert environment.namespace in {
                namespace["metadata"]["name"] for namespace in cluster.api.list("namespaces")
            }
            assert environment.requests is None
            root = environment.kubelet_dir.parent
            assert len(str(environment.registry_dir)) < 60
        assert [cluster.api.list(plural) for plural in ("nodes", "namespaces")] == before
        assert not root.exists()
        with cluster_environment(cluster.kubeconfig, node_name=cluster.node_name) as environment:
            assert environment.node_name == cluster.node_name
        assert cluster.api.get("nodes", cluster.node_name)


def test_an_existing_node_keeps_its_directories(tmp_path: Path) -> None:
    with EmbeddedCluster() as cluster:
        with node_environment(cluster.registry_dir, cluster.kubeconfig, "n", (tmp_path,)) as environment:
            assert environment.plugins_dir == cluster.plugins_dir
            assert environment.cdi_dir == tmp_path
        with (
            pytest.raises(SettingsError, match="must be the kubelet's plugins_registry"),
            node_environment(tmp_path / "absent", cluster.kubeconfig, "n", ()),
        ):
            pass


def test_without_an_api_server_nothing_can_be_checked(tmp_path: Path) -> None:
    with EmbeddedCluster() as cluster:
        config = tmp_path / "kubeconfig"
        config.write_bytes(cluster.kubeconfig.read_bytes())
    with (
        pytest.raises(SettingsError, match="the kit needs the API server for claims and slices"),
        cluster_environment(config),
    ):
        pass


def test_deleting_what_does_not_exist_is_no_error() -> None:
    with embedded_environment(tls=False) as environment:
        api = environment.api
        api.delete(paths.resource_slice("absent"))
        api.delete(paths.resource_claim("default", "absent"))
        api.delete(paths.node("absent"))
        with pytest.raises(NotFoundError):
            api.client.get(paths.node("absent"))
        assert api.version().startswith("v1.")
