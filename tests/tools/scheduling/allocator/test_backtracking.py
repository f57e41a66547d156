from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.scheduling.allocator import (
    AllocatedState,
    AllocationError,
    SchedulerFeatures,
    SearchLimitError,
    SelectorError,
)
from dra_sdk.tools.scheduling.allocator.backtracking import (
    AllModeDevice,
    AlternativeChoice,
    ExactCountDevice,
    NextClaim,
    SearchPosition,
    StepResult,
)
from dra_sdk.tools.scheduling.allocator.claim_requests import parse_claim
from dra_sdk.tools.scheduling.allocator.device_choices import DeviceChoices
from dra_sdk.tools.scheduling.allocator.eligible_devices import ClaimNeeds, EligibleDevices
from dra_sdk.tools.scheduling.allocator.selectors import SelectorCache
from tests.tools.scheduling.allocator.build import (
    DRIVER,
    NEWER,
    a_slice,
    allocated,
    allocator,
    candidates,
    claim,
    consumes,
    counter_sets,
    device,
    device_class,
    exact_request,
    first_available,
    held,
    names,
    of_1_37,
    request,
    shared,
)

GPUS = candidates(a_slice(*(device(name, numa=numa) for name, numa in (("a", 0), ("b", 1), ("c", 1)))))


def exact_count_device(
    position: SearchPosition, count: int = 1, **devices: Any
) -> tuple[ExactCountDevice, DeviceChoices]:
    parsed = parse_claim(claim(request("r", count=count), **devices), {"gpu": device_class()}, SchedulerFeatures())
    need = ClaimNeeds(parsed, SelectorCache(SchedulerFeatures().cel), SchedulerFeatures()).first_need()
    assert need
    choices = DeviceChoices([parsed], AllocatedState(), SchedulerFeatures(), all_scalar=True)
    return ExactCountDevice(choices, position, need, EligibleDevices(0, need, GPUS, choices)), choices


def chosen(choices: DeviceChoices) -> list[str]:
    return [choice.candidate.id.device for choice in choices.by_claim[0]]


def test_one_device_after_the_other_is_tried() -> None:
    step, choices = exact_count_device(SearchPosition(0, alternative=0))
    assert step.nothing_tried
    tried = []
    result: SearchPosition | StepResult = step.resume(None)
    while isinstance(result, SearchPosition):
        tried.append(chosen(choices))
        assert result == SearchPosition(0, 0, 0, 1, len(tried))
        result = step.resume(StepResult.FAILED)
    assert tried == [["a"], ["b"], ["c"]]
    assert result is StepResult.FAILED
    assert not step.nothing_tried
    assert chosen(choices) == []


def test_a_claim_with_too_many_devices_gets_no_other_device() -> None:
    step, choices = exact_count_device(SearchPosition(0))
    step.resume(None)
    assert step.resume(StepResult.TOO_MANY) is StepResult.TOO_MANY
    assert chosen(choices) == []


def test_a_device_is_not_tried_without_enough_devices_after_it() -> None:
    step, _ = exact_count_device(SearchPosition(0), count=2)
    assert step.resume(None) == SearchPosition(0, device=1, start=1)
    assert step.resume(StepResult.FAILED) == SearchPosition(0, device=1, start=2)
    assert step.resume(StepResult.FAILED) is StepResult.FAILED
    step, _ = exact_count_device(SearchPosition(0), count=4)
    assert step.resume(None) is StepResult.FAILED
    assert step.nothing_tried


def test_devices_excluded_by_a_constraint_do_not_count() -> None:
    constraints = [{"matchAttribute": f"{DRIVER}/numa"}]
    step, choices = exact_count_device(SearchPosition(0), count=3, constraints=constraints)
    position = step.resume(None)
    assert isinstance(position, SearchPosition)
    second = ExactCountDevice(choices, position, step.need, step.eligible)
    assert second.resume(None) is StepResult.FAILED
    assert not second.nothing_tried


def test_every_device_is_tried_once() -> None:
    step, choices = exact_count_device(SearchPosition(0))
    one = AllModeDevice(choices, SearchPosition(0), step.need.request, GPUS[1])
    assert one.resume(None) == SearchPosition(0, device=1)
    assert chosen(choices) == ["b"]
    again = AllModeDevice(choices, SearchPosition(0), step.need.request, GPUS[1])
    assert again.resume(None) is StepResult.FAILED
    assert one.resume(StepResult.TOO_MANY) is StepResult.TOO_MANY
    assert chosen(choices) == []


def test_the_last_alternative_that_was_tried_is_recorded() -> None:
    picked: dict[tuple[int, int], int] = {}
    step = AlternativeChoice(picked, SearchPosition(0, 3), 2)
    assert step.resume(None) == SearchPosition(0, 3, 0)
    assert step.resume(StepResult.TOO_MANY) == SearchPosition(0, 3, 1)
    assert picked == {(0, 3): 1}
    assert step.resume(StepResult.FAILED) is StepResult.FAILED


def test_too_many_devices_only_if_all_alternatives_have_too_many() -> None:
    step = AlternativeChoice({}, SearchPosition(0), 2)
    step.resume(None)
    step.resume(StepResult.TOO_MANY)
    assert step.resume(StepResult.TOO_MANY) is StepResult.TOO_MANY


def test_too_many_devices_in_a_claim_is_a_failure_for_the_previous_claim() -> None:
    step = NextClaim(1)
    assert step.resume(None) == SearchPosition(1)
    assert step.resume(StepResult.TOO_MANY) is StepResult.FAILED


A = f'device.attributes["{DRIVER}"]'
NUMA = {"matchAttribute": f"{DRIVER}/numa"}


def gpus(*numa: int) -> dict[str, Any]:
    return a_slice(*(device(f"gpu-{index}", numa=numa_node, n=index) for index, numa_node in enumerate(numa)))


def test_the_first_device_that_fits_is_taken() -> None:
    assert names(allocated(allocator(gpus(0, 0, 1)), claim(request("r", f"{A}.n > 0")))) == [["gpu-1"]]


def test_choices_that_fail_are_undone() -> None:
    allocations = allocated(allocator(gpus(0, 1, 1)), claim(request("r", count=2), constraints=[NUMA]))
    assert names(allocations) == [["gpu-1", "gpu-2"]]


def test_a_rejected_device_makes_distinct_forget_the_others_of_its_request() -> None:
    """As in kube-scheduler 1.36: the second constraint rejects gpu-1, and then gpu-2 is compared with nothing."""
    distinct = {"distinctAttribute": f"{DRIVER}/numa"}
    wanted = request("r", count=2)
    assert names(allocated(allocator(gpus(0, 1, 0)), claim(wanted, constraints=[distinct, NUMA]))) == [
        ["gpu-0", "gpu-2"]
    ]
    assert allocated(allocator(gpus(0, 1, 0)), claim(wanted, constraints=[NUMA, distinct])) is None
    assert allocated(allocator(gpus(0, 0, 1)), claim(wanted, constraints=[distinct, NUMA])) is None


def test_a_later_request_may_change_the_device_of_an_earlier_one() -> None:
    allocations = allocated(allocator(gpus(0, 1)), claim(request("any"), request("first", f"{A}.n == 0")))
    assert names(allocations) == [["gpu-1", "gpu-0"]]


def test_a_later_claim_may_change_the_device_of_an_earlier_one() -> None:
    any_gpu, first_gpu = claim(request("r")), claim(request("r", f"{A}.n == 0"), name="d")
    assert names(allocated(allocator(gpus(0, 1)), any_gpu, first_gpu)) == [["gpu-1"], ["gpu-0"]]


def test_the_preferred_alternative_wins_unless_its_device_is_needed() -> None:
    prefers = first_available("r", first=exact_request(f"{A}.n == 0"), second=exact_request())
    only = request("q", f"{A}.n == 0")
    gpu_allocator = allocator(gpus(0, 1))
    assert names(allocated(gpu_allocator, claim(prefers))) == [["gpu-0"]]
    both = allocated(gpu_allocator, claim(prefers, only))
    assert both
    assert [(result["request"], result["device"]) for result in both[0]["devices"]["results"]] == [
        ("r/second", "gpu-1"),
        ("q", "gpu-0"),
    ]


def test_an_alternative_with_too_many_devices_is_skipped() -> None:
    devices = a_slice(*(device(f"gpu-{index}") for index in range(40)))
    allocations = allocated(
        allocator(devices),
        claim(request("r", count=20), first_available("q", a=exact_request(count=13), b=exact_request())),
    )
    assert allocations
    assert len(allocations[0]["devices"]["results"]) == 21


def test_a_smaller_earlier_alternative_may_stay_within_the_limit() -> None:
    devices = a_slice(*(device(f"gpu-{index}") for index in range(40)))
    wanted = claim(
        first_available("r", many=exact_request(count=20), few=exact_request(count=2)), request("q", count=20)
    )
    allocations = allocated(allocator(devices), wanted)
    assert allocations
    assert len(allocations[0]["devices"]["results"]) == 22


def test_mode_all_needs_all_devices() -> None:
    everything = claim(request("r", f"{A}.n < 2", allocationMode="All"))
    assert names(allocated(allocator(gpus(0, 0, 0)), everything)) == [["gpu-0", "gpu-1"]]
    assert allocated(allocator(gpus(0, 0, 0)), claim(request("q"), request("r", allocationMode="All"))) is None
    assert allocated(allocator(gpus()), everything) is None


def test_mode_all_that_breaks_a_constraint_is_an_error() -> None:
    everything = claim(request("r", allocationMode="All"), constraints=[NUMA])
    with pytest.raises(AllocationError, match="a claim constraint would not be satisfied"):
        allocated(allocator(gpus(0, 1)), everything)


def test_partitions_are_combined_within_their_counters() -> None:
    sizes = {"half-0": "2", "half-1": "2", "whole": "4", "third": "3"}
    devices = [device(name, size=int(value)) | consumes(memory=value) for name, value in sizes.items()]
    partition_allocator = allocator(counter_sets(set={"memory": "4"}), a_slice(*devices, count=2))
    assert names(allocated(partition_allocator, claim(request("r", count=2)))) == [["half-0", "half-1"]]
    assert names(allocated(partition_allocator, claim(request("r", f"{A}.size > 2", count=1)))) == [["whole"]]
    assert allocated(partition_allocator, claim(request("r", f"{A}.size > 2", count=2))) is None


def test_combinations_without_enough_devices_are_not_tried() -> None:
    gpu_allocator = allocator(gpus(*(0, 1) * 16))
    assert allocated(gpu_allocator, claim(request("r", count=17), constraints=[NUMA])) is None
    assert gpu_allocator.steps < 100


def test_a_hopeless_request_is_detected_once() -> None:
    gpu_allocator = allocator(gpus(*(0, 1) * 8))
    assert allocated(gpu_allocator, claim(request("r", count=8), request("q", f"{A}.n > 99"))) is None
    assert gpu_allocator.steps < 20


def test_an_error_is_raised_even_if_the_search_is_hopeless() -> None:
    devices = a_slice(device("a", n=1, m=1), device("b", n=1))
    wanted = claim(request("r", f"{A}.m == 1"), request("q", f"{A}.n > 99"))
    with pytest.raises(SelectorError, match="no such key: m"):
        allocated(allocator(devices), wanted)
    other = claim(first_available("r", a=exact_request(), b=exact_request(f"{A}.m == 1")), request("q", f"{A}.n > 99"))
    with pytest.raises(SelectorError, match="no such key: m"):
        allocated(allocator(devices), other)


def test_the_search_stops_at_its_step_limit() -> None:
    nics = [device(f"nic-{index}", numa=index) for index in range(8)]
    wanted = claim(*(request(f"r{index}") for index in range(6)), constraints=[NUMA])
    with pytest.raises(
        SearchLimitError,
        match="claim ns/c: the search was given up after 5 steps, as kube-scheduler gives up after 10 s",
    ):
        allocated(allocator(a_slice(*nics), max_steps=5), wanted)


@pytest.mark.parametrize(
    ("count", "kind"), [(1, "distinctAttribute"), (2, "matchAttribute")], ids=["many tried", "many examined"]
)
def test_examined_devices_count_as_work(count: int, kind: str) -> None:
    """Otherwise a step would take longer with more devices, and the limit would say little about time."""
    many = [device(f"gpu-{index}", numa=index % 9) for index in range(120)]
    requests = [request(f"r{index}", count=count) for index in range(16)]
    wanted = claim(*requests, constraints=[{kind: f"{DRIVER}/numa"}])
    gpu_allocator = allocator(a_slice(*many), max_steps=20_000)
    with pytest.raises(SearchLimitError):
        allocated(gpu_allocator, wanted)
    assert 20_000 < gpu_allocator.work < 20_000 + 2 * len(many)
    assert gpu_allocator.steps < 2_000


def test_many_claims_with_many_devices() -> None:
    devices = a_slice(*(device(f"gpu-{index}") for index in range(50 * 32)))
    allocations = allocated(
        allocator(devices), *(claim(request("r", count=32), name=f"c{index}") for index in range(50))
    )
    assert allocations
    assert len(allocations) == 50


def test_lists_in_constraints_are_searched_as_the_scheduler_does() -> None:
    """A removed device may leave values that exclude another one; skipping combinations would change the result."""
    values = (["a", "b"], ["b"], ["a"])
    devices = [{"name": f"d{index}", "attributes": {"x": {"strings": strings}}} for index, strings in enumerate(values)]
    constraint = {"matchAttribute": f"{DRIVER}/x"}
    wanted = claim(request("r"), request("q"), request("p", 'device.driver == ""'), constraints=[constraint])
    assert allocated(allocator(a_slice(*devices)), wanted) is None
    two = claim(request("r", f'!{A}.x.includes("none")', count=2), constraints=[constraint])
    assert names(allocated(allocator(a_slice(*devices)), two)) == [["d0", "d1"]]
    off = SchedulerFeatures(list_attributes=False)
    assert allocated(allocator(a_slice(*devices), features=off), two) is None


def deriving(expression: str, **more: Any) -> dict[str, Any]:
    derived = [{"name": f"{DRIVER}/derived", "expression": expression}]
    return request("r", derivedAttributes=derived, **more)


MATCH_DERIVED = {"matchAttribute": f"{DRIVER}/derived"}


def test_devices_match_in_a_derived_attribute() -> None:
    wanted = claim(deriving(f"{A}.n / 2", count=2), constraints=[MATCH_DERIVED])
    assert names(allocated(allocator(gpus(0, 0, 0), features=NEWER), wanted)) == [["gpu-0", "gpu-1"]]
    shifted = claim(deriving(f"({A}.n + 1) / 2", count=2), constraints=[MATCH_DERIVED])
    assert names(allocated(allocator(gpus(0, 0, 0), features=NEWER), shifted)) == [["gpu-1", "gpu-2"]]


@pytest.mark.parametrize("count", [1, 3])
def test_an_error_of_a_derived_attribute_is_found_even_with_too_few_devices(count: int) -> None:
    """As in kube-scheduler, the first device is tried before the number of devices is checked."""
    wanted = claim(deriving("1 / 0", count=count), constraints=[MATCH_DERIVED])
    with pytest.raises(AllocationError, match="division by zero"):
        allocated(allocator(gpus(0, 0), features=NEWER), wanted)


def test_mode_all_with_a_full_device() -> None:
    slices = a_slice(*(shared(name, capacity={"memory": "4"}) for name in ("a", "b")))
    used = AllocatedState.of([held("a", shareID="x", consumedCapacity={"memory": "4"})])
    wanted = claim(request("r", allocationMode="All", capacity={"requests": {"memory": "1"}}))
    assert names(allocated(allocator(slices), wanted, held=used)) == [["b"]]
    assert allocated(allocator(slices, features=of_1_37()), wanted, held=used) is None


def test_since_1_37_a_rejected_device_changes_nothing() -> None:
    devices = [device(f"gpu-{index}", model=model, numa=numa) for index, (model, numa) in enumerate(MODELS)]
    constraints = [{"distinctAttribute": f"{DRIVER}/model"}, NUMA]
    wanted = claim(request("r", count=3), constraints=constraints)
    assert names(allocated(allocator(a_slice(*devices)), wanted)) == [["gpu-0", "gpu-2", "gpu-3"]]
    assert allocated(allocator(a_slice(*devices), features=of_1_37()), wanted) is None


MODELS = [("a", 0), ("b", 1), ("a", 0), ("b", 0)]
