"""MPS: a daemon for the GPUs of a claim, what its clients see of it, and the daemon while the driver is down."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from dra_driver_gpu.nvml.values import ComputeMode
from dra_driver_gpu.testing.node import GpuNode

from tests.cluster.harness.cluster import Cluster
from tests.cluster.manifests import claim, container, pod, request, where
from tests.cluster.test_gpu.gpus import NAME, Gpus, shared
from tests.cluster.test_gpu.seen import DRIVER, LOOK, look
from tests.cluster.test_gpu.tree import CONTROL, H100, L4, add_shell

LIMITS = {"defaultActiveThreadPercentage": 50, "defaultPerDevicePinnedMemoryLimit": {"big": "8Gi", "small": "2Gi"}}
ORDERS = [
    "set_default_active_thread_percentage 50",
    "set_default_device_pinned_mem_limit 0 8192M",  # by index, in the order of the devices that the daemon sees
    "set_default_device_pinned_mem_limit 1 2048M",
]
CLIENT = {**DRIVER, "CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps"}


@pytest.fixture(params=["directory", "root"])
def node(node: GpuNode, request: pytest.FixtureRequest) -> Iterator[GpuNode]:
    """The driver in a plain directory, or in a root directory as of a driver container. No daemon may be left."""
    if request.param == "root":
        add_shell(node.root)
    yield node
    left = daemons(node)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


def daemons(node: GpuNode) -> list[int]:
    """Returns the daemons of the driver in this tree, without the programs that they run in their sessions."""
    marks = {b"DRA_GPU_MPS_DAEMON", b"DRA_GPU_DRIVER_ROOT=%b" % bytes(node.root)}
    return [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _is_daemon(pid, marks)]


def _is_daemon(pid: int, marks: set[bytes]) -> bool:
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        leads = os.getsid(pid) == pid
    except OSError:  # it has ended
        return False
    return leads and marks <= {*words, *(word.partition(b"=")[0] for word in words)}


def orders(directory: Path) -> list[str]:
    """Returns what the daemon was asked to set."""
    lines = (directory / "log/commands").read_text().splitlines()
    return [order for order in lines if order.startswith("set_")]


def test_two_containers_are_clients_of_one_daemon(cluster: Cluster, gpus: Gpus) -> None:
    gpus.nvml.state(L4.uuid).compute_mode = ComputeMode.PROHIBITED
    before = gpus.device_state()
    start_clients(cluster)
    (daemon,), (directory,) = daemons(gpus.node), (gpus.node.root / "state/mps").iterdir()
    assert orders(directory) == ORDERS
    assert modes(gpus) == [ComputeMode.EXCLUSIVE_PROCESS] * 2
    assert_clients(cluster, daemon)

    gpus.restart()
    assert daemons(gpus.node) == [daemon]
    gpus.driver.kill()
    os.kill(daemon, signal.SIGKILL)
    gpus.driver.start()
    gpus.driver.wait(lambda: orders(directory) == ORDERS * 2)
    (successor,) = daemons(gpus.node)
    assert successor != daemon
    assert_clients(cluster, successor)

    gpus.driver.wait(gpus.driver.ready)
    cluster.kubectl("delete", "pod,resourceclaim", "--all")
    gpus.driver.wait_free()
    assert daemons(gpus.node) == []
    assert not directory.exists()
    assert gpus.device_state() == before


def start_clients(cluster: Cluster) -> None:
    """Runs a pod with a claim for both GPUs. One of its containers uses only the smaller one. Each writes a file."""
    wanted = [
        request(name, NAME, **where(f'device.attributes["{NAME}"].uuid == "{gpu.uuid}"'))
        for name, gpu in (("big", H100), ("small", L4))
    ]
    made = claim("both", wanted, [shared("MPS", mpsConfig=LIMITS)])
    uses = {"first": {"name": "gpus"}, "second": {"name": "gpus", "request": "small"}}
    containers = [container(name, use, command=f"touch /dev/shm/{name}\n{LOOK}") for name, use in uses.items()]
    cluster.apply(made, pod("clients", [{"name": "gpus", "resourceClaimName": "both"}], *containers))
    cluster.wait_pod("clients")


def assert_clients(cluster: Cluster, daemon: int) -> None:
    """Asserts that both containers find the daemon, share memory with it, and have only their own GPUs."""
    for name, minors in (("first", (0, 1)), ("second", (1,))):
        seen = look(cluster, "clients", name)
        assert seen.environment == CLIENT
        assert seen.nodes == {**CONTROL, **{f"/dev/nvidia{minor}": (195, minor) for minor in minors}}
        assert set(seen.mounts) == {"/dev/shm", "/tmp/nvidia-mps"}
        assert seen.mounts["/dev/shm"] == "tmpfs"
    for name in ("first", "second"):
        found = cluster.kubectl("exec", "clients", "-c", name, "--", "find", *seen.mounts, "-type", "f").split()
        assert set(found) == {"/dev/shm/first", "/dev/shm/second", "/tmp/nvidia-mps/control"}
    assert {path.name for path in Path(f"/proc/{daemon}/root/dev/shm").iterdir()} == {"first", "second"}


def modes(gpus: Gpus) -> list[ComputeMode]:
    """Returns the compute mode of each GPU."""
    return [state.compute_mode for state in gpus.device_state().values()]
