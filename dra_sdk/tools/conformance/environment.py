"""The environment of a driver: an API server, a node, and the directories that kubelet, driver and runtime share.

Either all of it is created for the run and removed afterwards, or it is a node that exists.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dra_sdk.errors import ApiError, NotFoundError, SettingsError
from dra_sdk.kube import paths
from dra_sdk.kube.client import KubeClient
from dra_sdk.model import JSON
from dra_sdk.node.nri.plugin import SOCKET
from dra_sdk.tools.simulator import EmbeddedCluster
from dra_sdk.tools.simulator.request import RequestRecord

USER_AGENT: Final = "dra-sdk-conformance"
PREFIX: Final = "dra-conformance"
NRI_SOCKET: Final = "nri/nri.sock"
_NAMESPACES: Final = "/api/v1/namespaces"
_ADMIN_ACCESS: Final = "resource.kubernetes.io/admin-access"


class KitClient:
    """The requests that the kit sends to the API server. Each method may raise ApiError.

    client: for what needs no method here.
    """

    def __init__(self, client: KubeClient) -> None:
        self.client = client

    def close(self) -> None:
        """Close idle connections."""
        self.client.close()

    def version(self) -> str:
        """Return the server's version, such as v1.36.3."""
        return str(self.client.get("/version").get("gitVersion", "unknown"))

    def slices(self, driver: str) -> list[JSON]:
        """Return all ResourceSlices of a driver, sorted by name."""
        listed = self.client.list(paths.resource_slices(), {"fieldSelector": f"spec.driver={driver}"})
        return sorted(listed["items"], key=lambda raw_slice: str(raw_slice["metadata"]["name"]))

    def create_node(self, name: str) -> None:
        """Create a Node that is unschedulable."""
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        metadata = {"name": name, "labels": labels}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"unschedulable": True}}
        self.client.create(paths.nodes(), body)

    def create_namespace(self, name: str) -> None:
        """Create a namespace whose claims may request admin access."""
        metadata = {"name": name, "labels": {_ADMIN_ACCESS: "true"}}
        self.client.create(_NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def delete(self, path: str) -> None:
        """Delete an object; no error if it does not exist."""
        with suppress(NotFoundError):
            self.client.delete(path)


@dataclass(frozen=True)
class NodeEnvironment:
    """One node and its API server.

    api: the API server.
    node_name: name of the node; empty while it is not known.
    namespace: the namespace of the claims that the kit creates.
    registry_dir: the kubelet's `plugins_registry`.
    plugins_dir: the kubelet's `plugins`, with the data directories of the drivers.
    cdi_dirs: the directories of CDI specs, in rising priority.
    kubeconfig: how to reach the API server; None for kubectl's default.
    host_root: the directory with the host's files.
    nri_socket: where the container runtime listens for NRI plugins.
    requests: returns the requests that others than the kit sent, oldest first; None unless the server is embedded.
    """

    api: KitClient
    node_name: str
    namespace: str
    registry_dir: Path
    plugins_dir: Path
    cdi_dirs: tuple[Path, ...]
    kubeconfig: Path | None
    host_root: Path = Path("/")
    requests: Callable[[], list[RequestRecord]] | None = None
    nri_socket: Path = SOCKET

    @property
    def kubelet_dir(self) -> Path:
        """The root of the kubelet's directories."""
        return self.plugins_dir.parent

    @property
    def cdi_dir(self) -> Path:
        """Where drivers write CDI specs: the directory with the highest priority."""
        return self.cdi_dirs[-1]


@contextmanager
def embedded_environment(
    node_name: str = "node-1", *, tls: bool = True, host_root: Path = Path("/")
) -> Iterator[NodeEnvironment]:
    """Provide an API server in this process, by default over HTTPS with a token for Go clients, and new directories."""
    cluster = EmbeddedCluster(node_name, tls=tls, token=uuid.uuid4().hex if tls else None)
    with cluster:
        cluster.kubelet.stop()  # the kit itself is the kubelet
        with _connected(cluster.kubeconfig) as (api, namespace):
            log = cluster.server.log
            yield NodeEnvironment(
                api,
                node_name,
                namespace,
                cluster.registry_dir,
                cluster.plugins_dir,
                (cluster.static_cdi_dir, cluster.cdi_dir),
                cluster.kubeconfig,
                host_root,
                lambda: [record for record in log.records() if USER_AGENT not in record.user_agent],
                cluster.root / NRI_SOCKET,
            )


@contextmanager
def cluster_environment(
    kubeconfig: Path, *, node_name: str = "", host_root: Path = Path("/")
) -> Iterator[NodeEnvironment]:
    """Provide an existing API server and new directories; without `node_name` a Node is created for the run."""
    with tempfile.TemporaryDirectory(prefix="dra-", dir="/tmp") as folder, _connected(kubeconfig) as (api, namespace):
        root = Path(folder)
        plugins, registry = root / "kubelet/plugins", root / "kubelet/plugins_registry"
        cdi = (root / "cdi-static", root / "cdi")
        for directory in (plugins, registry, *cdi):
            directory.mkdir(parents=True)
        name = node_name or f"{PREFIX}-{uuid.uuid4().hex[:8]}"
        with ExitStack() as stack:
            if not node_name:
                api.create_node(name)
                stack.callback(api.delete, paths.node(name))
            yield NodeEnvironment(
                api, name, namespace, registry, plugins, cdi, kubeconfig, host_root, nri_socket=root / NRI_SOCKET
            )


@contextmanager
def node_environment(
    registry_dir: Path,
    kubeconfig: Path | None,
    node_name: str,
    cdi_dirs: tuple[Path, ...],
    *,
    host_root: Path = Path("/"),
) -> Iterator[NodeEnvironment]:
    """Provide an existing node with a running driver."""
    if not registry_dir.is_dir():
        raise SettingsError(f"{registry_dir} is not a directory; it must be the kubelet's plugins_registry")
    plugins = registry_dir.parent / "plugins"
    with _connected(kubeconfig) as (api, namespace):
        yield NodeEnvironment(api, node_name, namespace, registry_dir, plugins, cdi_dirs, kubeconfig, host_root)


@contextmanager
def _connected(kubeconfig: Path | None) -> Iterator[tuple[KitClient, str]]:
    """Provide the API server, and a namespace that exists as long as the context."""
    namespace = f"{PREFIX}-{uuid.uuid4().hex[:8]}"
    with closing(KitClient(KubeClient.connect(kubeconfig, agent=USER_AGENT))) as api:
        try:
            api.create_namespace(namespace)
            try:
                yield api, namespace
            finally:
                api.delete(f"{_NAMESPACES}/{paths.segment(namespace)}")
        except ApiError as error:
            raise SettingsError(f"the kit needs the API server for claims and slices: {error}") from error
