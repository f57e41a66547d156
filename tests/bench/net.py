"""`python -m tests.bench.net`: how long a container runtime waits for the network driver while a pod starts and stops.

Everything is in a network namespace of this process, which is the node's and is gone afterwards: the driver, a process
of its own as on a node, the API server, and veths. This process is the kubelet and the container runtime. A call
includes this side's work, which a runtime has too. It needs root.

After all pods, `ip -d link`, addresses, routes, rules, neighbours and sysctls must be byte for byte as before; it fails
if they are not.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from dra_driver_nic.testing import PrivateNamespace, wait_for_state

from dra_sdk.tools.simulator import AllocatedDevice, EmbeddedCluster
from dra_sdk.tools.simulator.nri import NriRuntime, RefusedError
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb
from tests.bench.machine import describe_machine
from tests.bench.runtime import HEAD, print_row, running_driver
from tests.bench.stats import quantile

CYCLES = 100
LIMIT = 0.150
"""Seconds that starting a pod with one interface may take, p99."""
DRIVER = "dra.net"
_CLONE_NEWNET = 0x40000000
_ATTEMPTS = 5
CONFIG = {
    "apiVersion": "dra.net/v1alpha1",
    "kind": "NicConfig",
    "interface": {"addresses": ["10.200.7.5/24", "fd07::5/64"], "mtu": 1400, "arpIgnore": 1},
    "routes": [{"destination": "10.201.0.0/16", "gateway": "10.200.7.1"}],
}


class Bench:
    """One driver with two interfaces, and pods that come and go.

    devices: the driver's devices, each with the name of its interface.
    late: how often a pod's sandbox was started again, because the driver had not answered in time.
    """

    def __init__(self, cluster: EmbeddedCluster, runtime: NriRuntime, devices: Mapping[str, str]) -> None:
        self._cluster, self._runtime, self.devices = cluster, runtime, devices
        self._pods, self.late = 0, 0
        cluster.create_class("nic")

    def run(self, interfaces: int, cycles: int) -> dict[str, list[float]]:
        """Start and stop pods with so many interfaces; the seconds of each call to the driver, by its name."""
        self._runtime.calls.clear()
        for _ in range(cycles):
            self._pods += 1
            self._cycle(f"pod-{self._pods}", interfaces)
        found: dict[str, list[float]] = {}
        for each in self._runtime.calls:
            found.setdefault(each.method, []).append(each.seconds)
        return found

    def _cycle(self, name: str, interfaces: int) -> None:
        devices = {f"nic{number}": device for number, device in enumerate(self.devices) if number < interfaces}
        requests = dict.fromkeys(devices, "nic")
        config: list[dict[str, Any]] = [{"requests": ["nic0"], "opaque": {"driver": DRIVER, "parameters": CONFIG}}]
        self._cluster.create_claim(name, requests, config=config)
        node = self._cluster.node_name
        self._cluster.allocate(name, [AllocatedDevice(nic, DRIVER, node, device) for nic, device in devices.items()])
        pod = self._cluster.run_pod(name, [name])
        with closing(PrivateNamespace()) as namespace:
            path = str(namespace.path).replace("self", str(os.getpid()))
            sandbox = pb.PodSandbox(id=name, name=name, uid=pod.uid, namespace=pod.namespace)
            sandbox.linux.namespaces.add(type="network", path=path)
            self._start(sandbox)
            if not {self.devices[device] for device in devices.values()} <= namespace.names():
                raise SystemExit(f"pod {name} has not got its interfaces")
            self._runtime.stop_pod(name)
            self._runtime.remove_pod(name)
        self._cluster.stop_pod(name)

    def _start(self, sandbox: pb.PodSandbox) -> None:
        """Start a sandbox, as the kubelet does until it succeeds."""
        for _ in range(_ATTEMPTS):
            try:
                return self._runtime.run_pod(sandbox)
            except RefusedError as error:
                self.late += 1
                refused = error
        raise refused


def main(arguments: Sequence[str]) -> int:
    """Measure, and print a table; 1 if the limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=CYCLES, help="pods with one interface, and pods with two")
    cycles = parser.parse_args(arguments).cycles
    node = enter_node()
    with (
        tempfile.TemporaryDirectory(prefix="dra-bench-") as folder,
        EmbeddedCluster() as cluster,
        NriRuntime(Path(folder) / "nri.sock") as runtime,
    ):
        print(describe_machine(Path(folder), Path(folder)))
        settings = {"DRA_NIC_SOFTWARE": "veth", "DRA_NIC_PROTECT": "wire*", "DRA_NIC_STATE_DIR": f"{folder}/state"}
        with running_driver("nic", cluster, runtime, environment=settings) as driver:
            cluster.kubelet.wait_for_driver(DRIVER)
            cluster.wait_slices(DRIVER)
            bench, before = Bench(cluster, runtime, {"nic0": "nic0", "nic1": "nic1"}), node.state()
            found, seconds = {}, {}
            for number in (1, 2):
                begin = processor_time(driver.pid)
                found[number] = bench.run(number, cycles)
                seconds[number] = (processor_time(driver.pid) - begin) / cycles
            wait_for_state(node, before)
    node.close()
    print(HEAD)
    for number, calls in found.items():
        for method in ("RunPodSandbox", "StopPodSandbox"):
            print_row(f"{method}, {number} interface{'s' * (number > 1)}", calls[method])
        print(f"{'processor time of a whole pod':32} {cycles:6} {1000 * seconds[number]:8.2f}")
    print(f"{bench.late} answers were later than a second and asked for again")
    print(f"{2 * cycles} pods have left links, addresses, routes, rules, neighbours and sysctls as they were")
    return int(quantile(found[1]["RunPodSandbox"], 0.99) > LIMIT)


def enter_node() -> PrivateNamespace:
    """Enter a new namespace, which is the node's, with two veths. SystemExit without root."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        raise SystemExit(f"a network namespace needs root: {os.strerror(ctypes.get_errno())}")
    Path("/proc/sys/net/ipv6/conf/default/accept_dad").write_text("0")  # an address is then as before at once
    node = PrivateNamespace.of_this_thread()
    node.ip("link set lo up")
    for number in (0, 1):
        node.ip(
            f"link add wire{number} type veth peer name nic{number}",
            f"link set wire{number} up",
            f"link set nic{number} mtu 4000 up",
            f"addr add 10.9.{number}.1/24 dev nic{number}",
            f"route add 10.77.{number}.0/24 via 10.9.{number}.2",
        )
    return node


def processor_time(pid: int) -> float:
    """Seconds of a process, with the kernel's for it: prepare, both events, unprepare, and noticing each change."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
