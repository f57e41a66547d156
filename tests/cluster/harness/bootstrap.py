"""Writes what the components read before they start: folders, certificates, kubeconfigs, configuration, the image."""

from __future__ import annotations

import platform
import subprocess
from typing import TYPE_CHECKING

from . import image, pki, settings
from .errors import HarnessError
from .runtime import find_busybox, find_tool

if TYPE_CHECKING:
    from .layout import Layout
    from .runtime import Runtime
    from .state import State

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


def prepare(layout: Layout, state: State, server: str, runtime: Runtime) -> None:
    """Fills the folder of a cluster that is about to start."""
    _make_folders(layout)
    _issue_certificates(layout, server)
    runc = find_tool("runc")
    assert runc is not None, "ensure_tools looked for it"
    (layout.root / "containerd.toml").write_text(settings.containerd_config(layout, runtime, runc))
    (layout.cni_conf / "10-pods.conflist").write_text(settings.network_config(layout))
    (layout.root / "kubelet.json").write_text(settings.kubelet_config(layout, state))


def import_image(layout: Layout, runtime: Runtime) -> None:
    """Puts the busybox image into containerd under its two names."""
    busybox = find_busybox()
    assert busybox is not None, "ensure_tools looked for it"
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    archive = layout.temporary / "image.tar"
    archive.write_bytes(image.image_tar(busybox.read_bytes(), architecture))
    ctr = [str(runtime.bin / "ctr"), f"--address={layout.containerd_socket}", "--namespace=k8s.io"]
    done = subprocess.run([*ctr, "images", "import", str(archive)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HarnessError(f"containerd does not import the image: {done.stderr}")
    archive.unlink()


def _make_folders(layout: Layout) -> None:
    layout.root.mkdir(parents=True, mode=0o700)
    folders = [layout.logs, layout.temporary, layout.cdi_dir, layout.cni_conf, layout.cni_data, layout.pod_logs]
    # the kubelet makes these two itself, but a driver may want to start before it
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
