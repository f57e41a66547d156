"""What the components of a cluster read before they start: folders, certificates, configuration files, the image."""

from __future__ import annotations

import json
import platform
import subprocess
from typing import TYPE_CHECKING, Any

from . import audit, image, pki
from .debian import find_busybox, find_tool
from .errors import HarnessError

if TYPE_CHECKING:
    from pathlib import Path

    from .layout import Layout
    from .runtime import Runtime
    from .state import State

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
_CONTAINERD = """\
version = 3
root = {root}
state = {state}
temp = {temp}

[grpc]
  address = {socket}
[ttrpc]
  address = {ttrpc}

[timeouts]
  'io.containerd.timeout.shim.cleanup' = {shim_cleanup}
  'io.containerd.timeout.shim.load' = {shim_load}
  'io.containerd.timeout.shim.shutdown' = {shim_shutdown}
  'io.containerd.timeout.task.state' = {task_state}

[plugins.'io.containerd.internal.v1.opt']
  path = {opt}
[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = {pause}
[plugins.'io.containerd.cri.v1.runtime']
  enable_cdi = true
  cdi_spec_dirs = {cdi}
  # In a container, the harness may not set a score below its own.
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
  plugin_registration_timeout = {registration}
  plugin_request_timeout = {request}
"""


def prepare(layout: Layout, state: State, server: str, runtime: Runtime) -> None:
    """Fills the folder of a cluster that is about to start; `server` is the address of its API server."""
    make_folders(layout)
    _issue_certificates(layout, server)
    (layout.root / "containerd.toml").write_text(containerd_config(layout, runtime, _found("runc", find_tool("runc"))))
    (layout.cni_conf / "10-pods.conflist").write_text(network_config(layout))
    (layout.root / "kubelet.json").write_text(kubelet_config(layout, state))
    layout.audit_policy.write_text(audit.policy(audit.OF_SERVICE_ACCOUNTS))


def import_image(layout: Layout, runtime: Runtime) -> None:
    """Puts the busybox image into containerd under its two names."""
    busybox = _found("a static busybox", find_busybox())
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    archive = layout.temporary / "image.tar"
    archive.write_bytes(image.image_tar(busybox.read_bytes(), architecture))
    ctr = [str(runtime.bin / "ctr"), f"--address={layout.containerd_socket}", "--namespace=k8s.io"]
    done = subprocess.run([*ctr, "images", "import", str(archive)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HarnessError(f"containerd does not import the image: {done.stderr}")
    archive.unlink()


def containerd_config(layout: Layout, runtime: Runtime, runc: Path, *, slower: int = 1) -> str:
    """Returns containerd's configuration (version 3, containerd 2.x). It writes into the cluster's folder only.

    Its time limits are the defaults or, on a node that is `slower` than others, so many times as long.
    """
    paths = {
        "root": layout.containerd_root,
        "state": layout.containerd_state,
        "temp": layout.temporary,
        "socket": layout.containerd_socket,
        "ttrpc": layout.root / "containerd.ttrpc",
        "opt": layout.root / "opt",
        "pause": image.PAUSE,
        "cni_bin": runtime.cni,
        "cni_conf": layout.cni_conf,
        "runc": runc,
        "runc_root": layout.root / "runc",
        "nri": layout.nri_socket,
        "nri_plugins": layout.root / "nri-plugins",
        "nri_conf": layout.root / "nri-conf",
    }
    seconds = {"shim_cleanup": 5, "shim_load": 5, "shim_shutdown": 3, "task_state": 2, "registration": 5, "request": 2}
    limits = {name: f"{each * slower}s" for name, each in seconds.items()}
    # A JSON string is also a TOML basic string.
    texts = {name: json.dumps(str(path)) for name, path in (paths | limits).items()}
    return _CONTAINERD.format(**texts, cdi=json.dumps([str(each) for each in layout.cdi_spec_dirs]))


def network_config(layout: Layout) -> str:
    """Returns the pod network (CNI 1.0.0): a routed veth pair for each pod, which other machines cannot reach."""
    ipam: dict[str, Any] = {"type": "host-local", "dataDir": str(layout.cni_data)}
    ipam |= {"ranges": [[{"subnet": layout.pod_subnet}]], "routes": [{"dst": "0.0.0.0/0"}]}
    network = {
        "cniVersion": "1.0.0",
        "name": layout.network_name,
        "plugins": [{"type": "ptp", "ipMasq": False, "ipam": ipam}],
    }
    return json.dumps(network, indent=2) + "\n"


def kubelet_config(layout: Layout, state: State, **changes: Any) -> str:
    """Returns the kubelet's configuration (kubelet.config.k8s.io/v1beta1) as JSON, which is YAML.

    `changes` replace its fields.
    """
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
        # This works with cgroup v1 and v2, with and without systemd, and in containers.
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "oomScoreAdj": 0,
        # Pods do not use the machine's resolver or firewall.
        "resolvConf": "",
        "makeIPTablesUtilChains": False,
        # A full disk of the machine must not evict a pod of a test, or remove the only image.
        "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "50Mi"},
        "imageGCHighThresholdPercent": 100,
        "imageMinimumGCAge": "24h",
        **changes,
    }
    return json.dumps(config, indent=2) + "\n"


def _found(name: str, path: Path | None) -> Path:
    if path is None:
        raise HarnessError(f"this machine has {name} no longer")
    return path


def make_folders(layout: Layout) -> None:
    """Makes the folders that containerd, the kubelet and the drivers expect."""
    layout.root.mkdir(parents=True, mode=0o700)
    folders = [layout.logs, layout.temporary, layout.cdi_dir, layout.cni_conf, layout.cni_data, layout.pod_logs]
    folders.append(layout.nri_socket.parent)
    # The kubelet makes these two as well, but a driver may start before it.
    folders += [layout.kubelet_dir / "plugins", layout.kubelet_dir / "plugins_registry"]
    for folder in folders:
        folder.mkdir(parents=True)


def _issue_certificates(layout: Layout, server: str) -> None:
    authority = pki.Authority(layout.pki)
    authority.create()
    authority.signing_key("sa")
    addresses = ("127.0.0.1", layout.service_address, layout.node_address)
    authority.issue("server", "dra-sdk-server", hosts=[*addresses, *_SERVER_NAMES])
    authority.issue("etcd-client", "apiserver")
    authority.issue("admin", "admin", group="system:masters")
    authority.issue("controller-manager", "system:kube-controller-manager")
    authority.issue("scheduler", "system:kube-scheduler")
    authority.issue("kubelet", f"system:node:{layout.node_name}", group="system:nodes")
    for user in ("admin", "controller-manager", "scheduler", "kubelet"):
        text = pki.kubeconfig(server, authority.certificate("ca"), authority.user(user))
        (layout.root / f"{user}.kubeconfig").write_text(text)
