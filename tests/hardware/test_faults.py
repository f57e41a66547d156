"""The faults of one device."""

from __future__ import annotations

from dataclasses import dataclass

from dra_sdk.hardware.faults import FaultHistory


@dataclass(frozen=True)
class Bits:
    """Parts of a device as bits of a number."""

    mask: int

    def touches(self, other: Bits, /) -> bool:
        return bool(self.mask & other.mask)


def test_a_fault_concerns_every_part_that_touches_its_own() -> None:
    history = FaultHistory[Bits]()
    history.add(Bits(0b0011), "burnt", 0)
    assert list(history.faults(Bits(0b0001))) == list(history.faults(Bits(0b1111))) == ["burnt"]
    assert list(history.faults(Bits(0b0100))) == []


def test_a_fault_that_repeats_is_counted_and_not_new() -> None:
    history = FaultHistory[Bits]()
    assert [history.add(Bits(1), "burnt", now) for now in range(3)] == [True, False, False]
    assert history.add(Bits(1), "scratched", 3)
    assert list(history.faults(Bits(1))) == ["burnt, 3 times", "scratched"]


def test_a_fault_is_forgotten_when_its_last_time_is_long_ago() -> None:
    history = FaultHistory[Bits]()
    for now in (0, 50):
        history.add(Bits(1), "burnt", now)
    history.forget(109, 60)
    assert list(history.faults(Bits(1))) == ["burnt, 2 times"]
    history.forget(110, 60)
    assert list(history.faults(Bits(1))) == []
    assert history.add(Bits(1), "burnt", 120), "it is new again"


def test_remarks_outlive_a_recovery() -> None:
    history = FaultHistory[Bits]()
    history.add(Bits(1), "burnt", 0)
    assert [history.remark("dusty") for _ in range(2)] == [True, False]
    history.clear()
    assert list(history.faults(Bits(1))) == []
    assert list(history.remarks()) == ["dusty, 2 times"]
