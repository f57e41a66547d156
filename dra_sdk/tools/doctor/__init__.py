"""What a node needs so that DRA drivers work on it, and what of it is missing; a remedy for each.

The node's own files are read below a root, the API server is asked as the driver's account. What cannot be seen from
here is reported as unknown, with the way to find out. Nothing is changed; only a SelfSubjectAccessReview is sent, which
no server stores.
"""

from __future__ import annotations

from dra_sdk.kube.api import KubeApi
from dra_sdk.tools.doctor.cluster import permissions, read_node
from dra_sdk.tools.doctor.diagnosis import Diagnosis, NodePaths
from dra_sdk.tools.doctor.directories import directories, shared_root
from dra_sdk.tools.doctor.kubelet import kubelet_configuration
from dra_sdk.tools.doctor.runtime import container_runtime

__all__ = ["Diagnosis", "NodePaths", "examine"]


def examine(
    paths: NodePaths,
    api: KubeApi | None,
    node_name: str,
    *,
    driver: str = "",
    nri: bool = False,
    mounts_for_host: bool = False,
) -> list[Diagnosis]:
    """Return all checks, in the order in which a reader would mend what is missing.

    api: None if no credentials were found. driver: the name of a driver of this node. nri: whether a driver of this
    node needs NRI. mounts_for_host: whether the pod of one mounts for the host, so that the host's / must be shared.
    """
    node, findings = read_node(api, node_name)
    runtime = str(node.get("status", {}).get("nodeInfo", {}).get("containerRuntimeVersion", ""))
    return [
        *directories(paths),
        *shared_root(paths, needed=mounts_for_host),
        *container_runtime(paths, runtime, nri=nri),
        *kubelet_configuration(paths, api, node_name, driver),
        *findings,
        *(permissions(api) if api is not None else ()),
    ]
