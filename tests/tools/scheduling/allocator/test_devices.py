from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.scheduling.allocator import AllocationError
from dra_sdk.tools.scheduling.allocator.devices import ContentCache, PoolSlice, has_scalar_values
from dra_sdk.tools.scheduling.allocator.quantities import NANOS_PER_UNIT
from tests.tools.scheduling.allocator.build import DRIVER, a_slice, consumes, counter_sets, device


def test_devices_that_differ_only_in_name_share_their_content() -> None:
    contents = ContentCache()
    one, other = device("gpu-0", model="a100"), device("gpu-1", model="a100")
    assert contents.get(DRIVER, one) is contents.get(DRIVER, other)
    assert contents.get("other.example.com", one) is not contents.get(DRIVER, one)
    assert contents.get(DRIVER, device("gpu-2", model="h100")) is not contents.get(DRIVER, one)
    assert len(contents) == 3


def test_attributes_are_found_by_their_qualified_name() -> None:
    attributes = {"model": {"string": "a100"}, "std.example.com/root": {"string": "r"}}
    raw = a_slice({"name": "gpu-0", "attributes": attributes})
    gpu = PoolSlice(raw, 0, ContentCache()).devices[0]
    assert gpu.attribute(f"{DRIVER}/model") == {"string": "a100"}
    assert gpu.attribute("std.example.com/root") == {"string": "r"}
    assert gpu.attribute("other.example.com/model") is None
    assert gpu.attribute("model/none") is None


def test_counters_of_a_device() -> None:
    gpu = PoolSlice(a_slice(device("gpu-0") | consumes(memory="1Gi", slots="2")), 0, ContentCache()).devices[0]
    assert gpu.counters == ((("set", "memory"), 2**30 * NANOS_PER_UNIT), (("set", "slots"), 2 * NANOS_PER_UNIT))


def test_an_invalid_counter_is_named() -> None:
    with pytest.raises(AllocationError, match=r"device gpu\.example\.com/n1/gpu-0, counter memory: .much. is not"):
        _ = PoolSlice(a_slice(device("gpu-0") | consumes(memory="much")), 0, ContentCache()).devices


def test_the_node_of_a_device() -> None:
    own = PoolSlice(a_slice(device("a") | {"nodeName": "n7"}, perDeviceNodeSelection=True), 0, ContentCache()).devices[
        0
    ]
    assert own.node_scope["nodeName"] == "n7"
    common = PoolSlice(a_slice(device("a"), nodeName="n1"), 0, ContentCache()).devices[0]
    assert common.node_scope["nodeName"] == "n1"


def test_valid_single_values_are_scalar() -> None:
    attributes = {"a": {"string": "x"}, "b": {"int": 1}, "c": {"bool": False}, "d": {"version": "1.2.3"}}
    assert has_scalar_values({"name": "gpu-0", "attributes": attributes, "capacity": {"memory": {"value": "1Gi"}}})
    assert has_scalar_values({"name": "gpu-0"})


@pytest.mark.parametrize(
    "attribute", [{}, {"strings": ["x"]}, {"version": "one"}, {"version": 1}, {"int": True}, {"string": "x", "int": 1}]
)
def test_other_attributes_are_not_scalar(attribute: dict[str, Any]) -> None:
    assert not has_scalar_values({"name": "gpu-0", "attributes": {"a": attribute}})


def test_invalid_capacities_are_not_scalar() -> None:
    assert not has_scalar_values({"name": "gpu-0", "capacity": {"memory": {"value": "much"}}})
    assert not has_scalar_values({"name": "gpu-0", "capacity": {"memory": {}}})


def test_a_slice_knows_its_pool() -> None:
    pool_slice = PoolSlice(a_slice(device("a"), device("b"), pool="p", count=3, generation=7), 0, ContentCache())
    assert (pool_slice.pool, pool_slice.generation, pool_slice.count) == ((DRIVER, "p"), 7, 3)
    assert [str(pool_device.id) for pool_device in pool_slice.devices] == [f"{DRIVER}/p/a", f"{DRIVER}/p/b"]


def test_a_slice_of_counter_sets_has_no_devices() -> None:
    pool_slice = PoolSlice(counter_sets(set={"memory": "1"}), 0, ContentCache())
    assert pool_slice.has_counter_sets
    assert pool_slice.devices == ()


def test_an_empty_slice() -> None:
    pool_slice = PoolSlice({"metadata": {"name": "s"}, "spec": {}}, 0, ContentCache())
    assert (pool_slice.pool, pool_slice.generation, pool_slice.devices) == (("", ""), 0, ())
