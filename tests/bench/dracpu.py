"""`python -m tests.bench.dracpu BINARY`: the CPU driver beside the Go driver `dra.cpu`, call by call in turn.

Both are NRI plugins of one containerd, on one control plane (tests/cluster/harness); each has a Node, a kubelet and CDI
specs of its own. Claims ask for one CPU. The Go driver's client waits after ten requests in a row, and then above five
in a second. So a side is called every PAUSE seconds on average: after a pause each time, or in bursts without one, as
when several pods start; from five rounds on, the Go driver waits in them. Build the binary from
kubernetes-sigs/dra-driver-cpu, `./cmd/dracpu`; it needs root.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

from dra_sdk.kube import paths
from dra_sdk.kube.client import KubeClient
from dra_sdk.model.claim import ClaimRef
from tests.bench.calls import OPERATIONS, Side
from tests.bench.contestants import Contestant, Dirs
from tests.bench.control_plane import single_node_cluster
from tests.bench.machine import describe_machine
from tests.bench.node import Node, nodes
from tests.bench.runtime import HEAD, print_comparison
from tests.bench.stats import Pair
from tests.cluster.harness import Cluster
from tests.cluster.manifests import claim, request

DRIVER = "dra.cpu"
PAUSE = 0.4
_FIXED: Final = (Path("/run/nri"), Path("/run/cdi"))
"""Where the Go driver looks for the runtime's socket and writes CDI specs."""


def main(arguments: Sequence[str]) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary", type=Path)
    parser.add_argument("--rounds", type=int, default=100, help="how often each side gets each call")
    parser.add_argument("--burst", type=int, default=1, help="rounds in a row; 1: pauses between calls")
    parser.add_argument("--state-dir", type=Path, help="where the state files lie; by default where temporary files do")
    given = parser.parse_args(arguments)
    with ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="dra-bench-", dir=given.state_dir)
        root, cdi = Path(stack.enter_context(temporary)), Path(stack.enter_context(_specs()))
        stack.enter_context(_fixed_directories())
        cluster = stack.enter_context(single_node_cluster())
        print(describe_machine(root, cdi), f"Kubernetes {cluster.version}")
        contestants = (_ours(cluster, root, cdi), _theirs(cluster, root, cdi, given.binary.absolute()))
        kubelets = stack.enter_context(nodes(contestants))
        pair = zip(contestants, kubelets, strict=True)
        client = stack.enter_context(closing(KubeClient.connect(cluster.kubeconfig, agent="bench")))
        sides = [stack.enter_context(_running(cluster, client, each, kubelet)) for each, kubelet in pair]
        found = _rounds(sides, given.rounds, given.burst)
    print(HEAD)
    for name, pairs in found.items():
        print_comparison(name, "Go", pairs)
    return 0


def _rounds(sides: Sequence[Side], number: int, burst: int) -> dict[str, list[Pair]]:
    """Each call on both sides right after each other, in an order drawn anew each time; the first ones do not count."""
    draw, found = random.Random(), dict[str, list[Pair]]((name, []) for name in OPERATIONS)
    warm_up = 8
    for turn in range(warm_up + number):
        for name in OPERATIONS:
            seconds = [0.0, 0.0]
            for index in draw.sample((0, 1), 2):
                seconds[index] = sides[index].operation(name)(sides[index].claims[0])
            if turn >= warm_up:
                found[name].append((seconds[0], seconds[1]))
            if burst == 1:
                time.sleep(PAUSE)
        if burst > 1 and turn % burst == burst - 1:
            time.sleep(burst * len(OPERATIONS) * PAUSE)
    return found


@contextmanager
def _specs() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="dra-bench-", dir="/dev/shm") as folder:
        yield folder


@contextmanager
def _fixed_directories() -> Iterator[None]:
    made = [path for path in _FIXED if not path.exists()]
    try:
        for path in made:
            path.mkdir(parents=True)
        yield
    finally:
        for path in made:
            path.rmdir()


def _ours(cluster: Cluster, root: Path, cdi: Path) -> Contestant:
    dirs = Dirs(root / "ours", cdi / "ours", root / "ours.log")
    command = [
        sys.executable, "-m", "dra_sdk.cli.main", "run", "cpu", "--node-name=bench-ours", f"--cdi-dir={dirs.cdi}",
        f"--kubeconfig={cluster.kubeconfig}", f"--kubelet-dir={dirs.kubelet}", f"--nri-socket={cluster.nri_socket}",
    ]  # fmt: skip
    return Contestant("dra_sdk", "bench-ours", DRIVER, dirs, lambda _devices: command)


def _theirs(cluster: Cluster, root: Path, cdi: Path, binary: Path) -> Contestant:
    """The Go driver. A mount namespace gives it the directories that it cannot be told."""
    dirs = Dirs(root / "go", cdi / "go", root / "go.log")
    mounts = zip((cluster.nri_socket.parent, dirs.cdi), _FIXED, strict=True)
    enter = " && ".join(f"mount --bind {what} {to}" for what, to in mounts)
    program = (
        f"{binary} --kubeconfig={cluster.kubeconfig} --hostname-override=bench-go --kubelet-root-dir={dirs.kubelet} "
        "--bind-address=127.0.0.1:0"
    )
    command = ["unshare", "--mount", "sh", "-c", f"{enter} && exec {program}"]
    return Contestant("Go", "bench-go", DRIVER, dirs, lambda _devices: command)


@contextmanager
def _running(cluster: Cluster, client: KubeClient, contestant: Contestant, kubelet: Node) -> Iterator[Side]:
    """Run a driver on its own Node; its side has one claim."""
    node = contestant.user
    client.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    running = contestant.start(0)
    try:
        kubelet.wait_registered(running)
        device = cluster.wait_until(lambda: _device(client, node), f"a device of {node} is published")
        yield Side(running, kubelet, [_claim(client, node, device)])
    finally:
        running.kill()


def _device(client: KubeClient, node: str) -> str:
    """The name of the node's first device; empty until it is published."""
    pieces = client.list(paths.resource_slices(), {"fieldSelector": f"spec.nodeName={node}"})["items"]
    return next((str(device["name"]) for each in pieces for device in each["spec"].get("devices") or ()), "")


def _claim(client: KubeClient, name: str, device: str) -> ClaimRef:
    """Create a claim for one CPU of a device, and allocate it as kube-scheduler does."""
    capacity = {"dra.cpu/cpu": "1"}
    wanted = request("cpu", DRIVER, capacity={"requests": capacity})
    made = client.create(paths.resource_claims("default"), claim(name, [wanted]))
    result = {"request": "cpu", "driver": DRIVER, "pool": name, "device": device, "consumedCapacity": capacity}
    result["shareID"] = made["metadata"]["uid"]
    made["status"] = {"allocation": {"devices": {"results": [result]}}}
    client.update(paths.resource_claim_status("default", name), made)
    return ClaimRef("default", name, made["metadata"]["uid"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
