"""`python -m tests.bench.nri`: how long a container runtime waits for the CPU driver, on a node of 128 CPUs.

The driver is a process of its own, as on a node; this process is the container runtime. Each call includes this side's
work, which a runtime has too.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from dra_sdk.testing import FakeNode
from dra_sdk.testing.machines import xeon
from dra_sdk.tools.simulator import EmbeddedCluster
from dra_sdk.tools.simulator.nri import NriRuntime
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb
from tests.bench.machine import describe_machine
from tests.bench.runtime import HEAD, print_row, running_driver, wait_connected

CONTAINERS = 200
"""That run while one more is created."""
ALL = 500
"""In the message of Synchronize."""
CALLS = 1000
RESTARTS = 20
_VARIABLES = 20


def main() -> int:
    """Measure, and print a table."""
    with (
        tempfile.TemporaryDirectory(prefix="dra-bench-") as folder,
        EmbeddedCluster() as cluster,
        NriRuntime(Path(folder) / "nri.sock") as runtime,
    ):
        print(describe_machine(Path(folder), Path(folder)))
        node = FakeNode(Path(folder))
        node.machine(xeon(sockets=2, cores=32))
        with running_driver("cpu", cluster, runtime, "--host-root", str(node.root)) as driver:
            memory = [_resident(driver.pid)]
            for number in range(CONTAINERS):
                _start(runtime, number)
            runtime.calls.clear()
            for number in range(CONTAINERS, CONTAINERS + CALLS):
                _start(runtime, number)
                _end(runtime, number)
            created = [each.seconds for each in runtime.calls if each.method == "CreateContainer"]
            memory.append(_resident(driver.pid))
            for number in range(CONTAINERS, ALL):
                _start(runtime, number)
            runtime.calls.clear()
            for _ in range(RESTARTS):
                runtime.stop()
                runtime.start()
                wait_connected(runtime)
            synchronized = [each.seconds for each in runtime.calls if each.method == "Synchronize"]
            memory.append(_resident(driver.pid))
    print(HEAD)
    print_row(f"CreateContainer, {CONTAINERS} containers", created)
    print_row(f"Synchronize, {ALL} containers", synchronized)
    texts = ", ".join(f"{each:.1f}" for each in memory)
    print(f"resident memory in MiB at the start, with {CONTAINERS}, after {RESTARTS} connections with {ALL}: {texts}")
    return 0


def _start(runtime: NriRuntime, number: int) -> None:
    pod = pb.PodSandbox(id=f"s{number}", name=f"pod-{number}", uid=f"u{number}", namespace="default")
    runtime.run_pod(pod)
    container = pb.Container(id=f"c{number}", pod_sandbox_id=pod.id, name="main")
    container.env.extend(f"VARIABLE_{each}=its value" for each in range(_VARIABLES))
    runtime.create_container(container)
    runtime.start_container(container.id)


def _end(runtime: NriRuntime, number: int) -> None:
    runtime.stop_container(f"c{number}")
    runtime.remove_container(f"c{number}")
    runtime.stop_pod(f"s{number}")
    runtime.remove_pod(f"s{number}")


def _resident(pid: int) -> float:
    """MiB of a process's memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


if __name__ == "__main__":
    sys.exit(main())
