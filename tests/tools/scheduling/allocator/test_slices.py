from __future__ import annotations

from dra_sdk.tools.scheduling.allocator.devices import Contents
from dra_sdk.tools.scheduling.allocator.slices import SliceView
from tests.tools.scheduling.allocator.build import DRIVER, a_slice, counter_sets, device


def test_a_slice_knows_its_pool() -> None:
    found = SliceView(a_slice(device("a"), device("b"), pool="p", count=3, generation=7), 0, Contents())
    assert (found.pool, found.generation, found.count) == ((DRIVER, "p"), 7, 3)
    assert [str(each.id) for each in found.devices] == [f"{DRIVER}/p/a", f"{DRIVER}/p/b"]


def test_a_slice_of_counter_sets_has_no_devices() -> None:
    found = SliceView(counter_sets(set={"memory": "1"}), 0, Contents())
    assert found.has_counter_sets
    assert found.devices == ()


def test_a_slice_that_says_nothing_is_still_one() -> None:
    found = SliceView({"metadata": {"name": "s"}, "spec": {}}, 0, Contents())
    assert (found.pool, found.generation, found.devices) == (("", ""), 0, ())
