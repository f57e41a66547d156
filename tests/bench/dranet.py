"""`python -m tests.bench.dranet BINARY`: pods with one interface by our network driver and by dranet, in turn.

Both drivers run in the network namespace of this process, which is the node's, each beside a kubelet, an API server and
a container runtime of its own. Each gives a veth of its own to pods, alike and with the same configuration: what one
driver has taken, the other one does not publish. After each pod this process gives the veth its state on the node
again, which dranet does not. Then it waits until both publish their interface again, without which a scheduler gives it
to no pod: dranet looks every two seconds, and needs ten times as long for a claim of one that it has not seen yet.

A pod's start is NodePrepareResources and RunPodSandbox, one after the other. The binary is built from dranet's module
(`go build ./cmd/dranet`). It needs root.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dra_driver_nic.testing import PrivateNamespace

from dra_sdk.tools.simulator import AllocatedDevice, EmbeddedCluster
from dra_sdk.tools.simulator.nri import NriRuntime
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb
from tests.bench.machine import describe_machine
from tests.bench.net import CONFIG, CYCLES, DRIVER, enter_node, processor_time
from tests.bench.runtime import HEAD, print_comparison, running_driver, wait_connected

_START, _PREPARE, _SANDBOX, _STOP = "pod start", "prepare", "RunPodSandbox", "StopPodSandbox"
_WAIT = 60.0
_PAUSE = 3.0
"""Seconds between two pods of a driver, in which both have noticed that their interface is back."""
_WORDS = ("apiVersion", "kind")  # dranet's configuration has none
_MOUNTS = (
    "mount -t tmpfs run /run && mkdir /run/nri /run/cdi && mount --bind {nri} /run/nri && mount --bind {cdi} /run/cdi"
)


@dataclass(frozen=True)
class Side:
    """A driver with what it talks to.

    interface: the veth that it gives to pods.
    config: the parameters of its claims.
    pid: its process.
    """

    cluster: EmbeddedCluster
    runtime: NriRuntime
    interface: str
    config: Mapping[str, Any]
    pid: int

    def wait_published(self) -> None:
        """Wait until the interface is among the published devices."""
        end = time.monotonic() + _WAIT
        while self.interface not in {
            device["name"] for each in self.cluster.wait_slices(DRIVER) for device in each["spec"].get("devices") or ()
        }:
            if time.monotonic() > end:
                raise SystemExit(f"{self.interface} is not published within {_WAIT:g} s")
            time.sleep(0.1)

    def start(self, name: str, namespace: PrivateNamespace) -> dict[str, float]:
        """Start a pod with the interface, and stop it; the seconds of each part."""
        self.cluster.create_claim(
            name,
            {"nic": "nic"},
            config=[{"requests": ["nic"], "opaque": {"driver": DRIVER, "parameters": self.config}}],
        )
        self.cluster.allocate(name, [AllocatedDevice("nic", DRIVER, self.cluster.node_name, self.interface)])
        self.cluster.create_pod(name, [name])
        begin = time.perf_counter()
        pod = self.cluster.run_pod(name, [name])
        prepared = time.perf_counter() - begin
        sandbox = pb.PodSandbox(id=name, name=name, uid=pod.uid, namespace=pod.namespace)
        sandbox.linux.namespaces.add(type="network", path=str(namespace.path).replace("self", str(os.getpid())))
        begin = time.perf_counter()
        self.runtime.run_pod(sandbox)
        started = time.perf_counter() - begin
        addresses = namespace.ip(f"-o addr show {self.interface}")
        if "10.200.7.5/24" not in addresses or "10.201.0.0/16" not in namespace.ip("route"):
            raise SystemExit(f"pod {name} has not got its interface: {addresses}")
        begin = time.perf_counter()
        self.runtime.stop_pod(name)
        stopped = time.perf_counter() - begin
        self.runtime.remove_pod(name)
        self.cluster.stop_pod(name)
        return {_START: prepared + started, _PREPARE: prepared, _SANDBOX: started, _STOP: stopped}


def main(arguments: Sequence[str]) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary", type=Path)
    parser.add_argument("--cycles", type=int, default=CYCLES, help="pods of each driver")
    parser.add_argument("--pause", type=float, default=_PAUSE, help="seconds between two pods of a driver")
    given = parser.parse_args(arguments)
    node = enter_node()
    for number in (0, 1):  # with them go the routes, which dranet gives to pods that cannot have them
        node.ip(f"addr del 10.9.{number}.1/24 dev nic{number}")
    found: list[tuple[dict[str, float], dict[str, float]]] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dra-bench-")))
        print(describe_machine(folder, folder))
        ours = stack.enter_context(_ours(folder / "ours"))
        theirs = stack.enter_context(_theirs(folder / "theirs", given.binary.absolute()))
        begin = [processor_time(each.pid) for each in (ours, theirs)]
        for number in range(given.cycles):
            pair: list[dict[str, float]] = [{}, {}]
            for side in (0, 1) if number % 2 else (1, 0):
                with closing(PrivateNamespace()) as namespace:
                    pair[side] = (ours, theirs)[side].start(f"pod-{number}", namespace)
                node.ip(*(f"link set {each.interface} mtu 4000 up" for each in (ours, theirs)))
            time.sleep(given.pause)
            for side in (ours, theirs):
                side.wait_published()
            found.append((pair[0], pair[1]))
        used = [processor_time(each.pid) - before for each, before in zip((ours, theirs), begin, strict=True)]
    node.close()
    print(HEAD)
    for part in (_START, _PREPARE, _SANDBOX, _STOP):
        print_comparison(part, "dranet", [(one[part], other[part]) for one, other in found])
    print("processor time of a pod in ms: " + ", ".join(f"{1000 * each / given.cycles:.1f}" for each in used))
    return 0


@contextmanager
def _ours(folder: Path) -> Iterator[Side]:
    folder.mkdir()
    with EmbeddedCluster() as cluster, NriRuntime(folder / "nri.sock") as runtime:
        settings = {"DRA_NIC_SOFTWARE": "veth", "DRA_NIC_PROTECT": "wire*,nic1", "DRA_NIC_STATE_DIR": f"{folder}/state"}
        with running_driver("nic", cluster, runtime, environment=settings) as driver:
            yield _ready(Side(cluster, runtime, "nic0", CONFIG, driver.pid))


@contextmanager
def _theirs(folder: Path, binary: Path) -> Iterator[Side]:
    """dranet, whose directories cannot be set, in a mount namespace. Its store is on tmpfs, as on a node."""
    folder.mkdir()
    with EmbeddedCluster() as cluster, NriRuntime(folder / "nri.sock") as runtime:
        options = (
            f"--kubeconfig={cluster.kubeconfig} --hostname-override={cluster.node_name} --v=0 "
            f"--kubelet-root-dir={cluster.registry_dir.parent} --bind-address=127.0.0.1:0 --db-path=/run/dranet.db "
            "--filter=true --cloud-provider-hint=NONE"
        )
        mounts = _MOUNTS.format(nri=folder, cdi=cluster.cdi_dir)
        command = ["unshare", "--mount", "sh", "-c", f"{mounts} && exec {binary} {options}"]
        with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as driver:
            try:
                wait_connected(runtime)
                config = {key: value for key, value in CONFIG.items() if key not in _WORDS}
                yield _ready(Side(cluster, runtime, "nic1", config, driver.pid))
            finally:
                driver.terminate()


def _ready(side: Side) -> Side:
    side.cluster.create_class("nic")
    side.cluster.kubelet.wait_for_driver(DRIVER)
    side.cluster.wait_slices(DRIVER)
    return side


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
