"""GPUs of the stub library on a real node: a pod gets one whole, by the extended resource, and as a MIG device.

The tree of a node with GPUs stands for the host's root. Container runtimes know paths of this machine only, so the
tree holds a link to itself under its own path: what lies below `driver root` there and here is the same. Device nodes
are real character devices with the numbers of the NVIDIA driver, which nobody opens.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from dra_driver_gpu.nvml.memory import fake_gpu
from dra_driver_gpu.testing import GpuNode, StubState, build_stub
from dra_driver_gpu.testing.node import CAPS_MAJOR, mig_minor
from dra_driver_gpu.testing.tools import write_tools

from tests.cluster.driver_process import ROOT, DriverUnderTest
from tests.cluster.drivers import Drivers
from tests.cluster.harness.cluster import Cluster
from tests.cluster.manifests import claim, config, container, pod, pod_with, request, where
from tests.cluster.pods import allocated, logs

NAME = "gpu.nvidia.com"
GPUS = [fake_gpu("H100-80GB", 0), fake_gpu("L4", 1)]
CLASSES = str(ROOT / "deploy/gpu/nvidia.yaml")
NODES = {"nvidiactl": (195, 255), "nvidia-modeset": (195, 254), "nvidia-uvm": (510, 0), "nvidia-uvm-tools": (510, 1)}
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
LOOK = f"""
tr '\\0' '\\n' < /proc/1/environ | grep NVIDIA | sed 's/^/env /'
find /dev/nvidia* -type c | xargs stat -c 'node %n %t %T'
sha256sum {LIBRARIES}/libnvidia-ml.so.* /usr/bin/nvidia-smi | sed 's/^/file /'
echo done
trap 'exit 0' TERM
sleep 3600 & wait
"""


class Seen(NamedTuple):
    """What a container has: environment, device nodes with their numbers, files with their digests."""

    environment: dict[str, str]
    nodes: dict[str, tuple[int, int]]
    files: set[tuple[str, str]]


class Gpus(NamedTuple):
    """A driver that runs, the GPUs that its NVML knows, and the node that it was given."""

    driver: DriverUnderTest
    state: StubState
    node: GpuNode

    def lines(self, *words: str) -> list[list[str]]:
        """The lines of the stub's state that begin with these words."""
        lines = map(str.split, self.state.path.read_text().splitlines())
        return sorted(line for line in lines if line[0] in words)

    def device_state(self) -> list[list[str]]:
        """What a claim may change: modes, and MIG instances."""
        return self.lines("mode", "gi", "ci")

    def slices_set(self) -> dict[str, str]:
        """The time slices that are not the default: UUID of the GPU → number."""
        return {path.name: path.read_text().strip() for path in (self.node.root / "run/time-slices").glob("*")}

    def assert_driver_files(self, seen: Seen) -> None:
        """The container has the driver's own files, and an NVIDIA runtime would add nothing."""
        assert seen.environment == {"NVIDIA_VISIBLE_DEVICES": "void"}
        names = (f"{LIBRARIES}/libnvidia-ml.so.{self.node.driver_version}", "/usr/bin/nvidia-smi")
        wanted = {(name, hashlib.sha256((self.node.root / name[1:]).read_bytes()).hexdigest()) for name in names}
        assert seen.files == wanted


@pytest.fixture
def node(tmp_path: Path) -> GpuNode:
    """The tree, with the stub as its NVML and an nvidia-smi that keeps time slices in files."""
    node = GpuNode(tmp_path / "node", GPUS)
    node.set_all_instances()
    write_tools(node.root, node.driver_root)
    _know_itself(node.root)
    _make_devices(node.root)
    library = node.root / f"{LIBRARIES[1:]}/libnvidia-ml.so.{node.driver_version}"
    (tmp_path / "stub").mkdir()
    build_stub(tmp_path / "stub").replace(library)
    return node


@pytest.fixture
def gpus(
    cluster: Cluster, drivers: Drivers, node: GpuNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Gpus]:
    state = StubState(tmp_path / "nvml", GPUS)
    settings = {"DRA_GPU_DRIVER_ROOT": str(node.root), "DRA_GPU_DYNAMIC_MIG": "true"}
    for name, value in {**state.environment, **settings}.items():
        monkeypatch.setenv(name, value)
    cluster.kubectl("apply", "-f", CLASSES)
    yield Gpus(drivers.start("gpu", NAME, "--host-root", str(node.root)), state, node)
    cluster.kubectl("delete", "-f", CLASSES)


def test_a_pod_gets_a_gpu(cluster: Cluster, gpus: Gpus) -> None:
    before = gpus.device_state()
    sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": sharing}
    wanted = request("gpu", NAME, **where(f'device.attributes["{NAME}"].architecture == "Ada Lovelace"'))
    made = claim("one-gpu", [wanted], [config(NAME, parameters, "gpu")])
    cluster.apply(made, pod_with("whole", made, command=LOOK))
    cluster.wait_pod("whole")

    (result,) = allocated(cluster, "one-gpu")
    assert result["device"] == "gpu-1"
    assert gpus.driver.published("gpu-1")["attributes"]["uuid"] == {"string": GPUS[1].uuid}
    assert gpus.slices_set() == {GPUS[1].uuid: "3"}
    seen = look(cluster, "whole")
    assert seen.nodes == {**control_nodes(), "/dev/nvidia1": (195, 1)}
    gpus.assert_driver_files(seen)

    cluster.kubectl("delete", "pod", "whole")
    cluster.kubectl("delete", "resourceclaim", "one-gpu")
    gpus.driver.wait_free()
    assert gpus.device_state() == before
    assert gpus.slices_set() == {}


def test_a_mig_device_is_made_for_a_pod_and_gone_afterwards(cluster: Cluster, gpus: Gpus) -> None:
    before = gpus.device_state()
    assert not gpus.lines("gi", "ci")
    wanted = request("mig", "mig.nvidia.com", **where(f'device.attributes["{NAME}"].profile == "1g.10gb"'))
    made = claim("part", [wanted])
    cluster.apply(made, pod_with("partly", made, command=LOOK))
    cluster.wait_pod("partly")

    (result,) = allocated(cluster, "part")
    published = gpus.driver.published(result["device"])["attributes"]
    assert (published["profile"], published["parentUUID"]) == ({"string": "1g.10gb"}, {"string": GPUS[0].uuid})
    (instance,) = gpus.lines("gi")
    (compute,) = gpus.lines("ci")
    gpu_instance, compute_instance = int(instance[2]), int(compute[3])
    assert instance[1] == compute[1] == "0"
    seen = look(cluster, "partly")
    minors = mig_minor(0, gpu_instance), mig_minor(0, gpu_instance, compute_instance)
    capabilities = {f"/dev/nvidia-caps/nvidia-cap{minor}": (CAPS_MAJOR, minor) for minor in minors}
    assert seen.nodes == {**control_nodes(), "/dev/nvidia0": (195, 0), **capabilities}
    gpus.assert_driver_files(seen)

    cluster.kubectl("delete", "pod", "partly")
    cluster.kubectl("delete", "resourceclaim", "part")
    gpus.driver.wait_free()
    assert gpus.device_state() == before


def test_a_pod_gets_gpus_by_the_extended_resource(cluster: Cluster, gpus: Gpus) -> None:
    wanted = pod("plain", [], container("main", command=LOOK))
    wanted["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "2"}}
    cluster.apply(wanted)
    cluster.wait_pod("plain")
    seen = look(cluster, "plain")
    assert seen.nodes == {**control_nodes(), "/dev/nvidia0": (195, 0), "/dev/nvidia1": (195, 1)}
    gpus.assert_driver_files(seen)


def look(cluster: Cluster, name: str) -> Seen:
    """What the container of a pod has, as it printed it."""
    environment, nodes, digests = {}, {}, set()
    for line in logs(cluster, name).splitlines():
        kind, *words = line.split()
        if kind == "env":
            key, _, value = words[0].partition("=")
            environment[key] = value
        elif kind == "node":
            nodes[words[0]] = (int(words[1], 16), int(words[2], 16))
        elif kind == "file":
            digests.add((words[1], words[0]))
    return Seen(environment, nodes, digests)


def control_nodes() -> dict[str, tuple[int, int]]:
    """What every container with a GPU gets besides it."""
    return {f"/dev/{name}": numbers for name, numbers in NODES.items()}


def _know_itself(root: Path) -> None:
    """Let the tree have itself at the path where this machine has it."""
    inside = root / root.relative_to("/")
    inside.parent.mkdir(parents=True)
    inside.symlink_to(root)


def _make_devices(root: Path) -> None:
    """Device nodes where the tree has files; without those for graphics, which a driver root has no part in."""
    shutil.rmtree(root / "dev/dri")
    for name, (major, minor) in {**NODES, "nvidia0": (195, 0), "nvidia1": (195, 1)}.items():
        (root / "dev" / name).unlink()
        os.mknod(root / "dev" / name, stat.S_IFCHR | 0o666, os.makedev(major, minor))
