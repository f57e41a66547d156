from __future__ import annotations

from typing import Any

from dra_sdk.tools.scheduling.allocator import Allocated, Features
from dra_sdk.tools.scheduling.allocator.choices import Choices
from dra_sdk.tools.scheduling.allocator.eligible import Eligible
from dra_sdk.tools.scheduling.allocator.frames import Alternatives, AnyDevice, EveryDevice, NextClaim, Outcome, Task
from dra_sdk.tools.scheduling.allocator.needs import Needs
from dra_sdk.tools.scheduling.allocator.requests import parse
from dra_sdk.tools.scheduling.allocator.selectors import Selectors
from tests.tools.scheduling.allocator.build import DRIVER, a_slice, candidates, claim, device, device_class, request

GPUS = candidates(a_slice(*(device(name, numa=numa) for name, numa in (("a", 0), ("b", 1), ("c", 1)))))


def opened(task: Task, count: int = 1, **devices: Any) -> tuple[AnyDevice, Choices]:
    plan = parse(claim(request("r", count=count), **devices), {"gpu": device_class()}, Features())
    need = Needs(plan, Selectors(Features().cel), Features()).first()
    assert need
    choices = Choices([plan], Allocated(), Features(), plain=True)
    return AnyDevice(choices, task, need, Eligible(0, need, GPUS, choices)), choices


def chosen(choices: Choices) -> list[str]:
    return [each.candidate.id.device for each in choices.chosen[0]]


def test_one_device_after_the_other_is_tried() -> None:
    frame, choices = opened(Task(0, alternative=0))
    assert frame.barren
    tried = []
    result: Task | Outcome = frame.resume(None)
    while isinstance(result, Task):
        tried.append(chosen(choices))
        assert result == Task(0, 0, 0, 1, len(tried))
        result = frame.resume(Outcome.FAILED)
    assert tried == [["a"], ["b"], ["c"]]
    assert result is Outcome.FAILED
    assert not frame.barren
    assert chosen(choices) == []


def test_a_claim_that_is_too_large_gets_no_other_device() -> None:
    frame, choices = opened(Task(0))
    frame.resume(None)
    assert frame.resume(Outcome.TOO_MANY) is Outcome.TOO_MANY
    assert chosen(choices) == []


def test_a_device_is_of_no_use_without_as_many_more_as_are_wanted() -> None:
    frame, _ = opened(Task(0), count=2)
    assert frame.resume(None) == Task(0, device=1, start=1)
    assert frame.resume(Outcome.FAILED) == Task(0, device=1, start=2)
    assert frame.resume(Outcome.FAILED) is Outcome.FAILED
    frame, _ = opened(Task(0), count=4)
    assert frame.resume(None) is Outcome.FAILED
    assert frame.barren


def test_devices_that_a_constraint_excludes_do_not_count() -> None:
    constraints = [{"matchAttribute": f"{DRIVER}/numa"}]
    frame, choices = opened(Task(0), count=3, constraints=constraints)
    task = frame.resume(None)
    assert isinstance(task, Task)
    second = AnyDevice(choices, task, frame.need, frame.eligible)
    assert second.resume(None) is Outcome.FAILED
    assert not second.barren


def test_every_device_is_tried_once() -> None:
    frame, choices = opened(Task(0))
    one = EveryDevice(choices, Task(0), frame.need.request, GPUS[1])
    assert one.resume(None) == Task(0, device=1)
    assert chosen(choices) == ["b"]
    again = EveryDevice(choices, Task(0), frame.need.request, GPUS[1])
    assert again.resume(None) is Outcome.FAILED
    assert one.resume(Outcome.TOO_MANY) is Outcome.TOO_MANY
    assert chosen(choices) == []


def test_alternatives_remember_the_last_that_was_tried() -> None:
    picked: dict[tuple[int, int], int] = {}
    frame = Alternatives(picked, Task(0, 3), 2)
    assert frame.resume(None) == Task(0, 3, 0)
    assert frame.resume(Outcome.TOO_MANY) == Task(0, 3, 1)
    assert picked == {(0, 3): 1}
    assert frame.resume(Outcome.FAILED) is Outcome.FAILED


def test_only_if_all_alternatives_are_too_many_is_the_claim_too_large() -> None:
    frame = Alternatives({}, Task(0), 2)
    frame.resume(None)
    frame.resume(Outcome.TOO_MANY)
    assert frame.resume(Outcome.TOO_MANY) is Outcome.TOO_MANY


def test_that_a_claim_is_too_large_is_only_a_failure_for_the_one_before() -> None:
    frame = NextClaim(1)
    assert frame.resume(None) == Task(1)
    assert frame.resume(Outcome.TOO_MANY) is Outcome.FAILED
