"""The node of a cluster loses its power and boots again: as far as containerd, the kubelet and drivers can see.

The kernel of this machine goes on. What a boot changes is changed for the node alone: its processes, mounts, interfaces
and cgroups end, what /run has is lost, and the pods of drivers see another boot id.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cluster.harness import leftovers, network
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.layout import Layout
from tests.cluster.harness.processes import Process, kill, marked

HOST = "/host"
BOOT_ID = "proc/sys/kernel/random/boot_id"


class Node:
    """The node of a cluster; within `with` there is a root of it, with /proc and /sys, whose boot id can change."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._layout = cluster, Layout.of(cluster.name)
        self.root, self._boot_id = cluster.dir / "host", cluster.dir / "boot-id"

    def __enter__(self) -> Self:
        self._new_boot_id()
        for name, flag in (("proc", "--bind"), ("sys", "--rbind")):
            (self.root / name).mkdir(parents=True)
            _mount(flag, f"/{name}", self.root / name)
            _mount("--make-rprivate", self.root / name)
        _mount("--bind", self._boot_id, self.root / BOOT_ID)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leftovers.unmount_all(self.root)
        shutil.rmtree(self.root)
        self._boot_id.unlink()

    def show_boot_id(self, namespace: str, daemon_set: str) -> None:
        """Makes the pods of a driver read /proc and /sys of the host below that root."""
        mount = {"name": "host", "mountPath": HOST, "readOnly": True}
        variable = {"name": "DRA_SDK_HOST_ROOT", "value": HOST}
        container = {"name": "driver", "env": [variable], "volumeMounts": [mount]}
        volume = {"name": "host", "hostPath": {"path": str(self.root)}}
        patch = {"spec": {"template": {"spec": {"containers": [container], "volumes": [volume]}}}}
        self._cluster.kubectl(
            "patch", "daemonset", daemon_set, f"--namespace={namespace}", f"--patch={json.dumps(patch)}"
        )

    def reboot(self) -> None:
        """Turns the node off without a word to anyone, and on again. The control plane is another machine, and runs."""
        layout = self._layout
        for component in ("kubelet", "containerd"):
            self._cluster.kill(component)
        kill(each for each in marked(self._cluster.name) if _is_shim(each))
        identities = leftovers.container_ids(layout.tasks)
        cgroups = leftovers.cgroups_of(identities)
        while running := leftovers.processes_in(cgroups):
            kill(running)
        sockets = leftovers.shim_sockets(layout.tasks)
        leftovers.unmount_all(layout.containerd_state)
        leftovers.unmount_all(layout.kubelet_dir / "pods")
        leftovers.remove_cgroups(cgroups)
        leftovers.remove_shim_sockets(sockets)
        network.remove_pod_interfaces(layout.pod_gateway)
        for lost in (layout.containerd_state, layout.root / "runc", layout.nri_socket.parent, *layout.cdi_spec_dirs):
            shutil.rmtree(lost, ignore_errors=True)  # as /run is a tmpfs
        self._new_boot_id()
        for component in ("containerd", "kubelet"):
            self._cluster.start(component)

    def _new_boot_id(self) -> None:
        self._boot_id.write_text(f"{uuid.uuid4()}\n")


def _is_shim(process: Process) -> bool:
    try:
        return Path(f"/proc/{process.pid}/comm").read_text().startswith("containerd-shim")
    except OSError:  # it has ended
        return False


def _mount(*words: object) -> None:
    subprocess.run(["mount", *map(str, words)], check=True)
