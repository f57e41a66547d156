"""The paths and addresses of one cluster. All files are in one folder, which `down` removes."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from .audit import FILE as AUDIT_FILE
from .errors import HarnessError

RUN_ROOT = Path("/run/dra-sdk")
"""Parent of all clusters. It is short, because the path of a socket in `kubelet/plugins_registry` has at most 107 bytes
(unix(7)). It belongs to root, and on most machines it is empty after a reboot."""
DEFAULT_NAME = "default"
OWN_CDI_DIRS = ("cpu", "memory")
"""Drivers for which there is a folder for CDI specs that no other driver's pod sees."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,14}[a-z0-9])?")


@dataclass(frozen=True)
class Layout:
    """The paths of one cluster, and the names and addresses that follow from its name.

    name: the name of the cluster.
    root: the folder with all its files.
    """

    name: str
    root: Path

    @classmethod
    def of(cls, name: str, run_root: Path = RUN_ROOT) -> Self:
        """Returns the layout of a cluster; HarnessError for a name that is not a DNS label of at most 16 characters."""
        if _NAME.fullmatch(name) is None:
            raise HarnessError(
                f"cluster name {name!r}: expected at most 16 lower-case letters, digits and inner hyphens "
                "(the name is part of socket paths, which have at most 107 bytes)"
            )
        return cls(name, run_root / name)

    @property
    def node_name(self) -> str:
        """The name of the cluster's only node."""
        return f"node-{self.name}"

    @property
    def network_name(self) -> str:
        """The name of the pod network, which names the files that CNI plugins write outside the cluster's folder."""
        return f"dra-sdk-{self.name}"

    @property
    def _number(self) -> int:
        """The number in the addresses of this cluster: 0 for the default one, else a hash of the name."""
        return 0 if self.name == DEFAULT_NAME else 1 + zlib.crc32(self.name.encode()) % 255

    @property
    def pod_subnet(self) -> str:
        """The pod network, in 198.18.0.0/15. That is reserved for benchmarks (RFC 2544), so nothing else uses it."""
        return f"198.18.{self._number}.0/24"

    @property
    def pod_gateway(self) -> str:
        """The address of the pod network's interfaces on the machine's side."""
        return f"198.18.{self._number}.1"

    @property
    def service_subnet(self) -> str:
        """The addresses of services."""
        return f"198.19.{self._number}.0/25"

    @property
    def service_address(self) -> str:
        """The address of the API server's service. Without kube-proxy, the server itself listens there."""
        return f"198.19.{self._number}.1"

    @property
    def node_address(self) -> str:
        """The node's own address; Kubernetes accepts none of 127.0.0.0/8."""
        return f"198.19.{self._number}.129"

    @property
    def state_file(self) -> Path:
        """The file of `State`."""
        return self.root / "state.json"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.root / "admin.kubeconfig"

    @property
    def pki(self) -> Path:
        """Keys and certificates."""
        return self.root / "pki"

    @property
    def logs(self) -> Path:
        """One log per component."""
        return self.root / "logs"

    @property
    def audit_policy(self) -> Path:
        """Which requests the API server writes down."""
        return self.root / "audit-policy.json"

    @property
    def audit_log(self) -> Path:
        """The API server's audit log."""
        return self.logs / AUDIT_FILE

    @property
    def etcd_data(self) -> Path:
        """etcd's data."""
        return self.root / "etcd"

    @property
    def kubelet_dir(self) -> Path:
        """The kubelet's root folder: `plugins/`, `plugins_registry/`, `pods/`, `pod-resources/`."""
        return self.root / "kubelet"

    @property
    def pod_logs(self) -> Path:
        """The logs of containers."""
        return self.root / "pods"

    @property
    def cdi_dir(self) -> Path:
        """The folder that all drivers share for CDI specs."""
        return self.root / "cdi"

    @property
    def cdi_spec_dirs(self) -> list[Path]:
        """The folders containerd reads CDI specs from; what a later one says of a device goes before an earlier one."""
        return [self.cdi_dir, *(self.root / "cdi-drivers" / name for name in OWN_CDI_DIRS)]

    @property
    def nri_socket(self) -> Path:
        """Where NRI plugins connect. Nothing else is in its folder, which pods of drivers have."""
        return self.root / "nri" / "nri.sock"

    @property
    def containerd_socket(self) -> Path:
        """The CRI socket."""
        return self.root / "containerd.sock"

    @property
    def containerd_root(self) -> Path:
        """Images and snapshots."""
        return self.root / "ctd"

    @property
    def containerd_state(self) -> Path:
        """Running containers: bundles, root file systems, network namespaces."""
        return self.root / "ctds"

    @property
    def tasks(self) -> Path:
        """One folder per container, named by its id."""
        return self.containerd_state / "io.containerd.runtime.v2.task" / "k8s.io"

    @property
    def cni_conf(self) -> Path:
        """The pod network's configuration."""
        return self.root / "cni"

    @property
    def cni_data(self) -> Path:
        """The pod network's address leases."""
        return self.root / "ipam"

    @property
    def temporary(self) -> Path:
        """TMPDIR of every component."""
        return self.root / "tmp"

    def log(self, component: str) -> Path:
        """The log of one component."""
        return self.logs / f"{component}.log"

    def tail(self, component: str, lines: int = 15) -> str:
        """Returns the end of a component's log for error messages, without the flags that each logs at its start."""
        try:
            text = self.log(component).read_text(errors="replace")
        except FileNotFoundError:
            return "(no log)"
        kept = [line for line in text.splitlines() if "] FLAG: --" not in line]
        return "\n".join(kept[-lines:]) or "(empty log)"
