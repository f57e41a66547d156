"""The configuration files of containerd, the pod network and the kubelet, as text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from . import image

if TYPE_CHECKING:
    from pathlib import Path

    from .layout import Layout
    from .runtime import Runtime
    from .state import State

_CONTAINERD = """\
version = 3
root = {root}
state = {state}
temp = {temp}

[grpc]
  address = {socket}
[ttrpc]
  address = {ttrpc}

[plugins.'io.containerd.internal.v1.opt']
  path = {opt}
[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = {pause}
[plugins.'io.containerd.cri.v1.runtime']
  enable_cdi = true
  cdi_spec_dirs = [{cdi}]
  # in a container the harness may not lower a score below its own
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = [{cni_bin}]
    conf_dir = {cni_conf}
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = {runc}
      Root = {runc_root}
[plugins.'io.containerd.nri.v1.nri']
  disable = false
  socket_path = {nri}
  plugin_path = {nri_plugins}
  plugin_config_path = {nri_conf}
"""


def containerd_config(layout: Layout, runtime: Runtime, runc: Path) -> str:
    """Returns containerd's configuration (version 3, containerd 2.x); what it writes lies in the cluster's folder."""
    paths = {
        "root": layout.containerd_root,
        "state": layout.containerd_state,
        "temp": layout.temporary,
        "socket": layout.containerd_socket,
        "ttrpc": layout.root / "containerd.ttrpc",
        "opt": layout.root / "opt",
        "pause": image.PAUSE,
        "cdi": layout.cdi_dir,
        "cni_bin": runtime.cni,
        "cni_conf": layout.cni_conf,
        "runc": runc,
        "runc_root": layout.root / "runc",
        "nri": layout.nri_socket,
        "nri_plugins": layout.root / "nri-plugins",
        "nri_conf": layout.root / "nri-conf",
    }
    # a JSON string is a TOML basic string
    return _CONTAINERD.format(**{name: json.dumps(str(path)) for name, path in paths.items()})


def network_config(layout: Layout) -> str:
    """Returns the pod network: one veth pair per pod, routed, not reachable from other machines (CNI 1.0.0)."""
    ipam: dict[str, Any] = {"type": "host-local", "dataDir": str(layout.cni_data)}
    ipam |= {"ranges": [[{"subnet": layout.pod_subnet}]], "routes": [{"dst": "0.0.0.0/0"}]}
    network = {
        "cniVersion": "1.0.0",
        "name": layout.network_name,
        "plugins": [{"type": "ptp", "ipMasq": False, "ipam": ipam}],
    }
    return json.dumps(network, indent=2) + "\n"


def kubelet_config(layout: Layout, state: State) -> str:
    """Returns the kubelet's configuration (kubelet.config.k8s.io/v1beta1) as JSON, which is YAML."""
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": layout.node_address,
        "port": state.ports["kubelet"],
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": state.ports["kubelet-health"],
        "tlsCertFile": str(layout.pki / "server.crt"),
        "tlsPrivateKeyFile": str(layout.pki / "server.key"),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{layout.containerd_socket}",
        "podLogsDir": str(layout.pod_logs),
        "volumePluginDir": str(layout.root / "volume-plugins"),
        "featureGates": state.gates,
        # works on cgroup v1 and v2, with and without systemd, and in containers
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "oomScoreAdj": 0,
        # pods see neither the machine's resolver nor its firewall
        "resolvConf": "",
        "makeIPTablesUtilChains": False,
        # a full disk of the machine is no reason to evict a test's pod or the one image there is
        "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "50Mi"},
        "imageGCHighThresholdPercent": 100,
        "imageMinimumGCAge": "24h",
    }
    return json.dumps(config, indent=2) + "\n"
