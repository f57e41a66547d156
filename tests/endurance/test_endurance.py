"""A short run: what it finds, what it must find, and how it is shown. `make endurance` is the long one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.endurance.node import EnduranceNode
from tests.endurance.report import picture, table
from tests.endurance.run import RESIDENTS, Endurance, Result
from tests.endurance.samples import Sample, complaints

PODS = 60
DRIVER = "dra.cpu"
FLAT = Sample(
    pods=0, life=1, memory=73.0, descriptors=15, threads=20, files=2, specs=2, claims=50, processor=0.5, p50=0.1, p99=1
)  # fmt: skip


@pytest.mark.timeout(1800)
def test_pods_come_and_go_through_every_fault(tmp_path: Path) -> None:
    with EnduranceNode(tmp_path) as node:
        result = Endurance(node, PODS, batches=3, seed=1, tell=lambda _line: None).run()
    assert result.complaints == []
    assert {name.partition(":")[0] for name in result.faults} == {
        "requests refused",
        "connections broken",
        "requests slow",
        "CDI specs removed",
        "kubelet restarted",
        "runtime restarted",
        "driver killed",
        "driver restarted",
    }
    for samples in result.samples.values():
        assert [each.pods for each in samples] == [0, 20, 40, 60]
        assert samples[-1].life == 3
        assert {(each.files, each.specs) for each in samples} == {(RESIDENTS, RESIDENTS)}


def life(**last: float) -> list[Sample]:
    """Twenty samples, the later half of which differs from the first."""
    return [replace(FLAT, pods=100 * number, **(last if number > 10 else {})) for number in range(20)]


def test_a_life_that_stays_the_same_is_flat() -> None:
    assert complaints(DRIVER, life(), claims=2) == []


@pytest.mark.parametrize(
    ("last", "told"),
    [
        ({"memory": 78.0}, "memory grew from 73.0 to 78.0 MiB"),
        ({"descriptors": 40}, "descriptors grew from 15 to 40"),
        ({"threads": 40}, "threads grew from 20 to 40"),
        ({"processor": 0.8}, "processor time of a claim grew from 10.00 to 16.00 ms"),
        ({"files": 3}, "3 state files and 2 CDI specs for 2 claims"),
        ({"specs": 1}, "2 state files and 1 CDI specs for 2 claims"),
    ],
)
def test_what_grows_is_told(last: dict[str, float], told: str) -> None:
    found = complaints(DRIVER, life(**last), claims=2)
    assert found
    assert all(told in each for each in found)


def test_a_new_process_begins_anew() -> None:
    later = [replace(each, life=2, memory=90.0, pods=each.pods + 2000) for each in life()]
    assert complaints(DRIVER, [*life(), *later], claims=2) == []


@pytest.mark.parametrize("what", ["descriptors", "threads"])
def test_a_short_life_is_judged_for_descriptors_and_threads_alone(what: str) -> None:
    """Its two samples may lie before and after all threads of the pools have started."""
    first = FLAT if what == "descriptors" else replace(FLAT, threads=FLAT.descriptors)
    assert complaints(DRIVER, [first, replace(first, memory=90.0, processor=5.0, **{what: 45})], claims=2) == []
    (found,) = complaints(DRIVER, [first, replace(first, **{what: 46})], claims=2)
    assert f"{what} grew from 15 to 46" in found
    assert "life 1: 2 samples, its memory and processor time are not judged" in table(
        Result(100, 1.0, {DRIVER: [first, first]})
    )


def test_table_and_picture_have_each_life_and_each_complaint() -> None:
    result = Result(2000, 60.0, {DRIVER: life(memory=78.0)}, complaints=["memory grew"])
    assert "73.0 -> 78.0" in table(result)
    assert "memory grew" in table(result)
    drawn = ET.fromstring(picture(result))
    assert len(drawn.findall(".//{http://www.w3.org/2000/svg}path[@stroke-width]")) == 6
