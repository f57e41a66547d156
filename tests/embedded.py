"""Running drivers on the embedded cluster."""

from __future__ import annotations

from typing import Any

from dra_sdk.node.runtime.settings import Settings
from dra_sdk.tools.simulator import EmbeddedCluster


def settings_for(cluster: EmbeddedCluster, **changes: Any) -> Settings:
    """The settings of a driver process on the cluster's node."""
    values = {
        "node_name": cluster.node_name,
        "kubeconfig": cluster.kubeconfig,
        "kubelet_dir": cluster.registry_dir.parent,
        "cdi_dir": cluster.cdi_dir,
        "nri_socket": cluster.registry_dir.parent / "nri.sock",
        **changes,
    }
    return Settings(**values)
