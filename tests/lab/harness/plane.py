"""The control plane on this machine that the virtual machine joins as a node.

Its API server listens on the loopback interface of this machine only. QEMU's user network forwards one address of the
machine's network to it, so the machine reaches the API server and nothing else. The API server does not reach the
machine: there is no `kubectl logs` or `exec`.
"""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from tests.cluster.harness.build import ensure_kubernetes
from tests.cluster.harness.cache import Version
from tests.cluster.harness.control_plane import BETA, ControlPlaneSettings, control_plane
from tests.cluster.harness.runtime import ensure_runtime
from tests.lab.harness.layers import KUBERNETES, RUNTIME, ending_with_this_thread, temporary_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.cluster.harness.cache import Cache
    from tests.cluster.harness.control_plane import ControlPlane
    from tests.cluster.harness.progress import Progress

NODE: Final = "node-lab"
"""The name of the node."""
ADDRESS, PORT = "10.0.2.100", 6443
"""Where the node reaches the API server."""
NODE_ADDRESS: Final = "10.0.2.15"
"""The address of the node, which it alone uses."""
HANDED_OVER: Final = "plane"
"""The directory among the machine's results with what the node needs to join."""
_SLOW: Final = {
    # The node is emulated, perhaps on a busy machine: late heartbeats are no reason to evict its pods.
    "controller-manager": ["--node-monitor-grace-period=20m"],
}


@dataclass(frozen=True)
class NodePlane:
    """A control plane for one node.

    plane: the control plane.
    gates: its feature gates.
    read: the directories of this machine that the node reads, by their paths in it.
    """

    plane: ControlPlane
    gates: Mapping[str, bool]
    read: Mapping[str, Path]

    @property
    def port(self) -> int:
        """The port of the API server on this machine."""
        port = urlsplit(self.plane.server).port
        assert port is not None, self.plane.server
        return port

    def hand_over(self, results: Path) -> None:
        """Writes what the node needs to join: certificates and keys, the version and the feature gates."""
        target, authority = results / HANDED_OVER, self.plane.authority
        (target / "pki").mkdir(parents=True)
        shutil.copy(authority.certificate("ca"), target / "pki")
        for name in ("admin", "server", NODE):
            shutil.copy(authority.certificate(name), target / "pki")
            shutil.copy(authority.key(name), target / "pki")
        content = {"version": self.plane.version, "gates": dict(self.gates)}
        (target / "plane.json").write_text(json.dumps(content))


def ensure_binaries(cache: Cache, version: str, progress: Progress) -> dict[str, Path]:
    """Makes sure that the programs of control plane and node are in the cache.

    Returns their directories by their paths in the virtual machine.
    """
    ensure_runtime(cache, progress)
    ensure_kubernetes(cache, Version.parse(version), progress)
    return {KUBERNETES: cache.root / "kube", RUNTIME: cache.runtime}


@contextmanager
def node_plane(cache: Cache, version: str, progress: Progress) -> Iterator[NodePlane]:
    """Runs a control plane and removes it afterwards."""
    read = ensure_binaries(cache, version, progress)
    settings = ControlPlaneSettings(
        version,
        BETA,
        flags=_SLOW,
        scheduler=True,
        controllers=True,
        nodes=[NODE],
        hosts=[ADDRESS, NODE_ADDRESS],
        start_with=ending_with_this_thread(),
    )
    with (
        temporary_directory() as folder,
        control_plane("lab", folder, settings, progress) as plane,
    ):
        yield NodePlane(plane, BETA, read)
