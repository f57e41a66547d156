from __future__ import annotations

from pathlib import Path

import pytest
from dra_driver_cpu.devices import CAPACITY, devices, groups

from dra_sdk import Capacity, DraError
from dra_sdk.hardware import format_cpuset, parse_cpuset, read_cpus
from dra_sdk.testing.sysfs import regular_machine


def test_one_device_per_numa_node(tmp_path: Path) -> None:
    topology = read_cpus(regular_machine(sockets=2, cores=4).write(tmp_path))
    first, second = devices(topology, frozenset())
    assert (first.name, second.name) == ("cpudevnuma000", "cpudevnuma001")
    assert second.attributes == {
        "resource.kubernetes.io/numaNode": 1,
        "socketID": 1,
        "smtEnabled": True,
        "numCPUs": 8,
        "numaNodeID": 1,
        "dra.net/numaNode": 1,
    }
    capacity = second.capacity[CAPACITY]
    assert isinstance(capacity, Capacity)
    assert capacity.value == 8
    assert capacity.policy is not None
    assert (capacity.policy.default, capacity.policy.min, capacity.policy.max, capacity.policy.step) == (1, 1, 8, 1)
    assert second.allow_multiple_allocations


def test_reserved_cpus_are_not_given_out_and_an_empty_node_is_no_device(tmp_path: Path) -> None:
    topology = read_cpus(regular_machine(sockets=2, cores=2, threads=1).write(tmp_path))
    found = groups(topology, parse_cpuset("0,2-3"))
    assert {name: format_cpuset(cpus) for name, cpus in found.items()} == {"cpudevnuma000": "1"}


def test_a_reserved_cpu_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    topology = read_cpus(regular_machine(cores=2, threads=1).offlined(1).write(tmp_path))
    assert groups(topology, parse_cpuset("1"))  # offline, but there
    with pytest.raises(DraError, match="reserved CPUs 7-8 do not exist; online are 0"):
        groups(topology, parse_cpuset("7-8"))
