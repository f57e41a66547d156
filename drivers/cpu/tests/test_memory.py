"""The driver of memory on machines made of files, from discovery to the limits of a container."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from dra_driver_cpu import MemoryDriver, MemorySettings
from dra_driver_cpu.memory import ReservedMemory, available, parse_reserved, runtime_page_size

from dra_sdk import Capacity, DraError, Quantity, SettingsError
from dra_sdk.errors import DeviceHeldError
from dra_sdk.hardware import read_numa_nodes
from dra_sdk.nri import Container, ContainerResources, PodSandbox
from dra_sdk.testing import (
    DriverHarness,
    FakeNode,
    NotAllocatedError,
    PreparedClaim,
    RefusedError,
    claim,
    request,
)
from dra_sdk.testing.crashes import assert_survives_crashes
from dra_sdk.testing.sysfs import regular_machine

pytest_plugins = ["dra_sdk.testing.plugin"]

MIB, GIB = 1 << 20, 1 << 30
MACHINE = replace(regular_machine(sockets=2), hugepages={2 * MIB: 512, GIB: 2})
"""Two NUMA nodes, each of 16 GiB: 1 GiB in pages of 2 MiB, 2 GiB in pages of 1 GiB, 13 GiB of others."""
POD_CGROUP = "/sys/fs/cgroup/kubepods/pod1"
POD = PodSandbox("p", "default", "pod", "pod-uid", cgroup_parent="/kubepods/pod1")
HELD_BACK = "0:memory=1Gi,hugepages-2Mi=24Mi;1:hugepages-1Gi=2Gi"


@pytest.fixture
def driver(dra_node: FakeNode, dra_driver: Any) -> DriverHarness:
    dra_node.machine(MACHINE)
    dra_node.file("/sys/fs/cgroup/cgroup.controllers", "cpuset hugetlb")
    for name in ("hugetlb.2MB.max", "hugetlb.1GB.max"):
        dra_node.file(f"{POD_CGROUP}/{name}", "0\n")
    made: DriverHarness = dra_driver(partial(MemoryDriver, effects=dra_node.effects, page_size=4096))
    return made


def ask(kind: str = "memory", size: str = "", *, name: str = "", numa: int | None = None) -> dict[str, Any]:
    """A request for `memory`, or for huge pages of a size, such as `2Mi`."""
    device = 'device.attributes["dra.memory"]'
    where = [f"!{device}.hugeTLB" if kind == "memory" else f'{device}.hugeTLB && {device}.pageSize == "{kind}"']
    if numa is not None:
        where.append(f'device.attributes["resource.kubernetes.io"].numaNode == {numa}')
    return request(name or f"r{kind.lower()}", where=where, capacity={"size": size} if size else None)


def data(driver: DriverHarness) -> list[dict[str, Any]]:
    return [dict(device.data) for held in driver.held for device in held.devices]


def variables(prepared: PreparedClaim, name: str = "main") -> dict[str, str]:
    """The variables of this driver; the SDK has its own, which begin with DRA_CLAIM_."""
    return {key: text for key, text in prepared.container(name).env.items() if key.startswith("DRA_MEMS_")}


def container(driver: DriverHarness, *requests: str, **limits: int) -> Container:
    """A container that uses these requests of all held claims, all requests by default; `limits` are its own."""
    claims = [
        replace(claim, devices=[device for device in claim.devices if not requests or device.base_request in requests])
        for claim in driver.held
    ]
    resources = ContainerResources(hugepage_limits={name.removeprefix("of_"): limit for name, limit in limits.items()})
    return Container("c", "main", replace(POD, claims=driver.held), claims, resources=resources)


def created(driver: DriverHarness, creating: Container) -> ContainerResources:
    """What both hooks give to a container that is being created."""
    plugin: Any = driver.plugin
    wanted: ContainerResources = plugin.dra_synchronize([creating]).get(creating.id, ContainerResources())
    adjustment = plugin.dra_create_container(creating)
    return wanted.changed(adjustment.resources) if adjustment else wanted


def limit(node: FakeNode, size: str) -> int:
    return int(node.path(f"{POD_CGROUP}/hugetlb.{size}.max").read_text())


# -- devices


def test_every_release_accepts_its_slices(driver: DriverHarness) -> None:
    driver.assert_publishable()


def test_a_numa_node_has_a_device_for_memory_and_each_page_size(driver: DriverHarness) -> None:
    assert list(driver.devices) == [
        "memory-numa0",
        "hugepages-2mi-numa0",
        "hugepages-1gi-numa0",
        "memory-numa1",
        "hugepages-2mi-numa1",
        "hugepages-1gi-numa1",
    ]
    device = driver.devices["hugepages-2mi-numa1"]
    assert device.attributes == {
        "resource.kubernetes.io/numaNode": 1,
        "pageSize": "2Mi",
        "hugeTLB": True,
        "memoryKind": "ordinary",
        "dra.cpu/numaNodeID": 1,
        "dra.net/numaNode": 1,
    }
    capacity = device.capacity["size"]
    assert isinstance(capacity, Capacity)
    assert capacity.policy is not None
    policy = capacity.policy
    assert [str(Quantity(value)) for value in (capacity.value, policy.default, policy.min, policy.step)] == [
        "1Gi", "2Mi", "2Mi", "2Mi",
    ]  # fmt: skip
    assert policy.max is None
    assert device.allow_multiple_allocations


def test_only_what_the_cgroup_of_pods_allows_is_published(driver: DriverHarness, dra_node: FakeNode) -> None:
    """Two NUMA nodes have 26 GiB and 2 GiB in pages of 2 MiB; the kubelet keeps something back, and page sizes."""
    kubepods = "/sys/fs/cgroup/kubepods.slice"
    dra_node.file(f"{kubepods}/memory.max", f"{13 * GIB}\n")
    dra_node.file(f"{kubepods}/hugetlb.2MB.max", f"{GIB}\n")
    dra_node.file(f"{kubepods}/hugetlb.1GB.max", "0\n")
    driver.discover()
    sizes = {name: str(Quantity(device.capacity["size"].value)) for name, device in driver.devices.items()}
    halves = {"memory-numa0": "6656Mi", "hugepages-2mi-numa0": "512Mi"}
    assert sizes == halves | {name.replace("numa0", "numa1"): size for name, size in halves.items()}
    dra_node.file(f"{kubepods}/memory.max", "max\n")
    dra_node.file(f"{kubepods}/cpuset.mems.effective", "1\n")
    driver.discover()
    assert list(driver.devices) == ["memory-numa1", "hugepages-2mi-numa1"]
    with pytest.raises(NotAllocatedError):
        driver.allocate(claim(ask("2Mi", "2Gi")))


def test_memory_of_an_accelerator_goes_to_claims_that_tolerate_it(driver: DriverHarness, dra_node: FakeNode) -> None:
    dra_node.file("/sys/devices/system/node/node1/cpulist", "\n")
    for cpu in MACHINE.cpus:
        if cpu.numa_node == 1:
            dra_node.remove(f"/sys/devices/system/cpu/cpu{cpu.id}/node1")
    dra_node.file("/proc/driver/nvidia/gpus/0009:01:00.0/numa_status", "Node:\t\t1\nStatus:\t\tonline\n")
    driver.discover()
    assert driver.devices["memory-numa1"].attributes["memoryKind"] == "accelerator"
    driver.assert_publishable()
    with pytest.raises(NotAllocatedError):
        driver.allocate(claim(ask(numa=1)))
    toleration = {"key": "dra.memory/kind", "operator": "Equal", "value": "accelerator", "effect": "NoSchedule"}
    tolerant = claim(ask(numa=1)).encoded("dra.memory", "dra.memory")
    tolerant["spec"]["devices"]["requests"][0]["exactly"]["tolerations"] = [toleration]
    assert driver.prepare(tolerant).names == ["memory-numa1"]


def test_memory_is_what_huge_pages_leave(driver: DriverHarness) -> None:
    capacity = driver.devices["memory-numa0"].capacity["size"]
    assert isinstance(capacity, Capacity)
    assert str(capacity.value) == "13Gi"
    assert driver.devices["memory-numa0"].attributes["pageSize"] == "4Ki"


def test_a_single_huge_page_is_published_and_claimed(dra_node: FakeNode, dra_driver: Any) -> None:
    dra_node.machine(replace(MACHINE, hugepages={GIB: 1}))
    driver = dra_driver(MemoryDriver)
    driver.assert_publishable()
    driver.prepare(claim(ask("1Gi", "1Gi")))
    with pytest.raises(NotAllocatedError):
        driver.allocate(claim(ask("1Gi", "1Gi", numa=0), ask("1Gi", "1Gi", name="second", numa=1)))


def test_kinds_without_a_page_are_no_devices(dra_node: FakeNode, dra_driver: Any) -> None:
    dra_node.machine(regular_machine())
    assert list(dra_driver(MemoryDriver).devices) == ["memory-numa0"]


def test_reserved_memory_is_not_published(tmp_path: Path) -> None:
    nodes = read_numa_nodes(MACHINE.write(tmp_path))
    sizes = {kind.name: kind.size for kind in available(nodes, parse_reserved(HELD_BACK), 4096)}
    assert sizes == {
        "memory-numa0": 12 * GIB,
        "hugepages-2mi-numa0": 1000 * MIB,
        "hugepages-1gi-numa0": 2 * GIB,
        "memory-numa1": 13 * GIB,
        "hugepages-2mi-numa1": GIB,
    }


def test_sizes_are_whole_pages(tmp_path: Path) -> None:
    nodes = read_numa_nodes(replace(MACHINE, memory=16 * GIB + 5120).write(tmp_path))
    reserved = (ReservedMemory(0, "hugepages-2Mi", MIB),)
    sizes = {kind.name: kind.size for kind in available(nodes, reserved, 65536)}
    assert (sizes["memory-numa0"], sizes["hugepages-2mi-numa0"]) == (13 * GIB, GIB - 2 * MIB)


def test_reserved_memory_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    nodes = read_numa_nodes(MACHINE.write(tmp_path))
    with pytest.raises(DraError, match="reserved hugepages-64Ki of NUMA node 0, memory of NUMA node 7: does not exist"):
        available(nodes, parse_reserved("0:hugepages-64Ki=1Mi;7:memory=1Gi"), 4096)


def test_settings_are_written_as_for_the_kubelet() -> None:
    reserved = MemorySettings.read({"DRA_MEMORY_RESERVED_MEMORY": HELD_BACK}).reserved_memory
    assert [str(entry) for entry in reserved] == [
        "0:memory=1Gi", "0:hugepages-2Mi=24Mi", "1:hugepages-1Gi=2Gi",
    ]  # fmt: skip
    for wrong in ("memory=1Gi", "0:memory", "0:memory=lots", "x:memory=1Gi"):
        with pytest.raises(SettingsError, match="must be NODE:RESOURCE=SIZE, such as 0:memory=1Gi"):
            MemorySettings.read({"DRA_MEMORY_RESERVED_MEMORY": wrong})


def test_the_documentation_has_the_table_of_settings() -> None:
    assert MemorySettings.markdown() in (Path(__file__).parents[1] / "PINNING.md").read_text()


def test_huge_pages_that_are_added_are_published(dra_node: FakeNode, dra_driver: Any) -> None:
    dra_node.machine(MACHINE)
    driver = dra_driver(partial(MemoryDriver, watch_seconds=0.02))
    with driver.watching() as watch:
        dra_node.file("/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages", "1024\n")
        watch.wait_changed()
        assert str(driver.devices["hugepages-2mi-numa1"].capacity["size"].value) == "2Gi"


# -- claims


def test_a_claim_records_what_it_was_granted(driver: DriverHarness) -> None:
    prepared = driver.prepare(claim(ask("2Mi", "5Mi", numa=1)))
    assert data(driver) == [{"numaNode": 1, "pageSize": 2 * MIB, "hugeTLB": True, "size": 6 * MIB}]
    assert variables(prepared) == {f"DRA_MEMS_{prepared.ref.uid}": "1"}
    assert f"dra.k8s.io/memory=claim-{prepared.ref.uid}" in prepared.container().cdi_ids


def test_a_claim_without_a_size_gets_one_page(driver: DriverHarness) -> None:
    driver.prepare(claim(ask("1Gi")))
    assert [recorded["size"] for recorded in data(driver)] == [GIB]


def test_each_request_has_its_own_variable(driver: DriverHarness) -> None:
    prepared = driver.prepare(
        claim(ask("2Mi", numa=0), ask("memory", "1Gi", numa=1)), containers={"a": ["r2mi"], "b": ["rmemory"]}
    )
    prefix = f"DRA_MEMS_{prepared.ref.uid}"
    assert variables(prepared, "a") == {f"{prefix}_r2mi": "0"}
    assert variables(prepared, "b") == {f"{prefix}_rmemory": "1"}


def test_several_devices_of_a_request_share_a_variable(driver: DriverHarness) -> None:
    both = request("all", where='device.attributes["dra.memory"].pageSize == "1Gi"', every=True)
    prepared = driver.prepare(claim(both))
    assert variables(prepared) == {f"DRA_MEMS_{prepared.ref.uid}": "0-1"}


def test_a_release_without_consumable_capacity_gives_all_of_a_device(dra_node: FakeNode, dra_driver: Any) -> None:
    dra_node.machine(MACHINE)
    driver = dra_driver(MemoryDriver, version="1.35")
    driver.prepare(claim(ask("2Mi")))
    assert [recorded["size"] for recorded in data(driver)] == [GIB]


def test_huge_pages_that_were_removed_after_the_allocation_are_not_granted(
    dra_node: FakeNode, driver: DriverHarness
) -> None:
    driver.prepare(claim(ask("2Mi", "600Mi", numa=0)))
    asked = driver.allocate(claim(ask("2Mi", "400Mi", numa=0)))
    dra_node.file("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "400\n")
    with pytest.raises(DeviceHeldError, match="hugepages-2mi-numa0, which has 800Mi, and 600Mi of it is taken by"):
        driver.prepare(asked)


def test_a_restart_changes_nothing(driver: DriverHarness) -> None:
    first = driver.prepare(claim(ask("2Mi", "4Mi")))
    before = created(driver, container(driver))
    driver.restart()
    assert created(driver, container(driver)) == before
    driver.unprepare(first)
    driver.assert_clean()


def test_prepare_and_unprepare_survive_a_kill_at_every_write(driver: DriverHarness) -> None:
    assert assert_survives_crashes(driver, claim(ask("2Mi", "4Mi")), lines=False) > 10


def test_metrics_count_what_claims_have_and_can_still_get(driver: DriverHarness) -> None:
    def measured() -> dict[tuple[str, str], tuple[float, float]]:
        taken, left = (
            {
                (metric.labels["numa_node"], metric.labels["resource"]): metric.value
                for metric in driver.metrics()
                if kind in metric.name
            }
            for kind in ("allocated", "available")
        )
        return {key: (taken[key], left[key]) for key in taken}

    before = measured()
    assert before["1", "hugepages-2Mi"] == (0, GIB)
    prepared = driver.prepare(claim(ask("2Mi", "4Mi", numa=1), ask("memory", "1Gi", numa=0)))
    values = measured()
    assert values["1", "hugepages-2Mi"] == (4 * MIB, GIB - 4 * MIB)
    assert values["0", "memory"] == (GIB, before["0", "memory"][1] - GIB)
    assert values["0", "hugepages-2Mi"] == before["0", "hugepages-2Mi"]
    driver.unprepare(prepared)
    assert measured() == before


# -- containers


def test_a_container_has_the_nodes_and_huge_pages_of_its_claims(driver: DriverHarness) -> None:
    driver.prepare(claim(ask("2Mi", "4Mi", numa=1), ask("1Gi", "1Gi", numa=1), ask("memory", "1Gi", numa=1)))
    assert created(driver, container(driver)) == ContainerResources(
        mems=frozenset({1}), hugepage_limits={"2MB": 4 * MIB, "1GB": GIB}
    )


def test_huge_pages_of_several_claims_and_nodes_add_up(driver: DriverHarness) -> None:
    driver.prepare(claim(ask("2Mi", "4Mi", numa=0)))
    driver.prepare(claim(ask("2Mi", "6Mi", numa=1)))
    assert created(driver, container(driver)) == ContainerResources(
        mems=frozenset({0, 1}), hugepage_limits={"2MB": 10 * MIB}
    )


def test_a_container_keeps_the_huge_pages_of_its_own_limits(driver: DriverHarness) -> None:
    driver.prepare(claim(ask("2Mi", "4Mi")))
    assert created(driver, container(driver, of_2MB=2 * MIB, of_1GB=0)).hugepage_limits == {"2MB": 6 * MIB}


def test_containers_split_a_claim_by_request(driver: DriverHarness) -> None:
    driver.prepare(claim(ask("2Mi", "4Mi", numa=0), ask("memory", "1Gi", numa=1)))
    assert created(driver, container(driver, "r2mi")) == ContainerResources(
        mems=frozenset({0}), hugepage_limits={"2MB": 4 * MIB}
    )
    assert created(driver, container(driver, "rmemory")) == ContainerResources(mems=frozenset({1}))


def test_containers_without_claims_stay_as_they_are(driver: DriverHarness) -> None:
    driver.prepare(claim(ask("2Mi", "4Mi")))
    assert created(driver, Container("o", "other", POD)) == ContainerResources()


def test_synchronize_gives_running_containers_their_nodes(driver: DriverHarness) -> None:
    driver.prepare(claim(ask("2Mi", "4Mi", numa=1)))
    assert driver.plugin.dra_synchronize([container(driver)]) == {"c": ContainerResources(mems=frozenset({1}))}


def test_the_pod_is_allowed_what_it_claims(dra_node: FakeNode, driver: DriverHarness) -> None:
    """The kubelet has set 0 for the pod, so the limit of its container would have no effect."""
    driver.prepare(claim(ask("2Mi", "4Mi")))
    driver.plugin.dra_run_pod_sandbox(replace(POD, claims=driver.held), dra_node.node)
    assert (limit(dra_node, "2MB"), limit(dra_node, "1GB")) == (4 * MIB, 0)


def test_pods_without_huge_pages_are_not_touched(dra_node: FakeNode, driver: DriverHarness) -> None:
    driver.prepare(claim(ask("memory", "1Gi")))
    driver.plugin.dra_run_pod_sandbox(replace(POD, claims=driver.held), dra_node.node)
    created(driver, container(driver))
    assert dra_node.effects.calls == []


@pytest.mark.parametrize(
    ("size", "name"), [(65536, "64KB"), (2 * MIB, "2MB"), (32 * MIB, "32MB"), (GIB, "1GB"), (16 * GIB, "16GB")]
)
def test_page_sizes_have_the_names_that_runtimes_use(size: int, name: str) -> None:
    assert runtime_page_size(size) == name


# -- with a container runtime


@pytest.mark.parametrize("version", ["0.8.0", "0.12.1"])
def test_a_runtime_limits_container_and_pod(dra_node: FakeNode, driver: DriverHarness, version: str) -> None:
    with driver.nri(version) as runtime:
        prepared = driver.prepare(claim(ask("2Mi", "4Mi", numa=1)), pod="web")
        uid = driver.held[0].pods[0]
        of_pod = dra_node.file(f"/sys/fs/cgroup/kubepods/pod{uid}/hugetlb.2MB.max", "0\n")
        own = ContainerResources(hugepage_limits={"2MB": 2 * MIB, "1GB": 0})
        container = runtime.create_container(prepared, resources=own)
        assert (container.cpus, container.mems) == (None, {1})
        assert container.hugepage_limits == {"2MB": 6 * MIB, "1GB": 0}
        assert int(of_pod.read_text()) == 4 * MIB
        other = runtime.create_container(resources=own)
        assert (other.mems, other.hugepage_limits) == (None, {"2MB": 2 * MIB, "1GB": 0})
        driver.restart()
        runtime.restart()
        assert container.mems == {1}
        assert container.hugepage_limits == {"2MB": 6 * MIB, "1GB": 0}


def test_the_limit_of_a_pod_is_the_same_after_a_restart_of_the_driver(
    dra_node: FakeNode, driver: DriverHarness
) -> None:
    """The kubelet allows 2 MiB for a container without claims; the hook runs again before the second container."""
    with driver.nri() as runtime:
        prepared = driver.prepare(claim(ask("2Mi", "4Mi")), pod="web")
        of_pod = dra_node.file(f"/sys/fs/cgroup/kubepods/pod{driver.held[0].pods[0]}/hugetlb.2MB.max", f"{2 * MIB}\n")
        pod = runtime.run_pod(prepared)
        assert int(of_pod.read_text()) == 6 * MIB
        for _ in range(2):
            driver.restart()
            pod.create_container()
            assert int(of_pod.read_text()) == 6 * MIB


def test_a_pod_whose_limit_cannot_be_raised_does_not_start(dra_node: FakeNode, driver: DriverHarness) -> None:
    with driver.nri() as runtime:
        prepared = driver.prepare(claim(ask("2Mi", "4Mi")))
        pod = runtime.run_pod(prepared)
        with pytest.raises(RefusedError, match="is not visible; mount the host's /sys/fs/cgroup into the driver"):
            pod.create_container()
