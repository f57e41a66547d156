from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.allocator import AllocationError
from dra_sdk.tools.scheduling.allocator.amounts import UNIT
from dra_sdk.tools.scheduling.allocator.devices import Contents
from dra_sdk.tools.scheduling.allocator.slices import SliceView
from tests.tools.scheduling.allocator.build import DRIVER, a_slice, consumes, device


def test_devices_that_differ_in_name_only_have_one_content() -> None:
    contents = Contents()
    one, other = device("gpu-0", model="a100"), device("gpu-1", model="a100")
    assert contents.of(DRIVER, one) is contents.of(DRIVER, other)
    assert contents.of("other.example.com", one) is not contents.of(DRIVER, one)
    assert contents.of(DRIVER, device("gpu-2", model="h100")) is not contents.of(DRIVER, one)
    assert len(contents) == 3


def test_attributes_are_found_by_their_full_name() -> None:
    attributes = {"model": {"string": "a100"}, "std.example.com/root": {"string": "r"}}
    raw = a_slice({"name": "gpu-0", "attributes": attributes})
    found = SliceView(raw, 0, Contents()).devices[0]
    assert found.attribute(f"{DRIVER}/model") == {"string": "a100"}
    assert found.attribute("std.example.com/root") == {"string": "r"}
    assert found.attribute("other.example.com/model") is None
    assert found.attribute("model/none") is None


def test_counters_are_read_once() -> None:
    found = SliceView(a_slice(device("gpu-0") | consumes(memory="1Gi", slots="2")), 0, Contents()).devices[0]
    assert found.counters == ((("set", "memory"), 2**30 * UNIT), (("set", "slots"), 2 * UNIT))


def test_a_counter_that_is_no_quantity_is_named() -> None:
    with pytest.raises(AllocationError, match=r"device gpu\.example\.com/n1/gpu-0, counter memory: .much. is not"):
        _ = SliceView(a_slice(device("gpu-0") | consumes(memory="much")), 0, Contents()).devices


def test_where_a_device_is() -> None:
    own = SliceView(a_slice(device("a") | {"nodeName": "n7"}, perDeviceNodeSelection=True), 0, Contents()).devices[0]
    assert own.place["nodeName"] == "n7"
    common = SliceView(a_slice(device("a"), nodeName="n1"), 0, Contents()).devices[0]
    assert common.place["nodeName"] == "n1"
