from __future__ import annotations

from fractions import Fraction

import pytest

from dra_sdk.tools.scheduling.cluster.fragmentation import (
    driver_fragmentation,
    hardware_pieces,
    pool_fragmentation,
)
from tests.tools.scheduling.cluster.objects import DRIVER, allocated, claim, cluster, gpus, node

SLICES = {"slices": {"value": "4"}, "memory": {"value": "80Gi"}}


def partitioned(on, count=2):
    """GPUs of four slices each, with a device for the whole, for each half and for each quarter."""
    sets = [{"name": f"gpu-{index}", "counters": SLICES} for index in range(count)]
    sizes = {"whole": ("4", "80Gi"), "half": ("2", "40Gi"), "small": ("1", "10Gi")}
    devices = [
        {
            "name": f"gpu-{index}-{size}-{number}",
            "consumesCounters": [
                {
                    "counterSet": f"gpu-{index}",
                    "counters": {"slices": {"value": slices}, "memory": {"value": memory}},
                }
            ],
        }
        for index in range(count)
        for size, (slices, memory) in sizes.items()
        for number in range(4 // int(slices))
    ]
    return gpus(on, devices=devices, sharedCounters=sets)


def figures(*objects):
    (found,) = pool_fragmentation(cluster(*objects))
    return found.pieces, found.whole, found.free, found.figure


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        ((), (2, 2, 2, 0)),
        (("gpu-0-whole-0",), (2, 1, 1, 0)),
        (("gpu-0-half-0",), (2, 1, Fraction(3, 2), Fraction(1, 3))),
        (("gpu-0-half-0", "gpu-0-half-1"), (2, 1, 1, 0)),
        (("gpu-0-half-0", "gpu-1-half-0"), (2, 0, 1, 1)),
        (("gpu-0-small-0",), (2, 1, Fraction(7, 4), Fraction(3, 7))),
        (("gpu-0-whole-0", "gpu-1-whole-0"), (2, 0, 0, 0)),
    ],
)
def test_pieces_are_what_counter_sets_stand_for(used, expected):
    held = [allocated(claim("c"), *used, on="a", pods=["p"])] if used else []
    assert figures(node("a"), partitioned("a"), *held) == expected


def test_numbered_counters_of_one_are_slots_and_count_together():
    slots = {f"memory-slice-{number}": {"value": "1"} for number in range(8)}
    devices = [
        {"name": f"mig-{number}", "consumesCounters": [{"counterSet": "gpu", "counters": {name: {"value": "1"}}}]}
        for number, name in enumerate(slots)
    ]
    pool = gpus("a", devices=devices, sharedCounters=[{"name": "gpu", "counters": {**slots, "copy": {"value": "4"}}}])
    held = allocated(claim("c"), "mig-0", "mig-5", on="a", pods=["p"])
    assert figures(node("a"), pool, held) == (1, 0, Fraction(6, 8), 1)


def test_devices_without_counter_sets():
    plain = gpus("a", "gpu-0", "gpu-1", "gpu-2")
    assert figures(node("a"), plain, allocated(claim("c"), "gpu-1", on="a")) == (3, 2, 2, 0)
    for number, device in enumerate(plain["spec"]["devices"]):
        device["attributes"]["resource.kubernetes.io/pciBusID"] = {"string": f"0000:0{number // 2}:00.0"}
    assert figures(plain, allocated(claim("c"), "gpu-1", on="a")) == (2, 1, Fraction(3, 2), Fraction(1, 3))


def test_admin_access_uses_nothing():
    assert figures(gpus("a", "gpu-0"), allocated(claim("c"), "gpu-0", on="a", adminAccess=True)) == (1, 1, 1, 0)


def test_a_shared_device_is_free_in_part():
    shared = gpus("a", "gpu-0")
    shared["spec"]["devices"][0] |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "8Gi"}}}
    held = allocated(claim("c"), "gpu-0", on="a", shareID="x", consumedCapacity={"memory": "2Gi"})
    assert figures(shared, held) == (1, 0, Fraction(3, 4), 1)


def test_older_slices_and_pools_without_devices_do_not_count():
    old = gpus("a", "gpu-0", "gpu-1", generation=1)
    assert figures(old, gpus("a", "gpu-2", generation=2)) == (1, 1, 1, 0)
    assert pool_fragmentation(cluster(gpus("a"))) == []


def test_a_driver_adds_up_its_pools():
    halves = [allocated(claim(f"c{on}"), "gpu-0-half-0", on=on) for on in "ab"]
    pools = pool_fragmentation(cluster(*(partitioned(on, 1) for on in "abc"), *halves))
    assert [(pool.pool, pool.figure) for pool in pools] == [("a", 1), ("b", 1), ("c", 0)]
    (total,) = driver_fragmentation(pools)
    assert total.to_json() == {"driver": DRIVER, "free": 2.0, "fragmentation": 0.5, "pieces": 3, "whole": 1}
    assert pools[0].to_json()["pool"] == "a"


def test_each_piece_with_its_devices_and_its_free_share():
    plain = gpus("b", "gpu-0")
    pieces = hardware_pieces(cluster(plain, partitioned("a"), allocated(claim("c"), "gpu-0-half-0", on="a")))
    assert [(piece.pool, piece.devices[0], piece.free, piece.is_whole) for piece in pieces] == [
        ("a", "gpu-0-whole-0", Fraction(1, 2), False),
        ("a", "gpu-1-whole-0", 1, True),
        ("b", "gpu-0", 1, True),
    ]
    assert len(pieces[0].devices) == 7
