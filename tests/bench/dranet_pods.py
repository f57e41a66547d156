"""`python -m tests.bench.dranet_pods BINARY`: pods with one interface on a real kubelet, by our driver and by dranet.

Both drivers have the same name, so they run in turn, for some pods each, on one cluster (tests/cluster/harness), each
as a process of its own. A pod gets a veth of this machine. Its start is the time from its creation in the API server
until it is Ready; so it contains the scheduler, the kubelet, containerd and its network plugin, too. A pod is created
when the interface is back, and published for a moment. The binary is as for `tests.bench.dranet`; it needs root.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.bench.control_plane import single_node_cluster
from tests.bench.machine import describe_machine
from tests.bench.net import CONFIG, DRIVER
from tests.bench.runtime import HEAD, print_comparison
from tests.cluster.deployed import install
from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.harness import Cluster
from tests.cluster.manifests import config, container, device_class, pod, request, template

INTERFACE = "drab0"
_WAIT = 120.0
_PAUSE = 3.0
"""Seconds between two pods: dranet looks for interfaces at most every two."""
_LOOK = 0.02
_PODS = "/api/v1/namespaces/default/pods"
_SLICES = f"/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.driver%3D{DRIVER}"
_NRI = Path("/run/nri")  # where dranet looks for the runtime; it cannot be told
_WORDS = ("apiVersion", "kind")  # dranet's configuration has none


def main(arguments: Sequence[str]) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary", type=Path)
    parser.add_argument("--pods", type=int, default=6, help="pods of a driver in a row")
    parser.add_argument("--rounds", type=int, default=4, help="how often each driver has its turn")
    parser.add_argument("--no-metadata", action="store_true", help="ours without metadata files, as dranet")
    given = parser.parse_args(arguments)
    target = "tests.bench.nic_without_metadata:NicWithoutMetadata" if given.no_metadata else "nic"
    found: tuple[list[float], list[float]] = ([], [])
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dra-bench-")))
        cluster = stack.enter_context(single_node_cluster())
        print(describe_machine(cluster.kubelet_dir, cluster.cdi_dir), f"Kubernetes {cluster.version}")
        stack.enter_context(_interface())
        cluster.apply(device_class("nic", DRIVER))
        for number in range(given.rounds):
            for side in (0, 1) if number % 2 else (1, 0):
                driver = _theirs(cluster, folder, given.binary.absolute()) if side else _ours(cluster, folder, target)
                with driver:
                    found[side].extend(_start_pods(cluster, ("ours", "theirs")[side], given.pods))
    print(HEAD)
    print_comparison("pod Ready", "dranet", list(zip(*found, strict=True)))
    return 0


def _start_pods(cluster: Cluster, side: str, number: int) -> Iterator[float]:
    """Start pods one after the other; the seconds of each."""
    parameters = {key: value for key, value in CONFIG.items() if side == "ours" or key not in _WORDS}
    made = template(f"nic-{side}", [request("nic", "nic")], [config(DRIVER, parameters, "nic")])
    cluster.apply(made)
    for _ in range(number):
        name = f"pod-{side}"
        cluster.wait_until(lambda: INTERFACE in _published(cluster), f"{INTERFACE} is published")
        time.sleep(_PAUSE)
        uses = [{"name": "nic", "resourceClaimTemplateName": f"nic-{side}"}]
        begin = time.perf_counter()
        cluster.api.create(_PODS, pod(name, uses, container("main", {"name": "nic"})))
        _wait(lambda name=name: _is_ready(cluster.api.get(f"{_PODS}/{name}")), f"pod {name} is Ready")  # type: ignore[misc]
        yield time.perf_counter() - begin
        if _is_here():
            raise SystemExit(f"pod {name} runs, but {INTERFACE} is still on the node")
        cluster.kubectl("delete", "pod", name, "--wait=true")
        _wait(_is_here, f"{INTERFACE} is back on the node")
        _ip(f"link set {INTERFACE} mtu 4000 up")


def _is_ready(found: dict[str, Any]) -> bool:
    conditions = found.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _published(cluster: Cluster) -> set[str]:
    items = cluster.api.get(_SLICES)["items"]
    return {device["name"] for each in items for device in each["spec"].get("devices") or ()}


def _is_here() -> bool:
    return Path(f"/sys/class/net/{INTERFACE}").exists()


def _wait(check: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _WAIT
    while not check():
        if time.monotonic() > end:
            raise SystemExit(f"not within {_WAIT:g} s: {what}")
        time.sleep(_LOOK)


def _ip(*arguments: str) -> None:
    for each in arguments:
        subprocess.run(["ip", *each.split()], check=True)


@contextmanager
def _interface() -> Iterator[None]:
    _ip(f"link add {INTERFACE} mtu 4000 type veth peer name {INTERFACE}w", f"link set {INTERFACE}w up")
    try:
        _ip(f"link set {INTERFACE} up")
        yield
    finally:
        _ip(f"link del {INTERFACE}w")


@contextmanager
def _ours(cluster: Cluster, folder: Path, target: str) -> Iterator[None]:
    others = {path.name for path in Path("/sys/class/net").iterdir()} - {INTERFACE}
    os.environ["DRA_NIC_SOFTWARE"] = "veth"
    os.environ["DRA_NIC_PROTECT"] = ",".join(["veth*", *sorted(others)])
    os.environ["DRA_NIC_STATE_DIR"] = str(cluster.dir / "nic-state")
    driver = DriverUnderTest(cluster, target, DRIVER, folder)
    install(cluster, DRIVER, deviceStatus=True)
    driver.start("--nri-socket", str(cluster.nri_socket))
    try:
        driver.wait(driver.ready)
        driver.wait(lambda: "connected to containerd" in driver.log_since_start())
        yield
    finally:
        driver.stop()
        cluster.api.delete(_SLICES)


@contextmanager
def _theirs(cluster: Cluster, folder: Path, binary: Path) -> Iterator[None]:
    """dranet, which finds the runtime's socket at its usual place. Its store is on tmpfs, as usual."""
    log = folder / "dranet.log"
    command = [
        str(binary), f"--kubeconfig={cluster.kubeconfig}", f"--hostname-override={cluster.node_name}", "--v=0",
        "--bind-address=127.0.0.1:0", f"--kubelet-root-dir={cluster.kubelet_dir}", "--cloud-provider-hint=NONE",
        f"--db-path=/dev/shm/{folder.name}.db", f'--filter=attributes["dra.net/ifName"].StringValue=="{INTERFACE}"',
    ]  # fmt: skip
    _NRI.symlink_to(cluster.nri_socket.parent)
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as driver:
        try:
            _wait(lambda: "Synchronized state with the runtime" in log.read_text(), "dranet is connected")
            cluster.wait_until(lambda: INTERFACE in _published(cluster), "dranet has published its interface")
            yield
        except BaseException:
            print(log.read_text()[-3000:], file=sys.stderr)
            raise
        finally:
            driver.terminate()
            driver.wait()
            Path(f"/dev/shm/{folder.name}.db").unlink(missing_ok=True)
            _NRI.unlink()
            cluster.api.delete(_SLICES)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
