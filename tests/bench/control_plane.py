"""A real etcd and API server for the benchmark alone, whose audit log has every request of the drivers.

A kubelet and containers are not needed, because the benchmark plays the kubelet itself. Benchmarks that need a real
container runtime have a whole cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dra_sdk.kube.client import KubeClient
from tests.cluster.harness import Cluster, audit
from tests.cluster.harness.control_plane import ControlPlaneSettings
from tests.cluster.harness.control_plane import control_plane as plain_control_plane
from tests.cluster.harness.progress import Progress

NAME = "bench"


@dataclass(frozen=True)
class ControlPlane:
    """A running API server: `client` is its administrator, `audit_log` grows with each request of `users`."""

    version: str
    server: str
    client: KubeClient
    audit_log: Path
    kubeconfigs: dict[str, Path]
    pids: dict[str, int]


@contextmanager
def control_plane(root: Path, version: str, users: list[str], progress: Progress) -> Iterator[ControlPlane]:
    """Run etcd and an API server in the folder `root`, with an administrator's kubeconfig for each of `users`."""
    policy, audit_log = root / "audit-policy.json", root / "audit.log"
    policy.write_text(audit.policy([{"level": "Metadata", "users": users}]))
    settings = ControlPlaneSettings(version, users=users, flags={"apiserver": audit.flags(policy, audit_log)})
    with plain_control_plane(NAME, root, settings, progress) as running:
        client = KubeClient.connect(running.kubeconfig("admin"), agent="bench")
        try:
            kubeconfigs = {user: running.kubeconfig(user) for user in users}
            pids = {name: process.pid for name, process in running.processes.items()}
            yield ControlPlane(running.version, running.server, client, audit_log, kubeconfigs, pids)
        finally:
            client.close()


@contextmanager
def single_node_cluster() -> Iterator[Cluster]:
    """A cluster with kubelet and containerd on this machine, until the context ends."""
    cluster = Cluster.up(name=NAME)
    try:
        yield cluster
    finally:
        cluster.down()
