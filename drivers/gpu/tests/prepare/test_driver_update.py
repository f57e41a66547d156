"""An update of the driver while MPS clients run: the container runtime ends the old driver, the daemon goes on."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from dra_driver_gpu.testing.node import write_tools

from dra_sdk.hardware.node_access import Command, SystemEffects
from dra_sdk.testing.cgroups import real_cgroups
from dra_sdk.testing.waiting import wait

DRIVER = """
import sys, time
from pathlib import Path
from dra_driver_gpu.nvidia_node import NvidiaNode
from dra_driver_gpu.nvml.library import NvmlLibrary
from dra_driver_gpu.testing.nvml import MemoryNvml, fake_gpu
from dra_driver_gpu.prepare.mps import MpsDaemon, mps_daemons
from dra_driver_gpu.settings import GpuSettings
from dra_sdk.hardware.daemons import DaemonWatch
from dra_sdk.hardware.node_access import SystemEffects

directory, action, claim = sys.argv[1:]
gpu = fake_gpu("L4", 0)
settings = GpuSettings(driver_root=f"{directory}/driver", state_dir=f"{directory}/state", mps_shm="host")
library = NvmlLibrary(MemoryNvml([gpu], driver_version="580.95.05"))
daemons = mps_daemons(NvidiaNode(Path("/"), SystemEffects(), settings=settings, library=library))
if action == "start":
    daemons.start(MpsDaemon(claim, [gpu.uuid]))
if action == "stop":
    for daemon_id in list(daemons.ids()):
        daemons.stop(daemon_id)
else:
    watch = DaemonWatch()
    for number in range(600):
        watch.check(daemons, time.monotonic())
        (spec,) = daemons.wanted()
        print(number, spec.id, *spec.process, flush=True)
        time.sleep(0.1)
"""
CLIENT = """
while echo get_server_list | "$TOOL" > /dev/null && kill -0 "$DAEMON"; do echo works; sleep 0.05; done
echo lost
"""


@pytest.fixture
def make_cgroup():
    with real_cgroups() as make:
        yield make


class Update:
    """A node with a driver in a container after another."""

    def __init__(self, directory: Path, make_cgroup) -> None:
        self.directory, self.make_cgroup = directory, make_cgroup
        self.claim = secrets.token_hex()  # cgroups belong to the machine, so no other run may have the same daemon
        write_tools(directory, directory / "driver")

    def driver(self, action):
        """Starts a driver in the cgroup of a new container; its output."""
        container, output = self.make_cgroup("container"), self.directory / f"{action}.log"
        command = Command([sys.executable, "-c", DRIVER, str(self.directory), action, self.claim])
        SystemEffects().start(container.enclose(command), output)
        return container, output

    def client(self, line):
        """Starts a client of the daemon in a line of a driver's output, elsewhere on the node."""
        _, daemon_id, pid, _ = line.split()
        env = {
            **os.environ,
            "TOOL": str(self.directory / "driver/usr/bin/nvidia-cuda-mps-control"),
            "DAEMON": pid,
            "CUDA_MPS_PIPE_DIRECTORY": f"{self.directory}/state/mps/{daemon_id}/pipe",
            "CUDA_MPS_LOG_DIRECTORY": str(self.directory),
        }
        with (self.directory / "client.log").open("w") as log:
            return subprocess.Popen(["sh", "-c", CLIENT], env=env, stdout=log, stderr=log)

    def answers(self):
        return (self.directory / "client.log").read_text().split()


def lines(output):
    return output.read_text().splitlines() if output.exists() else []


def test_an_update_of_the_driver_loses_no_mps_client(make_cgroup, tmp_path):
    node = Update(tmp_path, make_cgroup)
    container, output = node.driver("start")
    first = wait(lambda: lines(output))[0]
    _, daemon_id, pid, started = first.split()
    client = node.client(first)
    wait(lambda: "works" in node.answers())
    inside = container.processes()
    assert inside
    assert int(pid) not in inside
    for container_pid in inside:  # as the runtime ends a container
        os.kill(container_pid, signal.SIGKILL)
    wait(lambda: not container.processes())

    _, output = node.driver("again")
    wait(lambda: len(lines(output)) >= 3)
    assert lines(output)[-1].split()[1:] == [daemon_id, pid, started], "the same daemon is supervised"
    before = len(node.answers())
    wait(lambda: len(node.answers()) > before)
    assert "lost" not in node.answers()

    _, output = node.driver("stop")  # its claim is unprepared
    assert client.wait() == 0
    assert node.answers()[-1] == "lost"
    wait(lambda: not list((tmp_path / "state/mps").iterdir()))
    wait(lambda: not list(Path("/sys/fs/cgroup").glob(f"**/dra_gpu_mps_daemon-{daemon_id}")))
    assert SystemEffects().started(int(pid)) is None
