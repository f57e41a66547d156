"""Claims in every mode, from the scheduler's choice to the CPUs of a container, also many at the same time."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any

import pytest
from dra_driver_cpu import CpuConfig, CpuDriver, CpuSettings
from dra_driver_cpu.allocatable import cpus_of
from dra_driver_cpu.pick import NoSuchCpusError
from dra_driver_cpu.pinning import EmptySharedPoolError

from dra_sdk import ClaimError, DraError
from dra_sdk.hardware import CpuSet, format_cpuset, parse_cpuset
from dra_sdk.testing import DriverHarness, FakeClaim, NotAllocatedError, PreparedClaim, claim, request
from dra_sdk.testing.crashes import assert_survives_crashes
from dra_sdk.testing.machines import epyc, xeon
from dra_sdk.testing.sysfs import FakeMachine, regular_machine

pytest_plugins = ["dra_sdk.testing.plugin"]
Start = Callable[..., DriverHarness]
GATE = "DRAPartitionableDevices"


def with_reserved_cpu(machine: FakeMachine) -> tuple[FakeMachine, CpuSet]:
    """The machine with one more CPU, in a NUMA node of its own, so that claims can have all others."""
    last = machine.cpus[-1]
    number, node = last.id + 1, max(cpu.numa_node for cpu in machine.cpus) + 1
    extra = replace(
        last, id=number, core=number, core_id=0, socket=node, die=None, cluster=None, numa_node=node, l3=None
    )
    return replace(machine, cpus=(*machine.cpus, extra)), frozenset({number})


@pytest.fixture
def start(dra_node: Any, dra_driver: Any) -> Start:
    def started(machine: FakeMachine, *, gates: dict[str, bool] | None = None, **settings: Any) -> DriverHarness:
        machine, reserved = with_reserved_cpu(machine)
        dra_node.machine(machine)
        settings = {"reserved_cpus": reserved, **settings}
        harness: DriverHarness = dra_driver(CpuDriver, settings=CpuSettings(**settings), feature_gates=gates)
        return harness

    return started


def cpus(amount: int, **options: Any) -> dict[str, Any]:
    return request("cpu", capacity={"dra.cpu/cpu": str(amount)}, **options)


def held(driver: DriverHarness) -> dict[str, CpuSet]:
    return {held_claim.uid: cpus_of(held_claim) for held_claim in driver.held}


def of(prepared: PreparedClaim) -> str:
    """The CPUs that a container reads from its environment."""
    env = prepared.container().env
    (text,) = (text for name, text in env.items() if name.startswith("DRA_CPUSET_"))
    return text


def at_the_same_time(driver: DriverHarness, claims: Sequence[Any]) -> list[PreparedClaim | DraError]:
    """Prepare allocated claims in as many threads, all released at once."""
    barrier = Barrier(len(claims), timeout=60)

    def prepare(allocated: Any) -> PreparedClaim | DraError:
        barrier.wait()
        try:
            return driver.prepare(allocated)
        except DraError as error:
            return error

    with ThreadPoolExecutor(len(claims)) as threads:
        return list(threads.map(prepare, claims))


# -- partitionable


def test_one_pool_serves_every_shape_and_the_scheduler_keeps_them_apart(start):
    """Two NUMA nodes, each with two caches of two cores."""
    driver = start(regular_machine(sockets=2, cores=4, l3_caches=2), device_mode="partitionable")
    assert of(driver.prepare(claim(cpus(2)))) == "0,8", "the smallest device with two CPUs is a core"
    assert of(driver.prepare(claim(cpus(4)))) == "2-3,10-11", "a cache, not that of the core which is taken"
    assert of(driver.prepare(claim(cpus(8)))) == "4-7,12-15", "a whole NUMA node"
    with pytest.raises(NotAllocatedError):
        driver.allocate(claim(cpus(4)))
    assert of(driver.prepare(claim("cpu"))) == "1,9"


def test_a_numa_node_can_be_had_again_when_its_last_core_has_come_back(start):
    driver = start(regular_machine(cores=2), device_mode="partitionable")
    core = driver.prepare(claim("cpu"))
    with pytest.raises(NotAllocatedError):
        driver.allocate(claim(cpus(4)))
    driver.unprepare(core)
    assert of(driver.prepare(claim(cpus(4)))) == "0-3"


def test_several_cores_of_one_cache(start):
    driver = start(regular_machine(cores=8, l3_caches=2), device_mode="partitionable")
    core = 'device.attributes["dra.cpu"].groupBy == "core"'
    first = driver.prepare(claim(request("cpu", where=core, count=3), match="dra.cpu/cacheL3ID"))
    second = driver.prepare(claim(request("cpu", where=core, count=3), match="dra.cpu/cacheL3ID"))
    assert (of(first), of(second)) == ("0-2,8-10", "4-6,12-14")


def test_without_counters_no_device_contains_another(start):
    """An API server without the feature drops the counters, so a node and its cores would be allocated together."""
    driver = start(regular_machine(cores=2), device_mode="partitionable", gates={GATE: False})
    cores = [driver.prepare(claim(cpus(2))) for _ in range(2)]
    assert sorted(map(of, cores)) == ["0,2", "1,3"]
    for core in cores:
        driver.unprepare(core)
    with pytest.raises(NotAllocatedError):
        driver.allocate(claim(cpus(4)))


def test_a_kill_at_every_write_leaves_nothing_of_a_partition(start):
    driver = start(regular_machine(cores=2), device_mode="partitionable")
    assert assert_survives_crashes(driver, claim(cpus(4)), lines=False) > 10


# -- many claims at the same time


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"group_by": "l3cache"},
        {"group_by": "machine"},
        {"full_cores": True},
        {"device_mode": "individual"},
        {"device_mode": "partitionable"},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())) or "numanode",
)
def test_claims_that_are_prepared_at_the_same_time_never_overlap(start, settings):
    machine = regular_machine(cores=32, l3_caches=8)
    driver = start(machine, reserved_cpus=parse_cpuset("0-1"), **settings)
    amounts = [1] * 8 if driver.devices.get("cpudev002") else [2, 4, 2, 6, 2, 8, 4, 2]
    claims = [driver.allocate(claim(cpus(amount) if amount > 1 else "cpu")) for amount in amounts]
    answers = at_the_same_time(driver, claims)
    assert [answer for answer in answers if isinstance(answer, DraError)] == []
    claims_cpus = list(held(driver).values())
    assert sum(map(len, claims_cpus)) == len(frozenset().union(*claims_cpus))
    assert not frozenset().union(*claims_cpus) & {0, 1}
    sizes = sorted(map(len, claims_cpus))
    assert all(size >= amount for size, amount in zip(sizes, sorted(amounts), strict=True))


def test_claims_for_the_last_cpus_at_the_same_time_leave_one(start):
    """CPU 0 is kept back and goes offline. So CPU 1 is kept back in its place, which a claim holds already."""
    driver = start(regular_machine(cores=3, threads=1), device_mode="individual", reserved_cpus=frozenset())
    driver.prepare(claim("cpu"))
    driver.node.file("/sys/devices/system/cpu/online", "1-3")
    last = [driver.allocate(claim("cpu")) for _ in range(2)]
    for _ in range(5):
        answers = at_the_same_time(driver, last)
        (done,) = [answer for answer in answers if isinstance(answer, PreparedClaim)]
        assert [type(answer) for answer in answers if answer is not done] == [EmptySharedPoolError]
        assert sorted(map(format_cpuset, held(driver).values())) in (["1", "2"], ["1", "3"])
        for allocated in last:
            driver.unprepare(allocated)


# -- what a device and a claim say


def test_a_claim_of_more_cpus_than_the_group_is_not_allocated(start):
    driver = start(xeon(cores=4))
    with pytest.raises(NotAllocatedError, match=r"dra\.cpu/cpu"):
        driver.allocate(claim(cpus(9)))


def test_with_full_cores_the_scheduler_rounds_up_to_whole_cores(start):
    driver = start(xeon(sockets=1, cores=4), full_cores=True)
    assert [of(driver.prepare(claim(cpus(amount)))) for amount in (1, 3)] == ["0,4", "1-2,5-6"]


def test_the_configuration_of_a_claim_decides_how_cpus_are_picked(start):
    driver = start(regular_machine(sockets=2, cores=8, l3_caches=2), group_by="machine")

    def picked(amount: int, **config: Any) -> str:
        return of(driver.prepare(claim(cpus(amount), config=CpuConfig(**config))))

    assert picked(2, placement="spread") == "0-1"
    assert picked(4, l3_cache="require") == "2-3,18-19"
    assert picked(20, numa="distributed") == "4-12,16-17,20-28"


def test_a_claim_that_the_machine_can_never_serve_is_told_so(start):
    driver = start(regular_machine(cores=4, l3_caches=2))
    with pytest.raises(NoSuchCpusError, match="need 5 CPUs of one L3 cache, the largest here has 4"):
        driver.prepare(claim(cpus(5), config=CpuConfig(l3_cache="require")))
    with pytest.raises(NoSuchCpusError, match="need 1 CPUs of type e-core, and all cores here have type standard"):
        driver.prepare(claim(cpus(1), config=CpuConfig(core_type="e-core")))


def test_what_containers_get_beyond_cpus_is_remembered_with_the_device(start):
    driver = start(xeon())
    driver.prepare(claim(cpus(2), config=CpuConfig(cfs_quota="keep", memory_policy="none")))
    (device,) = driver.held[0].devices
    assert device.data == {"cpus": "0,16", "quota": "keep", "memory": "none"}


@pytest.mark.parametrize(("amount", "cpuset"), [(4, "0-1,16-17"), (10, "0-4,16-20")])
def test_a_container_reads_its_cpus_from_the_metadata_file(start, amount, cpuset):
    prepared = start(xeon()).prepare(claim(cpus(amount)))
    assert metadata(prepared)["allocatedNumCPUs"] == {"int": amount}
    assert metadata(prepared)["cpuset"] == {"string": cpuset}


def test_a_cpu_list_that_is_longer_than_an_attribute_is_a_list(start):
    driver = start(epyc(), isolated_cpus="include")
    prepared = driver.prepare(claim(cpus(40), config=CpuConfig(placement="spread")))
    assert metadata(prepared)["cpuset"] == {"string": "0-39"}
    odd = parse_cpuset(",".join(map(str, range(1, 128, 2))))
    driver.node.file("/sys/devices/system/cpu/online", format_cpuset(parse_cpuset("0-127") - odd | {1}))
    driver.restart()
    parts = metadata(driver.prepare(claim(cpus(24))))["cpuset"]["strings"]
    assert len(parts) > 1
    assert all(len(part) <= 64 for part in parts)
    assert len(parse_cpuset(",".join(parts))) == 24


def metadata(prepared: PreparedClaim) -> dict[str, Any]:
    """The attributes of the only device in the claim's metadata file."""
    container = prepared.container()
    (path,) = [mount for mount in container.mounts if mount.endswith(".json")]
    document = json.JSONDecoder().raw_decode(container.read(path))[0]
    attributes: dict[str, Any] = document["requests"][0]["devices"][0]["attributes"]
    return attributes


def test_admin_access_shows_all_cpus_and_takes_none(start):
    driver = start(xeon(sockets=1, cores=2))
    driver.prepare(claim(cpus(2)))
    monitor = driver.prepare(claim(request("cpu", admin_access=True)))
    assert of(monitor) == "0-3"
    assert of(driver.prepare(claim(cpus(2)))) == "1,3"


def test_a_cpu_that_is_offline_is_not_given_to_a_claim(start):
    driver = start(xeon(sockets=1, cores=2), device_mode="individual")
    asked = driver.allocate(claim("cpu"))
    driver.node.file("/sys/devices/system/cpu/online", "1-3")
    with pytest.raises(ClaimError, match=r"device node-1/cpudev000 is not among those that driver dra\.cpu publishes"):
        driver.prepare(asked)


def test_a_kubelet_that_gives_cpus_away_itself_is_refused(start):
    driver = start(xeon())
    driver.node.file("/var/lib/kubelet/cpu_manager_state", '{"policyName": "static"}')
    with pytest.raises(DraError, match="the kubelet has cpuManagerPolicy static"):
        driver.discover()
    driver.node.file("/var/lib/kubelet/cpu_manager_state", '{"policyName": "none"}')
    assert [device.name for device in driver.discover()] == ["node-1"]


@pytest.mark.parametrize(
    ("version", "field", "mapping"),
    [
        ("1.36", "nodeAllocatableResourceMappings", {"capacityKey": "dra.cpu/cpu", "allocationMultiplier": "1"}),
        ("1.37", "nodeAllocatableResources", {"mapping": {"capacityKey": "dra.cpu/cpu", "capacityMultiplier": "1"}}),
    ],
)
def test_each_release_is_told_in_its_form_that_cpus_count_as_requests(dra_node, dra_driver, version, field, mapping):
    dra_node.machine(xeon())
    gates = {"DRANodeAllocatableResources": True}
    settings = CpuSettings(node_allocatable=True)
    driver = dra_driver(CpuDriver, settings=settings, version=version, feature_gates=gates)
    (published_slice,) = driver.slices()
    assert [device[field] for device in published_slice["spec"]["devices"]] == [{"cpu": mapping}] * 2


def test_claims_keep_their_cpus_when_the_mode_changes(start, dra_driver):
    driver = start(xeon(sockets=1, cores=4))
    first = driver.prepare(claim(cpus(2)))
    second: DriverHarness = dra_driver(CpuDriver, settings=CpuSettings(group_by="socket"))
    assert held(second) == {first.ref.uid: {0, 4}}
    asked: FakeClaim = claim(cpus(4))
    assert of(second.prepare(asked)) == "1-2,5-6"
