"""Claims that the release 5134cc5 has prepared are continued: `samples/state-5134cc5` is what it kept on a node."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from dra_driver_cpu import CpuDriver, CpuSettings, MemoryDriver

from dra_sdk.nri import PodSandbox
from dra_sdk.testing import DriverFactory, DriverHarness, FakeNode
from dra_sdk.testing.machines import xeon
from dra_sdk.testing.node_state import NodeState
from dra_sdk.testing.sysfs import regular_machine

pytest_plugins = ["dra_sdk.testing.plugin"]
SAMPLES = Path(__file__).parent / "samples/state-5134cc5"
POD_CGROUP = "/sys/fs/cgroup/kubepods/pod1"
CLAIMED = 64 << 20
MACHINE = replace(regular_machine(sockets=2), hugepages={2 << 20: 512, 1 << 30: 2})


@pytest.mark.parametrize(("name", "mode"), [("cpu", "grouped"), ("cpu-partitionable", "partitionable")])
def test_claims_of_cpus_keep_them(name: str, mode: str, dra_node: FakeNode) -> None:
    dra_node.machine(xeon())
    state = NodeState(SAMPLES / name)
    state.restore(dra_node)
    state.assert_continued(
        DriverHarness(CpuDriver, dra_node, settings=CpuSettings.model_validate({"device_mode": mode}))
    )


def test_claims_of_memory_keep_it_and_the_limit_of_a_pod_is_raised_once(
    dra_node: FakeNode, dra_driver: DriverFactory, tmp_path: Path
) -> None:
    """The driver's record has the kubelet's own limit, 0, under the inode of the cgroup: here that of this node."""
    dra_node.machine(MACHINE)
    dra_node.file("/sys/fs/cgroup/cgroup.controllers", "cpuset hugetlb")
    limit = dra_node.file(f"{POD_CGROUP}/hugetlb.2MB.max", f"{CLAIMED}\n")
    sample = Path(shutil.copytree(SAMPLES / "memory", tmp_path / "memory"))
    record = sample / "host/var/lib/kubelet/plugins/dra.memory/limits/hugepages/record.json"
    inode = limit.parent.stat().st_ino
    record.write_text(re.sub(r'hugetlb.2MB.max#\d+": 0', f'hugetlb.2MB.max#{inode}": 0', record.read_text()))
    state = NodeState(sample)
    state.restore(dra_node)
    driver = dra_driver(partial(MemoryDriver, effects=dra_node.effects, page_size=4096))
    pod = PodSandbox("p", "default", "pod", "pod-uid", cgroup_parent="/kubepods/pod1", claims=driver.held)
    driver.plugin.dra_run_pod_sandbox(pod, dra_node.node)
    assert limit.read_text().strip() == str(CLAIMED)
    state.assert_continued(driver)
