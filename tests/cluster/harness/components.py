"""The six daemons of a cluster: the command line of each, and the probe that tells whether it serves."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import audit
from .api import answers
from .cache import Version
from .debian import SEARCH_PATH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from .api import Api
    from .layout import Layout
    from .runtime import Runtime
    from .state import State

TAINT_RULES = frozenset({"DRADeviceTaints", "DRADeviceTaintRules"})
"""Gates of DeviceTaintRule, which the scheduler and the controller manager wait for. It is beta since 1.36."""
FIRST_WITH_BETA_TAINT_RULES = 36
VERBOSITY = "--v=2"
"""How much each Kubernetes component logs: changes, but not each request."""


def served_apis(version: Version, gates: Mapping[str, bool]) -> str:
    """Returns the API server's --runtime-config: alpha APIs only if their gates can be on."""
    if gates.get("AllAlpha"):
        return "api/all=true"
    needs_rules = version.minor < FIRST_WITH_BETA_TAINT_RULES and any(gates.get(name) for name in TAINT_RULES)
    return "api/ga=true,api/beta=true" + (",resource.k8s.io/v1alpha3=true" if needs_rules else "")


@dataclass(frozen=True)
class Component:
    """A daemon.

    name: its name in the cluster.
    command: its command line.
    healthy: a probe, which returns True once the daemon serves.
    """

    name: str
    command: list[str]
    healthy: Callable[[], bool]


class Components:
    """Makes the components of one cluster from its paths, its ports and the folders of its binaries.

    audited: whether the API server has an audit log; the policy is in the layout's file.
    """

    def __init__(
        self, layout: Layout, state: State, kube: Path, runtime: Runtime, api: Api, *, audited: bool = False
    ) -> None:
        self._audit = audit.flags(layout.audit_policy, layout.audit_log) if audited else []
        self._layout, self._ports, self._kube, self._runtime, self._api = layout, state.ports, kube, runtime, api
        self._gates = ",".join(f"{name}={str(on).lower()}" for name, on in sorted(state.gates.items()))
        self._apis = served_apis(Version.parse(state.version), state.gates)

    def environment(self) -> dict[str, str]:
        """Returns the environment of every component: no proxy; its files go to the cluster's folder."""
        path = f"{self._runtime.bin}:{SEARCH_PATH}"
        return {"PATH": path, "HOME": str(self._layout.root), "TMPDIR": str(self._layout.temporary)}

    def all(self) -> dict[str, Component]:
        """Returns the components by name, each after those that it needs."""
        control_plane = (self._apiserver(), self._controllers(), self._scheduler())
        made = (self._etcd(), self._containerd(), *control_plane, self._kubelet())
        return {component.name: component for component in made}

    def _etcd(self) -> Component:
        port, client, peer = self._ports["etcd"], self._local("etcd"), self._local("etcd-peer")
        command = [
            *(str(self._runtime.bin / "etcd"), f"--data-dir={self._layout.etcd_data}", "--unsafe-no-fsync"),
            *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
            *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"),
            f"--initial-cluster=default={peer}",
        ]
        for prefix in ("", "peer-"):
            certificate, key, authority = self._pki("server.crt"), self._pki("server.key"), self._pki("ca.crt")
            command += [f"--{prefix}cert-file={certificate}", f"--{prefix}key-file={key}"]
            command += [f"--{prefix}trusted-ca-file={authority}", f"--{prefix}client-cert-auth"]
        return Component("etcd", command, lambda: self._https(port, "/health"))

    def _apiserver(self) -> Component:
        port, address = self._ports["apiserver"], self._layout.service_address
        command = [
            *(str(self._kube / "kube-apiserver"), VERBOSITY),
            *(f"--bind-address={address}", f"--secure-port={port}", f"--advertise-address={address}"),
            # Its service needs no endpoints, because the server itself listens on the service's address.
            "--endpoint-reconciler-type=none",
            *(f"--etcd-servers={self._local('etcd')}", f"--etcd-cafile={self._pki('ca.crt')}"),
            *(f"--etcd-certfile={self._pki('etcd-client.crt')}", f"--etcd-keyfile={self._pki('etcd-client.key')}"),
            *(f"--tls-cert-file={self._pki('server.crt')}", f"--tls-private-key-file={self._pki('server.key')}"),
            *(f"--client-ca-file={self._pki('ca.crt')}", f"--cert-dir={self._layout.temporary}"),
            *(f"--kubelet-certificate-authority={self._pki('ca.crt')}", "--kubelet-preferred-address-types=InternalIP"),
            f"--kubelet-client-certificate={self._pki('admin.crt')}",
            f"--kubelet-client-key={self._pki('admin.key')}",
            f"--service-account-key-file={self._pki('sa.key')}",
            f"--service-account-signing-key-file={self._pki('sa.key')}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-cluster-ip-range={self._layout.service_subnet}",
            *("--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction"),
            *("--allow-privileged=true", *self._audit),
            *(f"--feature-gates={self._gates}", f"--runtime-config={self._apis}"),
        ]
        return Component("apiserver", command, lambda: self._https(port, "/readyz", address))

    def _controllers(self) -> Component:
        port = self._ports["controller-manager"]
        command = [
            *(str(self._kube / "kube-controller-manager"), VERBOSITY, "--leader-elect=false"),
            *(f"--kubeconfig={self._layout.root / 'controller-manager.kubeconfig'}", *self._serving(port)),
            *(f"--service-account-private-key-file={self._pki('sa.key')}", f"--root-ca-file={self._pki('ca.crt')}"),
            f"--cluster-signing-cert-file={self._pki('ca.crt')}",
            f"--cluster-signing-key-file={self._pki('ca.key')}",
            *("--use-service-account-credentials=true", f"--feature-gates={self._gates}"),
            f"--flex-volume-plugin-dir={self._layout.root / 'volume-plugins'}",
        ]
        return Component("controller-manager", command, lambda: self._https(port, "/healthz"))

    def _scheduler(self) -> Component:
        port = self._ports["scheduler"]
        command = [
            *(str(self._kube / "kube-scheduler"), VERBOSITY, "--leader-elect=false"),
            *(f"--kubeconfig={self._layout.root / 'scheduler.kubeconfig'}", *self._serving(port)),
            f"--feature-gates={self._gates}",
        ]
        return Component("scheduler", command, lambda: self._https(port, "/healthz"))

    def _containerd(self) -> Component:
        command = [str(self._runtime.bin / "containerd"), f"--config={self._layout.root / 'containerd.toml'}"]
        return Component("containerd", command, self._containerd_listens)

    def _kubelet(self) -> Component:
        port = self._ports["kubelet-health"]
        command = [
            *(str(self._kube / "kubelet"), VERBOSITY, f"--config={self._layout.root / 'kubelet.json'}"),
            *(f"--kubeconfig={self._layout.root / 'kubelet.kubeconfig'}", f"--root-dir={self._layout.kubelet_dir}"),
            *(f"--hostname-override={self._layout.node_name}", f"--node-ip={self._layout.node_address}"),
            f"--cert-dir={self._layout.root / 'kubelet-pki'}",
        ]
        return Component("kubelet", command, lambda: answers(f"http://127.0.0.1:{port}/healthz"))

    def _serving(self, port: int) -> list[str]:
        certificate, key = self._pki("server.crt"), self._pki("server.key")
        where = ["--bind-address=127.0.0.1", f"--secure-port={port}"]
        return [*where, f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}"]

    def _local(self, port: str) -> str:
        return f"https://127.0.0.1:{self._ports[port]}"

    def _pki(self, name: str) -> str:
        return str(self._layout.pki / name)

    def _https(self, port: int, path: str, address: str = "127.0.0.1") -> bool:
        return answers(f"https://{address}:{port}{path}", self._api.trust)

    def _containerd_listens(self) -> bool:
        """Tells whether containerd accepts connections, which it does once all its plugins are loaded."""
        with socket.socket(socket.AF_UNIX) as attempt:
            try:
                attempt.connect(str(self._layout.containerd_socket))
            except OSError:
                return False
        return True
