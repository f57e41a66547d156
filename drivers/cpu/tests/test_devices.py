"""The devices of each mode: names, attributes, capacities and counters, on machines of many kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from dra_driver_cpu import CpuSettings
from dra_driver_cpu.devices import CAPACITY, cpu_groups, cpu_pool

from dra_sdk import Capacity, Device, DraError, NodeAllocatable, RequestPolicy, ResourcePool
from dra_sdk.hardware import Host, format_cpuset, parse_cpuset, read_cpus, read_pci_roots
from dra_sdk.testing.machines import MACHINES, epyc, xeon
from dra_sdk.testing.sysfs import FakeMachine, FakePci, hybrid_machine, regular_machine

Publish = Callable[..., ResourcePool]
MODES: dict[str, dict[str, Any]] = {
    "numanode": {},
    "socket": {"group_by": "socket"},
    "l3cache": {"group_by": "l3cache"},
    "machine": {"group_by": "machine"},
    "individual": {"device_mode": "individual"},
    "partitionable": {"device_mode": "partitionable"},
}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Callable[[FakeMachine], Host]:
    """Where a machine is; each is written once, for no test changes it."""
    folder = tmp_path_factory.mktemp("machines")
    hosts: dict[str, Host] = {}

    def written(machine: FakeMachine) -> Host:
        key = repr(machine)
        if key not in hosts:
            hosts[key] = machine.write(folder / str(len(hosts)))
        return hosts[key]

    return written


@pytest.fixture
def publish(host: Callable[[FakeMachine], Host]) -> Publish:
    """The pool of a machine with settings. Where they reserve no CPU, none is kept back for others."""

    def published(machine: FakeMachine, **settings: Any) -> ResourcePool:
        paths = host(machine)
        roots = read_pci_roots(paths) if settings.get("expose_pcie_roots") else ()
        settings = {"shared_pool": "optional", **settings}
        return cpu_pool("node-1", read_cpus(paths), CpuSettings(**settings), roots)

    return published


def cpus_of(pool: ResourcePool) -> dict[str, str]:
    return {device.name: format_cpuset(device.hardware) for device in pool.devices}


def device(pool: ResourcePool, name: str) -> Device:
    return next(device for device in pool.devices if device.name == name)


def policy(device: Device) -> RequestPolicy | None:
    capacity = device.capacity[CAPACITY]
    assert isinstance(capacity, Capacity)
    return capacity.policy


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("numanode", {"cpudevnuma000": "1-3,8-11", "cpudevnuma001": "4-7,12-15"}),
        ("socket", {"cpudevsocket000": "1-3,8-11", "cpudevsocket001": "4-7,12-15"}),
        ("l3cache", {"cpudevl3cache000": "1-3,8-11", "cpudevl3cache001": "4-7,12-15"}),
        ("machine", {"cpudevmachine": "1-15"}),
    ],
)
def test_groups_have_the_names_of_the_existing_driver(publish, mode, expected):
    assert cpus_of(publish(xeon(cores=4), reserved_cpus=parse_cpuset("0"), **MODES[mode])) == expected


@pytest.mark.parametrize(
    ("mode", "first"),
    [
        ("numanode", ("cpudevnuma000", "1-3,8-11", 7)),
        ("socket", ("cpudevsocket000", "1-3,8-11", 7)),
        ("l3cache", ("cpudevl3cache000", "1-3,8-11", 7)),
        ("machine", ("cpudevmachine", "1-15", 15)),
        ("individual", ("cpudev008", "8", None)),
        ("partitionable", ("cpudevsocket000core001", "1,9", 2)),
    ],
)
def test_without_reserved_cpus_one_is_kept_back_from_every_device(publish, mode, first):
    """In the mode `partitionable` its core, because a device is never a part of a core that others use."""
    pool = publish(xeon(cores=4), shared_pool="required", **MODES[mode])
    capacity = pool.devices[0].capacity.get(CAPACITY)
    assert (pool.devices[0].name, format_cpuset(pool.devices[0].hardware), capacity and int(capacity.value)) == first
    kept = {0, 8} if mode == "partitionable" else {0}
    assert frozenset().union(*(device.hardware for device in pool.devices)) == frozenset(range(16)) - kept
    if mode == "partitionable":
        counters = [dict(counter_set.counters) for counter_set in pool.counter_sets]
        assert counters == [{"l3cache-000": 3}, {"l3cache-001": 4}]


def test_one_cpu_is_published_only_if_the_shared_pool_is_optional(publish):
    one_cpu = regular_machine(cores=1, threads=1)
    assert publish(one_cpu, shared_pool="required").devices == []
    assert cpus_of(publish(one_cpu, shared_pool="optional")) == {"cpudevnuma000": "0"}


def test_single_cpus_come_by_core_with_the_number_of_the_cpu(publish):
    pool = publish(xeon(cores=2), device_mode="individual", reserved_cpus=parse_cpuset("1"))
    names = ["cpudev000", "cpudev004", "cpudev005", "cpudev002", "cpudev006", "cpudev003", "cpudev007"]
    assert list(cpus_of(pool)) == names
    assert device(pool, "cpudev007").attributes == {
        "resource.kubernetes.io/numaNode": 1,
        "numaNodeID": 1,
        "dra.net/numaNode": 1,
        "socketID": 1,
        "cacheL3ID": 1,
        "coreType": "standard",
        "smtEnabled": True,
        "coreID": 1,
        "isolated": False,
        "nohzFull": False,
        "cpuID": 7,
    }
    assert not device(pool, "cpudev007").allow_multiple_allocations


@pytest.mark.parametrize("nohz_full", ["2-3,6", "(null)\n", None])
def test_cores_and_cpus_say_whether_their_tick_is_stopped(publish, nohz_full):
    """The threads of a core are n and n + 4; the file reads (null) without `nohz_full=`, old kernels do not have it."""
    machine = replace(regular_machine(cores=4), nohz_full=nohz_full)
    cpus = publish(machine, device_mode="individual", reserved_cpus=parse_cpuset("0")).devices
    stopped = {cpu.name for cpu in cpus if cpu.attributes["nohzFull"]}
    assert stopped == ({"cpudev002", "cpudev003", "cpudev006"} if nohz_full == "2-3,6" else set())
    cores = [device for device in publish(machine, device_mode="partitionable").devices if "core" in device.name]
    expected = {"cpudevsocket000core002"} if nohz_full == "2-3,6" else set()
    assert {core.name for core in cores if core.attributes["nohzFull"]} == expected
    assert "nohzFull" not in publish(machine).devices[0].attributes


def test_a_device_keeps_its_name_when_other_cpus_go_offline(host):
    whole, fewer = read_cpus(host(xeon(cores=4))), read_cpus(host(xeon(cores=4).offlined(1, 10)))
    for mode in MODES.values():
        before, after = cpu_groups(whole, CpuSettings(**mode)), cpu_groups(fewer, CpuSettings(**mode))
        cpus = {group.name: group.cpus for group in before}
        assert {group.name: group.cpus for group in after} == {
            name: online - {1, 10} for name, online in cpus.items() if online - {1, 10}
        }


def test_cores_with_the_same_numbers_have_different_names(tmp_path):
    clustered = regular_machine(cores=4, threads=1).changed(lambda cpu: replace(cpu, core_id=cpu.core_id % 2))
    settings = CpuSettings(device_mode="partitionable", reserved_cpus=parse_cpuset("0"))
    groups = cpu_groups(read_cpus(clustered.write(tmp_path)), settings)
    names = {group.name: set(group.cpus) for group in groups if group.kind == "core"}
    assert names == {f"cpudevcore00{number}": {number} for number in range(1, 4)}


def test_a_machine_without_l3_caches_is_not_grouped_by_them(publish):
    with pytest.raises(DraError, match="groupBy is l3cache, and this machine has no L3 cache"):
        publish(regular_machine(l3_caches=0), group_by="l3cache")


def test_a_group_has_only_attributes_that_are_true_of_all_its_cpus(publish):
    attributes = device(publish(hybrid_machine(), group_by="machine"), "cpudevmachine").attributes
    assert "coreType" not in attributes
    assert attributes["resource.kubernetes.io/numaNode"] == 0
    two = device(publish(xeon(), group_by="machine"), "cpudevmachine").attributes
    assert set(two) == {"coreType", "smtEnabled", "numCPUs"}


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (xeon(cores=4), RequestPolicy(default=2, min=2, step=2)),
        (replace(MACHINES["power-smt4"]), RequestPolicy(default=4, min=4, step=4)),
        (hybrid_machine(p_cores=2, e_cores=2), RequestPolicy(default=1, min=1, step=1)),
        (xeon(cores=2), RequestPolicy(default=2, valid_values=[2])),
    ],
    ids=["two threads", "four threads", "hybrid", "one core"],
)
def test_with_full_cores_a_request_is_a_number_of_whole_cores(publish, machine, expected):
    """CPU 0 is reserved, so its core belongs to no claim."""
    pool = publish(machine, full_cores=True, reserved_cpus=parse_cpuset("0"))
    assert policy(pool.devices[0]) == expected


def test_partitionable_devices_are_cores_then_caches_then_numa_nodes(publish):
    pool = publish(regular_machine(cores=4, l3_caches=2), device_mode="partitionable")
    assert cpus_of(pool) == {
        "cpudevsocket000core000": "0,4",
        "cpudevsocket000core001": "1,5",
        "cpudevsocket000core002": "2,6",
        "cpudevsocket000core003": "3,7",
        "cpudevl3cache000": "0-1,4-5",
        "cpudevl3cache001": "2-3,6-7",
        "cpudevnuma000": "0-7",
    }
    kinds = [device(pool, name).attributes["groupBy"] for name in ("cpudevsocket000core003", "cpudevl3cache001")]
    assert kinds == ["core", "l3cache"]


def test_partitionable_devices_take_cores_from_the_counter_of_their_cache(publish):
    pool = publish(regular_machine(cores=4, l3_caches=2), device_mode="partitionable")
    (counters,) = pool.counter_sets
    assert (counters.name, dict(counters.counters)) == ("numa-000", {"l3cache-000": 2, "l3cache-001": 2})
    taken = {device.name: [dict(consumption.counters) for consumption in device.consumes] for device in pool.devices}
    assert taken["cpudevsocket000core002"] == [{"l3cache-001": 1}]
    assert taken["cpudevl3cache000"] == [{"l3cache-000": 2}]
    assert taken["cpudevnuma000"] == [{"l3cache-000": 2, "l3cache-001": 2}]


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_a_device_takes_one_of_a_counter_for_each_core_that_it_contains(publish, machine):
    pool = publish(machine, device_mode="partitionable", reserved_cpus=parse_cpuset("0-1"))
    cores = [device for device in pool.devices if device.attributes["groupBy"] == "core"]
    whole = [amount for counter_set in pool.counter_sets for amount in counter_set.counters.values()]
    assert sum(map(int, whole)) == len(cores)
    for device in pool.devices:
        inside = [core for core in cores if core.hardware <= device.hardware]
        taken = [amount for consumption in device.consumes for amount in consumption.counters.values()]
        assert sum(map(int, taken)) == len(inside)
        assert frozenset().union(*(core.hardware for core in inside)) == device.hardware


def test_more_caches_than_counters_in_a_numa_node_are_no_devices(publish):
    pool = publish(regular_machine(cores=33, l3_caches=33, threads=1), device_mode="partitionable")
    assert {device.attributes["groupBy"] for device in pool.devices} == {"core", "numanode"}
    assert [dict(counter_set.counters) for counter_set in pool.counter_sets] == [{"cores": 33}]


def test_pcie_roots_are_those_near_the_cpus(publish):
    functions = [
        FakePci(address="0000:01:00.0", root="pci0000:00", numa_node=0),
        FakePci(address="0000:81:00.0", root="pci0000:80", numa_node=1),
        FakePci(address="0000:c1:00.0", root="pci0000:c0", numa_node=1),
    ]
    machine = replace(xeon(), pci=tuple(functions))
    pool = publish(machine, expose_pcie_roots=True)
    roots = [device.attributes["resource.kubernetes.io/pcieRoot"] for device in pool.devices]
    assert roots == [["pci0000:00"], ["pci0000:80", "pci0000:c0"]]
    assert "resource.kubernetes.io/pcieRoot" not in publish(machine).devices[0].attributes


def test_cpus_count_as_cpu_requests_if_the_settings_say_so(publish):
    def mapping(**mode: Any) -> NodeAllocatable:
        return publish(epyc(), node_allocatable=True, **mode).devices[-1].node_allocatable["cpu"]

    assert mapping() == NodeAllocatable(capacity_key="dra.cpu/cpu")
    assert mapping(device_mode="individual") == NodeAllocatable(multiplier=1)
    assert mapping(device_mode="partitionable") == NodeAllocatable(multiplier=128)
    assert not publish(epyc()).devices[0].node_allocatable


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_groups_of_one_kind_never_overlap_and_contain_no_reserved_cpu(host, machine, mode):
    topology = read_cpus(host(machine))
    groups = cpu_groups(topology, CpuSettings(reserved_cpus=parse_cpuset("0,5"), **mode))
    for kind in {group.kind for group in groups}:
        cpus = [cpu for group in groups if group.kind == kind for cpu in group.cpus]
        assert sorted(cpus) == sorted(topology.online - {0, 5})
