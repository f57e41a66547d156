"""Which claims use which device, from slices and claims."""

from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.usage.device_usage import DeviceUsage, device_usage, usage_summary
from dra_sdk.tools.usage.table import usage_json, usage_table

JSON = dict[str, Any]
BUS = "resource.kubernetes.io/pciBusID"


def device(name: str, *, takes: int = 0, address: str = "0000:18:00.0", **fields: Any) -> JSON:
    attributes = {"type": {"string": "gpu"}, BUS: {"string": address}, **fields.pop("attributes", {})}
    counters = [{"counterSet": "set", "counters": {"slices": {"value": str(takes)}}}] if takes else []
    return {"name": name, "attributes": attributes, **({"consumesCounters": counters} if takes else {}), **fields}


def part(name: str, takes: int = 1) -> JSON:
    return device(name, takes=takes, attributes={"parentUUID": {"string": "G"}, "profile": {"string": "1g"}})


def pool(*devices: JSON, generation: int = 1, driver: str = "gpu.example.com") -> list[JSON]:
    shared = {
        "driver": driver,
        "pool": {"name": "node-1", "generation": generation, "resourceSliceCount": 2},
        "nodeName": "node-1",
    }
    counters = [{"name": "set", "counters": {"slices": {"value": "3"}}}]
    specs = [{**shared, "sharedCounters": counters}, {**shared, "devices": list(devices)}]
    return [{"kind": "ResourceSlice", "spec": spec} for spec in specs]


def claim(name: str, *devices: str, pods: tuple[str, ...] = (), **result: Any) -> JSON:
    results = [{"driver": "gpu.example.com", "pool": "node-1", "device": device, **result} for device in devices]
    reserved = [{"resource": "pods", "name": pod} for pod in pods]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
    return {"kind": "ResourceClaim", "metadata": {"namespace": "team", "name": name}, "status": status}


def usage_rows(devices: list[DeviceUsage], *, all_partitions: bool = False) -> list[list[str]]:
    return usage_table(devices, all_partitions=all_partitions)[1]


def states(objects: list[JSON]) -> dict[str, str]:
    return {device.name: device.state for device in device_usage(objects)}


def test_counters_decide_what_is_blocked() -> None:
    published = pool(device("gpu-0", takes=3), part("a"), part("b"), part("c", takes=2))
    assert set(states(published).values()) == {"free"}
    held = states([*published, claim("one", "a"), claim("two", "b")])
    assert held == {"gpu-0": "blocked", "a": "in use", "b": "in use", "c": "blocked"}
    assert states([*published, claim("one", "a")])["c"] == "free"


def test_several_claims_of_one_device_consume_its_counters_once() -> None:
    shared = part("a") | {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "10Gi"}}}
    objects = [
        *pool(shared, part("b", takes=2)),
        *(claim(name, "a", consumedCapacity={"memory": "4Gi"}) for name in "xy"),
    ]
    assert states(objects) == {"a": "shared by 2", "b": "free"}
    assert usage_rows(device_usage(objects))[1][-5] == "8Gi/10Gi"


def test_admin_access_does_not_hold_the_device() -> None:
    objects = [*pool(device("gpu-0")), claim("monitor", "gpu-0", adminAccess=True, pods=("dcgm",))]
    assert states(objects) == {"gpu-0": "free"}
    assert usage_rows(device_usage(objects))[0][-2:] == ["team/monitor (admin)", "dcgm"]


def test_only_the_latest_generation_counts() -> None:
    objects = [
        *pool(device("old"), generation=1),
        *pool(device("new"), generation=2),
        *pool(device("older"), generation=1),
    ]
    assert list(states(objects)) == ["new"]


def test_free_partitions_are_counted_in_one_row() -> None:
    published = pool(device("gpu-0", takes=3), part("a"), part("b"), part("c", takes=3))
    rows = usage_rows(device_usage([*published, claim("one", "a", pods=("p", "q"))]))
    assert [(row[1], row[-3]) for row in rows] == [
        ("gpu-0", "blocked"),
        ("  a", "in use"),
        ("  2 more", "1 free, 1 blocked"),
    ]
    assert rows[1][-2:] == ["team/one", "p, q"]
    assert len(usage_rows(device_usage(published), all_partitions=True)) == 4


def test_parts_without_a_whole_device_are_under_their_hardware() -> None:
    static = [device(name, attributes={"parentUUID": {"string": "G"}}) for name in ("a", "b")]
    assert [row[1] for row in usage_rows(device_usage(pool(*static)))] == ["0000:18:00.0", "  a", "  b"]


def test_health_is_read_from_the_taint() -> None:
    since = {"key": "gpu.example.com/unhealthy", "effect": "NoSchedule", "timeAdded": "2026-01-02T03:04:05Z"}
    other = {"key": "maintenance", "value": "soon", "effect": "None"}
    devices = device_usage(
        pool(device("gpu-0", taints=[other, since]), device("gpu-1", address="0000:3e:00.0", taints=[other]))
    )
    assert [row[-4] for row in usage_rows(devices)] == [
        "unhealthy since 2026-01-02T03:04:05Z, maintenance=soon:None",
        "maintenance=soon:None",
    ]
    assert [usage.state for usage in devices] == ["tainted", "free"]
    assert usage_summary(devices).endswith("1 unhealthy")


def test_a_taint_that_the_driver_names_says_why_a_device_is_unhealthy() -> None:
    xid = {"key": "gpu.example.com/xid", "value": "79", "effect": "NoSchedule", "timeAdded": "2026-01-02T03:04:05Z"}
    remark = {"key": "gpu.example.com/aging", "effect": "None"}
    devices = device_usage(pool(device("gpu-0", taints=[xid, remark])))
    assert usage_rows(devices)[0][-4] == "unhealthy since 2026-01-02T03:04:05Z (xid=79), gpu.example.com/aging:None"
    assert usage_summary(devices).endswith("1 unhealthy")


@pytest.mark.parametrize(
    ("total", "consumed", "claims", "state"),
    [("1", "1", 1, "in use"), ("4", "1", 1, "shared by 1"), ("4", "4", 1, "in use"), ("4", "2", 2, "shared by 2")],
)
def test_one_claim_that_has_all_of_a_shared_device_shares_it_with_no_other(
    total: str, consumed: str, claims: int, state: str
) -> None:
    cpus = [{"name": "numa-0", "allowMultipleAllocations": True, "capacity": {"dra.cpu/cpu": {"value": total}}}]
    held = [claim(f"c{i}", "numa-0", consumedCapacity={"dra.cpu/cpu": consumed}) for i in range(claims)]
    assert states([*pool(*cpus), *held]) == {"numa-0": state}


@pytest.mark.parametrize(
    ("value", "consumed", "shown"),
    [
        ("10G", "2500M", "2.5G/10G"),
        ("10000000000", "0", "0/10G"),
        ("400G", "1T", "1T/400G"),
        ("85899345920", "8Gi", "8Gi/80Gi"),
        ("10Gi", "1G", "954Mi/10Gi"),
        ("1500Mi", "0", "0/1.5Gi"),
        ("16", "2", "2/16"),
    ],
)
def test_amounts_have_the_units_in_which_they_are_published(value: str, consumed: str, shown: str) -> None:
    nic = [{"name": "eth1", "allowMultipleAllocations": True, "capacity": {"bandwidth": {"value": value}}}]
    held = claim("c", "eth1", consumedCapacity={"bandwidth": consumed})
    assert usage_rows(device_usage([*pool(*nic), held]))[0][-5] == shown


def test_a_device_without_gpu_attributes_is_shown() -> None:
    plain = [{"name": "funghi", "capacity": {"memory": {"value": "1536Mi"}}}]
    assert usage_table(device_usage(pool(*plain, driver="pizza.example.com"))) == (
        ["NODE", "DEVICE", "MEMORY", "HEALTH", "STATE", "CLAIM", "PODS"],
        [["node-1", "funghi", "1.5Gi", "ok", "free", "-", "-"]],
    )


def test_partitions_that_name_no_hardware_are_under_that_of_their_counters() -> None:
    def slot(name: str, counter_set: str, takes: int) -> JSON:
        counters = [{"counterSet": counter_set, "counters": {"slices": {"value": str(takes)}}}]
        return {"name": name, "consumesCounters": counters}

    gpus = [
        slot(f"gpu-{number}{suffix}", f"gpu-{number}-counter-set", takes)
        for number in range(2)
        for suffix, takes in (("", 3), ("-mig-0", 1), ("-mig-1", 1), ("-mig-2", 1))
    ]
    devices = device_usage(pool(*gpus))
    assert [row[1] for row in usage_rows(devices)] == ["gpu-0", "  3 more", "gpu-1", "  3 more"]
    assert usage_summary(devices).startswith("8 devices on 2 pieces of hardware")
    addressed = device_usage(pool(device("gpu-0", takes=3) | {"consumesCounters": gpus[0]["consumesCounters"]}, *gpus))
    assert {usage.hardware for usage in addressed} == {"0000:18:00.0", "gpu-1-counter-set"}


def test_columns_are_the_capacities_that_devices_have() -> None:
    numa = {"resource.kubernetes.io/numaNode": {"int": 1}}
    plain = [{"name": "cpus", "attributes": numa, "capacity": {"dra.cpu/cpu": {"value": "16"}}}]
    assert usage_table(device_usage(pool(*plain, driver="dra.cpu"))) == (
        ["NODE", "DEVICE", "NUMA", "CPU", "HEALTH", "STATE", "CLAIM", "PODS"],
        [["node-1", "cpus", "1", "16", "ok", "free", "-", "-"]],
    )


def test_the_json_has_what_the_table_has() -> None:
    shared = device("gpu-0") | {"allowMultipleAllocations": True}
    entries = usage_json(device_usage([*pool(shared), claim("one", "gpu-0", pods=("p",), consumedCapacity={"m": "1"})]))
    assert entries == [
        {
            "driver": "gpu.example.com",
            "pool": "node-1",
            "node": "node-1",
            "device": "gpu-0",
            "hardware": "0000:18:00.0",
            "state": "shared by 1",
            "unhealthy": False,
            "taints": [],
            "claims": [{"claim": "team/one", "pods": ["p"], "admin": False, "consumed": {"m": "1"}}],
        }
    ]
