from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.scheduling.allocator import Allocated, AllocationError, Features, SearchLimitError, SelectorError
from tests.tools.scheduling.allocator.build import (
    DRIVER,
    NEWER,
    a_slice,
    allocated,
    allocator,
    claim,
    consumes,
    counter_sets,
    device,
    first_available,
    held,
    names,
    of_1_37,
    request,
    shared,
    wish,
)

A = f'device.attributes["{DRIVER}"]'
NUMA = {"matchAttribute": f"{DRIVER}/numa"}


def gpus(*numa: int) -> dict[str, Any]:
    return a_slice(*(device(f"gpu-{index}", numa=each, n=index) for index, each in enumerate(numa)))


def test_the_first_device_that_fits_is_taken() -> None:
    assert names(allocated(allocator(gpus(0, 0, 1)), claim(request("r", f"{A}.n > 0")))) == [["gpu-1"]]


def test_choices_that_lead_nowhere_are_taken_back() -> None:
    found = allocated(allocator(gpus(0, 1, 1)), claim(request("r", count=2), constraints=[NUMA]))
    assert names(found) == [["gpu-1", "gpu-2"]]


def test_a_refused_device_makes_distinct_forget_the_others_of_its_request() -> None:
    """As kube-scheduler 1.36: gpu-1 differs, the second constraint refuses it, and then gpu-2 differs from nothing."""
    distinct = {"distinctAttribute": f"{DRIVER}/numa"}
    wanted = request("r", count=2)
    assert names(allocated(allocator(gpus(0, 1, 0)), claim(wanted, constraints=[distinct, NUMA]))) == [
        ["gpu-0", "gpu-2"]
    ]
    assert allocated(allocator(gpus(0, 1, 0)), claim(wanted, constraints=[NUMA, distinct])) is None
    assert allocated(allocator(gpus(0, 0, 1)), claim(wanted, constraints=[distinct, NUMA])) is None


def test_a_later_request_may_move_an_earlier_one() -> None:
    found = allocated(allocator(gpus(0, 1)), claim(request("any"), request("first", f"{A}.n == 0")))
    assert names(found) == [["gpu-1", "gpu-0"]]


def test_a_later_claim_may_move_an_earlier_one() -> None:
    any_gpu, first_gpu = claim(request("r")), claim(request("r", f"{A}.n == 0"), name="d")
    assert names(allocated(allocator(gpus(0, 1)), any_gpu, first_gpu)) == [["gpu-1"], ["gpu-0"]]


def test_the_preferred_alternative_wins_unless_something_else_needs_its_device() -> None:
    prefers = first_available("r", first=wish(f"{A}.n == 0"), second=wish())
    only = request("q", f"{A}.n == 0")
    found = allocator(gpus(0, 1))
    assert names(allocated(found, claim(prefers))) == [["gpu-0"]]
    both = allocated(found, claim(prefers, only))
    assert both
    assert [(each["request"], each["device"]) for each in both[0]["devices"]["results"]] == [
        ("r/second", "gpu-1"),
        ("q", "gpu-0"),
    ]


def test_an_alternative_that_would_be_too_many_devices_is_passed_over() -> None:
    devices = a_slice(*(device(f"gpu-{index}") for index in range(40)))
    found = allocated(
        allocator(devices), claim(request("r", count=20), first_available("q", a=wish(count=13), b=wish()))
    )
    assert found
    assert len(found[0]["devices"]["results"]) == 21


def test_an_earlier_alternative_may_make_room_under_the_limit() -> None:
    devices = a_slice(*(device(f"gpu-{index}") for index in range(40)))
    wanted = claim(first_available("r", many=wish(count=20), few=wish(count=2)), request("q", count=20))
    found = allocated(allocator(devices), wanted)
    assert found
    assert len(found[0]["devices"]["results"]) == 22


def test_all_devices_or_none() -> None:
    everything = claim(request("r", f"{A}.n < 2", allocationMode="All"))
    assert names(allocated(allocator(gpus(0, 0, 0)), everything)) == [["gpu-0", "gpu-1"]]
    assert allocated(allocator(gpus(0, 0, 0)), claim(request("q"), request("r", allocationMode="All"))) is None
    assert allocated(allocator(gpus()), everything) is None


def test_all_devices_that_break_a_constraint_are_an_error() -> None:
    everything = claim(request("r", allocationMode="All"), constraints=[NUMA])
    with pytest.raises(AllocationError, match="a claim constraint would not be satisfied"):
        allocated(allocator(gpus(0, 1)), everything)


def test_partitions_are_combined_as_far_as_counters_go() -> None:
    sizes = {"half-0": "2", "half-1": "2", "whole": "4", "third": "3"}
    devices = [device(name, size=int(value)) | consumes(memory=value) for name, value in sizes.items()]
    found = allocator(counter_sets(set={"memory": "4"}), a_slice(*devices, count=2))
    assert names(allocated(found, claim(request("r", count=2)))) == [["half-0", "half-1"]]
    assert names(allocated(found, claim(request("r", f"{A}.size > 2", count=1)))) == [["whole"]]
    assert allocated(found, claim(request("r", f"{A}.size > 2", count=2))) is None


def test_what_cannot_succeed_for_want_of_devices_is_not_tried() -> None:
    found = allocator(gpus(*(0, 1) * 16))
    assert allocated(found, claim(request("r", count=17), constraints=[NUMA])) is None
    assert found.steps < 100


def test_what_never_could_succeed_is_found_out_once() -> None:
    found = allocator(gpus(*(0, 1) * 8))
    assert allocated(found, claim(request("r", count=8), request("q", f"{A}.n > 99"))) is None
    assert found.steps < 20


def test_an_error_that_other_choices_would_meet_is_still_met() -> None:
    devices = a_slice(device("a", n=1, m=1), device("b", n=1))
    wanted = claim(request("r", f"{A}.m == 1"), request("q", f"{A}.n > 99"))
    with pytest.raises(SelectorError, match="no such key: m"):
        allocated(allocator(devices), wanted)
    other = claim(first_available("r", a=wish(), b=wish(f"{A}.m == 1")), request("q", f"{A}.n > 99"))
    with pytest.raises(SelectorError, match="no such key: m"):
        allocated(allocator(devices), other)


def test_the_search_is_given_up_after_so_many_steps() -> None:
    nics = [device(f"nic-{index}", numa=index) for index in range(8)]
    wanted = claim(*(request(f"r{index}") for index in range(6)), constraints=[NUMA])
    with pytest.raises(
        SearchLimitError,
        match="claim ns/c: the search was given up after 5 steps, as kube-scheduler gives up after 10 s",
    ):
        allocated(allocator(a_slice(*nics), max_steps=5), wanted)


@pytest.mark.parametrize(
    ("count", "kind"), [(1, "distinctAttribute"), (2, "matchAttribute")], ids=["many tried", "many looked at"]
)
def test_devices_that_are_tried_and_looked_at_count_too(count: int, kind: str) -> None:
    """Else a step would take the longer the more devices there are, and the limit would say little about time."""
    many = [device(f"gpu-{index}", numa=index % 9) for index in range(120)]
    requests = [request(f"r{index}", count=count) for index in range(16)]
    wanted = claim(*requests, constraints=[{kind: f"{DRIVER}/numa"}])
    found = allocator(a_slice(*many), max_steps=20_000)
    with pytest.raises(SearchLimitError):
        allocated(found, wanted)
    assert 20_000 < found.work < 20_000 + 2 * len(many)
    assert found.steps < 2_000


def test_many_claims_with_many_devices() -> None:
    devices = a_slice(*(device(f"gpu-{index}") for index in range(50 * 32)))
    found = allocated(allocator(devices), *(claim(request("r", count=32), name=f"c{index}") for index in range(50)))
    assert found
    assert len(found) == 50


def test_lists_in_constraints_are_searched_as_the_scheduler_does() -> None:
    """What a device left behind may keep out another, which a search that skips hopeless sets would not see."""
    values = (["a", "b"], ["b"], ["a"])
    devices = [{"name": f"d{index}", "attributes": {"x": {"strings": each}}} for index, each in enumerate(values)]
    constraint = {"matchAttribute": f"{DRIVER}/x"}
    wanted = claim(request("r"), request("q"), request("p", 'device.driver == ""'), constraints=[constraint])
    assert allocated(allocator(a_slice(*devices)), wanted) is None
    two = claim(request("r", f'!{A}.x.includes("none")', count=2), constraints=[constraint])
    assert names(allocated(allocator(a_slice(*devices)), two)) == [["d0", "d1"]]
    off = Features(list_attributes=False)
    assert allocated(allocator(a_slice(*devices), features=off), two) is None


def made_up(expression: str, **more: Any) -> dict[str, Any]:
    derived = [{"name": f"{DRIVER}/made-up", "expression": expression}]
    return request("r", derivedAttributes=derived, **more)


MADE_UP = {"matchAttribute": f"{DRIVER}/made-up"}


def test_devices_agree_in_what_a_request_makes_of_them() -> None:
    wanted = claim(made_up(f"{A}.n / 2", count=2), constraints=[MADE_UP])
    assert names(allocated(allocator(gpus(0, 0, 0), features=NEWER), wanted)) == [["gpu-0", "gpu-1"]]
    shifted = claim(made_up(f"({A}.n + 1) / 2", count=2), constraints=[MADE_UP])
    assert names(allocated(allocator(gpus(0, 0, 0), features=NEWER), shifted)) == [["gpu-1", "gpu-2"]]


@pytest.mark.parametrize("count", [1, 3])
def test_an_error_of_a_derivation_is_found_however_few_devices_there_are(count: int) -> None:
    """As in the scheduler: the first device is tried before it is known that there are too few."""
    wanted = claim(made_up("1 / 0", count=count), constraints=[MADE_UP])
    with pytest.raises(AllocationError, match="division by zero"):
        allocated(allocator(gpus(0, 0), features=NEWER), wanted)


def test_all_devices_but_one_is_full() -> None:
    slices = a_slice(*(shared(name, capacity={"memory": "4"}) for name in ("a", "b")))
    used = Allocated.of([held("a", shareID="x", consumedCapacity={"memory": "4"})])
    wanted = claim(request("r", allocationMode="All", capacity={"requests": {"memory": "1"}}))
    assert names(allocated(allocator(slices), wanted, held=used)) == [["b"]]
    assert allocated(allocator(slices, features=of_1_37()), wanted, held=used) is None


def test_since_1_37_a_refused_device_changes_nothing() -> None:
    devices = [device(f"gpu-{index}", model=model, numa=numa) for index, (model, numa) in enumerate(MODELS)]
    constraints = [{"distinctAttribute": f"{DRIVER}/model"}, NUMA]
    wanted = claim(request("r", count=3), constraints=constraints)
    assert names(allocated(allocator(a_slice(*devices)), wanted)) == [["gpu-0", "gpu-2", "gpu-3"]]
    assert allocated(allocator(a_slice(*devices), features=of_1_37()), wanted) is None


MODELS = [("a", 0), ("b", 1), ("a", 0), ("b", 0)]
