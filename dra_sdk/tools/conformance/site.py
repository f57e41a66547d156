"""Where a driver is checked: an API server, a node, and the directories that kubelet, driver and runtime share.

Either everything is made for the run, and removed after it, or the site is a node that exists.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dra_sdk.errors import ApiError, SettingsError
from dra_sdk.kube.client import KubeClient
from dra_sdk.tools.conformance.api import Api
from dra_sdk.tools.simulator import EmbeddedCluster
from dra_sdk.tools.simulator.request import RequestRecord

AGENT = "dra-sdk-conformance"
PREFIX = "dra-conformance"
Requests = Callable[[], list[RequestRecord]]
"""What the API server was asked by others than the kit, oldest first."""


@dataclass(frozen=True)
class Site:
    """One node. `requests` is there where the API server is the kit's own; host paths are found under `host_root`."""

    api: Api
    node: str
    namespace: str
    registry_dir: Path
    plugins_dir: Path
    cdi_dirs: tuple[Path, ...]
    kubeconfig: Path | None
    host_root: Path = Path("/")
    requests: Requests | None = None

    @property
    def kubelet_dir(self) -> Path:
        """The root of the kubelet's directories."""
        return self.plugins_dir.parent

    @property
    def cdi_dir(self) -> Path:
        """Where drivers write CDI specs: the directory with the highest priority."""
        return self.cdi_dirs[-1]


@contextmanager
def embedded_site(node: str = "node-1", *, tls: bool = True, host_root: Path = Path("/")) -> Iterator[Site]:
    """An API server in this process over HTTPS, and fresh directories; Go clients want both TLS and a token."""
    cluster = EmbeddedCluster(node, tls=tls, token=uuid.uuid4().hex if tls else None)
    with cluster:
        cluster.kubelet.stop()  # the kit itself is the kubelet
        with _api(cluster.kubeconfig) as (api, namespace):
            log = cluster.server.log
            yield Site(
                api,
                node,
                namespace,
                cluster.registry_dir,
                cluster.plugins_dir,
                (cluster.static_cdi_dir, cluster.cdi_dir),
                cluster.kubeconfig,
                host_root,
                lambda: [each for each in log.records() if AGENT not in each.user_agent],
            )


@contextmanager
def fresh_site(kubeconfig: Path, *, node: str = "", host_root: Path = Path("/")) -> Iterator[Site]:
    """An API server that exists and fresh directories; without `node` a Node is created for the run."""
    with tempfile.TemporaryDirectory(prefix="dra-", dir="/tmp") as folder, _api(kubeconfig) as (api, namespace):
        root = Path(folder)
        plugins, registry = root / "kubelet/plugins", root / "kubelet/plugins_registry"
        cdi = (root / "cdi-static", root / "cdi")
        for each in (plugins, registry, *cdi):
            each.mkdir(parents=True)
        name = node or f"{PREFIX}-{uuid.uuid4().hex[:8]}"
        if not node:
            api.create_node(name)
        try:
            yield Site(api, name, namespace, registry, plugins, cdi, kubeconfig, host_root)
        finally:
            if not node:
                api.delete_node(name)


@contextmanager
def existing_site(
    registry_dir: Path,
    kubeconfig: Path | None,
    node: str,
    cdi_dirs: tuple[Path, ...],
    *,
    host_root: Path = Path("/"),
) -> Iterator[Site]:
    """A node with a driver that runs already."""
    if not registry_dir.is_dir():
        raise SettingsError(f"{registry_dir} is no directory; want the kubelet's plugins_registry")
    plugins = registry_dir.parent / "plugins"
    with _api(kubeconfig) as (api, namespace):
        yield Site(api, node, namespace, registry_dir, plugins, cdi_dirs, kubeconfig, host_root)


@contextmanager
def _api(kubeconfig: Path | None) -> Iterator[tuple[Api, str]]:
    """A client, and a namespace of one's own as long as it is in use."""
    api = Api(KubeClient.connect(kubeconfig, agent=AGENT))
    namespace = f"{PREFIX}-{uuid.uuid4().hex[:8]}"
    try:
        api.create_namespace(namespace)
        try:
            yield api, namespace
        finally:
            api.delete_namespace(namespace)
    except ApiError as error:
        raise SettingsError(f"the API server is needed for claims and slices: {error}") from error
    finally:
        api.close()
