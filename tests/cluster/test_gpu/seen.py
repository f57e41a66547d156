"""What a container has. A shell script in it prints this, and it is read from the container's output."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from dra_driver_gpu.testing.node import GpuNode

from tests.cluster.harness.cluster import Cluster
from tests.cluster.pods import logs
from tests.cluster.test_gpu.tree import LIBRARIES

LOOK = f"""
tr '\\0' '\\n' < /proc/1/environ | grep -E 'NVIDIA|CUDA' | sed 's/^/env /'
for node in /dev/nvidia* /dev/nvidia-caps/* /dev/vfio/*; do [ ! -c $node ] || stat -c 'node %n %t %T' $node; done
for file in {LIBRARIES}/libnvidia-ml.so.* /usr/bin/nvidia-smi; do
    [ ! -f $file ] || sha256sum $file | sed 's/^/file /'
done
sed -nE 's/^[^ ]+ (.dev.shm|.tmp.nvidia-mps) ([^ ]+) .*/mount \\1 \\2/p' /proc/mounts
echo done
trap 'exit 0' TERM
sleep 3600 & wait
"""


class Seen(NamedTuple):
    """What a container has.

    environment: its variables for GPUs.
    nodes: its device nodes, with major and minor number.
    files: files of the driver, with their SHA-256.
    mounts: the mounts that MPS needs, with the type of the file system.
    """

    environment: dict[str, str]
    nodes: dict[str, tuple[int, int]]
    files: dict[str, str]
    mounts: dict[str, str]

    def assert_driver_files(self, node: GpuNode) -> None:
        """Asserts that the container has the driver's own files."""
        names = (f"{LIBRARIES}/libnvidia-ml.so.{node.driver_version}", "/usr/bin/nvidia-smi")
        wanted = {name: hashlib.sha256((node.root / name[1:]).read_bytes()).hexdigest() for name in names}
        assert self.files == wanted


VOID = {"NVIDIA_VISIBLE_DEVICES": "void"}
"""The environment of a container to which an NVIDIA runtime adds nothing."""

DRIVER = {**VOID, "NVIDIA_CTK_LIBCUDA_DIR": LIBRARIES}
"""The same environment with the driver's libraries."""


def look(cluster: Cluster, pod: str, container: str = "main", namespace: str = "default") -> Seen:
    """Returns what the container of a pod has, from its output."""
    seen = Seen({}, {}, {}, {})
    for line in logs(cluster, pod, container, namespace).splitlines():
        kind, *words = line.split()
        if kind == "env":
            key, _, value = words[0].partition("=")
            seen.environment[key] = value
        elif kind == "node":
            seen.nodes[words[0]] = (int(words[1], 16), int(words[2], 16))
        elif kind == "file":
            seen.files[words[1]] = words[0]
        elif kind == "mount":
            seen.mounts[words[0]] = words[1]
    return seen
