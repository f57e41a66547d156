"""The virtual machine as a node: containerd with NRI and CDI, and a kubelet. This runs inside the machine.

It is the node's half of `tests.cluster.harness.cluster`, with the same configuration but for the control groups: the
machine has version 2 with every controller, so the kubelet makes the hierarchy of real nodes. The node's folder is on a
disk. So the next boot finds everything but what real nodes have in memory: sockets, CDI specs, the state of containers.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from tests.cluster.harness import configuration, pki
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.debian import find_tool
from tests.cluster.harness.errors import HarnessError
from tests.cluster.harness.layout import Layout
from tests.cluster.harness.state import PORTS, State, boot_id
from tests.cluster.harness.waiting import poll
from tests.lab.harness.layers import KUBERNETES, RESULTS
from tests.lab.harness.plane import ADDRESS, HANDED_OVER, NODE, NODE_ADDRESS, PORT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tests.cluster.harness.progress import Progress

T = TypeVar("T")

LIMIT: Final = 800.0
"""Seconds for one wait, a little less than pytest allows for a test. On an idle machine, the slowest takes less than a
minute."""
_CACHE: Final = str(Path(KUBERNETES).parent)
_DISK: Final = Path("/dev/vda")
PAUSE: Final = 1.0
"""Seconds before each check of a wait. One CPU emulates all of the node, and a request needs a connection with TLS."""
_SLOWER: Final = 30
"""How many times slower than a real node it may be; time limits of containerd are so much longer."""
_CGROUPS: Final = Path("/sys/fs/cgroup")
_GATEWAY: Final = "10.0.2.2"
_FIRST_PORT: Final = 10250
DAEMONS: Final = ("containerd", "kubelet")
"""The components of a node, in the order of their start."""


class NodeLayout(Layout):
    """The paths of the node, and its addresses in QEMU's user network."""

    @property
    def node_name(self) -> str:
        return NODE

    @property
    def service_address(self) -> str:
        return ADDRESS

    @property
    def node_address(self) -> str:
        return NODE_ADDRESS


class Node(Cluster):
    """The node. Of the components of a cluster, it has `containerd` and `kubelet`."""

    @classmethod
    def join(cls, progress: Progress) -> Self:
        """Starts containerd and the kubelet, also after a boot, and waits until the node is ready for pods."""
        handed_over = Path(RESULTS) / HANDED_OVER
        if not handed_over.is_dir():
            raise HarnessError(f"{handed_over} is absent: only the virtual machine of `make test-lab` can join")
        content = json.loads((handed_over / "plane.json").read_text())
        layout = NodeLayout.of("lab")
        ports = {name: number for number, name in enumerate(PORTS, _FIRST_PORT)} | {"apiserver": PORT}
        node = cls(layout, State(layout.name, content["version"], content["gates"], _CACHE, ports, {}), progress)
        with progress.step("joining the control plane") as step:
            step.detail = "network and disk"
            _connect()
            _mount_disk(layout.root.parent)
            _use_all_controllers()
            again = layout.root.exists()
            if again:
                node._forget_last_boot()
            else:
                node._configure(handed_over / "pki")
            step.detail = "containerd"
            node._daemons.start("containerd", LIMIT)
            if not again:
                configuration.import_image(layout, node._runtime)
            step.detail = "kubelet"
            node._daemons.start("kubelet", LIMIT)
            step.detail = "node"
            node.wait_until(node._ready_since_boot, f"node {NODE} Ready", LIMIT)
            node.wait_namespace("default")
            step.detail = f"{NODE} is ready after {_uptime()} s"
        return node

    def wait_until(
        self, check: Callable[[], T | None], what: str, timeout: float = LIMIT, watch: Iterable[str] | None = None
    ) -> T:
        """Does what `Cluster.wait_until` does, at longer intervals: a check takes time from what it waits for."""

        def check_after_pause() -> T | None:
            time.sleep(PAUSE)
            return check()

        return super().wait_until(check_after_pause, what, timeout, watch)

    def apply(self, *objects: Mapping[str, Any] | str) -> None:
        """Does what `Cluster.apply` does, without the schemas of all kinds, which kubectl would read for a minute."""
        texts = [each if isinstance(each, str) else json.dumps(each) for each in objects]
        flags = ("--validate=false", "--openapi-patch=false")
        self.kubectl("apply", *flags, "-f", "-", input="".join(f"---\n{text}\n" for text in texts))

    def start(self, component: str, timeout: float = LIMIT) -> None:
        """Starts a component that was stopped or killed, and waits until the kubelet reaches the containers again."""
        self._daemons.start(component, timeout)
        if all(self.component_states()[name] for name in DAEMONS):
            self.wait_until(self._kubelet_is_back, "the kubelet knows its pods and reaches containerd", timeout)

    def leave(self) -> None:
        """Stops the kubelet and containerd. Containers run on."""
        for name in reversed(DAEMONS):
            self._daemons.stop(name)

    def _ready_since_boot(self) -> bool:
        """Tells whether this boot's kubelet has reported the node as ready."""
        found = self._try_get(f"/api/v1/nodes/{NODE}")
        if found is None or found["status"].get("nodeInfo", {}).get("bootID") != boot_id():
            return False
        return any((each["type"], each["status"]) == ("Ready", "True") for each in found["status"]["conditions"])

    def _forget_last_boot(self) -> None:
        """Empties the directories that are in memory on real nodes."""
        for directory in (self._layout.containerd_state, self._layout.cdi_dir, self._layout.temporary):
            shutil.rmtree(directory, ignore_errors=True)
        for directory in (self._layout.cdi_dir, self._layout.temporary):
            directory.mkdir()

    def _configure(self, keys: Path) -> None:
        """Writes the files that containerd and the kubelet read."""
        layout = self._layout
        configuration.make_folders(layout)
        shutil.copytree(keys, layout.pki)
        authority = pki.Authority(layout.pki)
        for file, user in {layout.kubeconfig: "admin", layout.root / "kubelet.kubeconfig": NODE}.items():
            file.write_text(pki.kubeconfig(self.server, authority.certificate("ca"), authority.user(user)))
        runc = find_tool("runc")
        if runc is None:
            raise HarnessError("the virtual machine has no runc")
        config = configuration.containerd_config(layout, self._runtime, runc, slower=_SLOWER)
        (layout.root / "containerd.toml").write_text(config)
        (layout.cni_conf / "10-pods.conflist").write_text(configuration.network_config(layout))
        changes = {"cgroupsPerQOS": True, "enforceNodeAllocatable": ["pods"], "failCgroupV1": True}
        changes["runtimeRequestTimeout"] = "15m"
        (layout.root / "kubelet.json").write_text(configuration.kubelet_config(layout, self._state, **changes))


def _connect() -> None:
    """Gives the interface of QEMU's user network its address. All other interfaces are connected to nothing."""
    subprocess.run(["modprobe", "virtio_net"], check=True)
    drivers = Path("/sys/bus/virtio/drivers/virtio_net")
    found = poll(lambda: [path.name for path in drivers.glob("virtio*/net/*")], LIMIT)
    if not found:
        raise HarnessError("the virtual machine has no interface of virtio_net")
    for words in (
        ["address", "replace", f"{NODE_ADDRESS}/24", "dev", found[0]],
        ["link", "set", found[0], "up"],
        ["route", "replace", "default", "via", _GATEWAY],
    ):
        subprocess.run(["ip", *words], check=True)


def _mount_disk(directory: Path) -> None:
    """Mounts the machine's disk; makes its file system at the first boot."""
    for module in ("virtio_blk", "ext4"):
        subprocess.run(["modprobe", module], check=True)
    if not poll(_DISK.exists, LIMIT):
        raise HarnessError(f"the virtual machine has no disk {_DISK}")
    directory.mkdir(parents=True, exist_ok=True)
    if subprocess.run(["blkid", _DISK], capture_output=True, check=False).returncode != 0:
        subprocess.run(["mkfs.ext4", "-q", _DISK], check=True)
    subprocess.run(["mount", _DISK, directory], check=True)


def _uptime() -> str:
    return Path("/proc/uptime").read_text().split()[0]


def _use_all_controllers() -> None:
    """Turns on all controllers below the root of the control groups, as systemd does for its slices."""
    available = (_CGROUPS / "cgroup.controllers").read_text().split()
    (_CGROUPS / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in available))
