from __future__ import annotations

from pathlib import Path

import pytest

from dra_sdk.errors import NotFoundError, SettingsError
from dra_sdk.kube.client import KubeClient
from dra_sdk.tools.conformance.site import AGENT, PREFIX, embedded_site, existing_site, fresh_site
from dra_sdk.tools.simulator import EmbeddedCluster


def test_an_embedded_server_speaks_https_and_wants_a_token() -> None:
    with embedded_site() as site:
        assert site.kubeconfig
        text = site.kubeconfig.read_text()
        assert "https://127.0.0.1:" in text
        assert "token:" in text
        assert "certificate-authority" in text
        assert site.registry_dir.is_dir()
        assert site.cdi_dir == site.cdi_dirs[-1]
        assert site.api.node(site.node)["metadata"]["name"] == "node-1"
        assert site.requests
        assert site.requests() == []
        other = KubeClient.connect(site.kubeconfig, agent="driver")
        other.get("/api/v1/nodes/node-1")
        other.close()
        assert [(each.verb, each.resource) for each in site.requests()] == [("get", "nodes")]
        assert AGENT not in site.requests()[0].user_agent
        root = site.kubeconfig.parent
    assert not root.exists()


def test_a_server_that_exists_is_left_as_it_was() -> None:
    with EmbeddedCluster() as cluster:
        before = [cluster.api.list(plural) for plural in ("nodes", "namespaces")]
        with fresh_site(cluster.kubeconfig) as site:
            assert site.node.startswith(PREFIX)
            assert cluster.api.get("nodes", site.node)["spec"]["unschedulable"]
            assert site.namespace in {each["metadata"]["name"] for each in cluster.api.list("namespaces")}
            assert site.requests is None
            root = site.kubelet_dir.parent
            assert len(str(site.registry_dir)) < 60
        assert [cluster.api.list(plural) for plural in ("nodes", "namespaces")] == before
        assert not root.exists()
        with fresh_site(cluster.kubeconfig, node=cluster.node_name) as site:
            assert site.node == cluster.node_name
        assert cluster.api.get("nodes", cluster.node_name)


def test_a_node_that_exists(tmp_path: Path) -> None:
    with EmbeddedCluster() as cluster:
        with existing_site(cluster.registry_dir, cluster.kubeconfig, "n", (tmp_path,)) as site:
            assert site.plugins_dir == cluster.plugins_dir
            assert site.cdi_dir == tmp_path
        with (
            pytest.raises(SettingsError, match="want the kubelet's plugins_registry"),
            existing_site(tmp_path / "absent", cluster.kubeconfig, "n", ()),
        ):
            pass


def test_without_an_api_server_nothing_can_be_checked(tmp_path: Path) -> None:
    with EmbeddedCluster() as cluster:
        config = tmp_path / "kubeconfig"
        config.write_bytes(cluster.kubeconfig.read_bytes())
    with pytest.raises(SettingsError, match="the API server is needed for claims and slices"), fresh_site(config):
        pass


def test_deleting_what_is_gone_is_no_error() -> None:
    with embedded_site(tls=False) as site:
        site.api.delete_slice("absent")
        site.api.delete_claim("default", "absent")
        site.api.delete_node("absent")
        site.api.delete_namespace("absent")
        with pytest.raises(NotFoundError):
            site.api.node("absent")
        assert site.api.version().startswith("v1.")
