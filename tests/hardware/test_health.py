"""The history of one device, and the health of all cards of a node."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dra_sdk import DeviceHealth, HealthStatus
from dra_sdk.hardware.health import FaultHistory, HealthTracker


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


# -- readings


def test_a_problem_counts_until_a_reading_without_it_unless_it_settles() -> None:
    history = FaultHistory[Bits]()
    history.observe(Bits(1), ["hot"], 0)
    history.add(Bits(1), "burnt", 0)
    assert list(history.faults(Bits(1))) == ["hot", "burnt"]
    history.clear()
    assert list(history.faults(Bits(1))) == ["hot"], "a recovery does not change what was read"
    history.observe(Bits(2), [], 1)
    assert list(history.faults(Bits(1))) == ["hot"], "the reading was of another part"
    history.observe(Bits(1), [], 1)
    assert list(history.faults(Bits(1))) == []


def counted(readings: str) -> str:
    """Whether a problem that settles in 3 s counts after each reading; there is one a second, x has the problem."""
    history, text = FaultHistory[Bits](3), ""
    for now, reading in enumerate(readings):
        history.observe(Bits(1), ["hot"] if reading == "x" else [], now)
        text += "x" if list(history.faults(Bits(1))) else "."
    return text


def test_a_problem_settles_and_ends_only_after_it_has_lasted() -> None:
    assert counted("xxxxx.....xx") == "...xxxxx...."
    assert counted("x.x.x.x.x.x.") == "." * 12
    assert counted("xxxx.xx..x..") == "...xxxxxxxxx"


# -- all cards of a node


class Node:
    """A tracker, with a clock that the test advances, and a card of two regions."""

    def __init__(self, **options: float) -> None:
        self.now = 0.0
        self.health = HealthTracker(clock=lambda: self.now, **options)  # type: ignore[arg-type]
        self.health.publish("0000:3b:00.0", {"card": None, "region0": {0}, "region1": {1}})

    def after(self, seconds: float) -> dict[str, str]:
        """What is reported so many seconds later: the status of each device, with its message."""
        self.now += seconds
        texts = {health.device: f"{health.status.name} {health.message}".strip() for health in self.health.report()}
        return {"all": texts["card"]} if len(set(texts.values())) == 1 else texts


CARD = "0000:3b:00.0"


def test_a_card_is_unknown_until_read_and_its_state_is_its_devices() -> None:
    node = Node()
    assert node.after(0) == {"all": "UNKNOWN its card has not been read"}
    node.health.observe(CARD, [])
    assert node.after(0) == {"all": "HEALTHY"}
    node.health.observe(CARD, ["the link is down", "it is hot"])
    assert node.after(0) == {"all": "UNHEALTHY the link is down; it is hot"}
    node.health.observe(CARD, [])
    assert node.after(0) == {"all": "HEALTHY"}


def test_a_fault_of_some_units_concerns_the_devices_that_have_them() -> None:
    node = Node()
    node.health.observe(CARD, [])
    assert node.health.fault(CARD, "parity error", {0})
    assert not node.health.fault(CARD, "parity error", {0})
    broken = "UNHEALTHY parity error, 2 times"
    assert node.after(1000) == {"card": broken, "region0": broken, "region1": "HEALTHY"}
    node.health.observe(CARD, [])
    assert node.after(1000)["region0"] == broken, "a fault lasts"
    node.health.recovered(CARD)
    assert node.after(0) == {"all": "HEALTHY"}


def test_a_problem_of_a_reading_of_some_units() -> None:
    node = Node()
    node.health.observe(CARD, [])
    node.health.observe(CARD, ["no clock"], {1})
    assert node.after(0) == {"card": "UNHEALTHY no clock", "region0": "HEALTHY", "region1": "UNHEALTHY no clock"}


def test_a_fault_that_does_not_occur_again_is_over_after_a_time() -> None:
    node = Node(forget=60)
    node.health.observe(CARD, [])
    node.health.fault(CARD, "timeout")
    assert node.after(59) == {"all": "UNHEALTHY timeout"}
    assert node.after(1) == {"all": "HEALTHY"}


def test_an_unreadable_card_is_unknown_unless_a_problem_is_known() -> None:
    node = Node(settle=10)
    node.health.observe(CARD, [])
    for _ in range(10):
        node.health.unreadable(CARD, "no answer")
        assert node.after(1)["all"] == ("HEALTHY" if node.now < 10 else "UNKNOWN no answer")
    node.health.fault(CARD, "burnt", {0})
    assert node.after(0) == {"card": "UNHEALTHY burnt", "region0": "UNHEALTHY burnt", "region1": "UNKNOWN no answer"}
    node.health.recovered(CARD)
    node.health.observe(CARD, [])
    assert node.after(0) == {"all": "HEALTHY"}


def test_a_remark_leaves_a_card_healthy() -> None:
    node = Node()
    node.health.observe(CARD, [])
    assert [node.health.remark(CARD, "corrected error") for _ in range(3)] == [True, False, False]
    assert node.after(0) == {"all": "HEALTHY corrected error, 3 times"}


def test_a_remark_of_a_reading_lasts_until_the_next_one() -> None:
    node = Node()
    node.health.remark(CARD, "was reset")
    node.health.observe(CARD, [], remarks=["corrected errors: 7"])
    assert node.after(0) == {"all": "HEALTHY corrected errors: 7; was reset"}
    node.health.observe(CARD, [], remarks=["corrected errors: 8"])
    assert node.after(0) == {"all": "HEALTHY corrected errors: 8; was reset"}
    node.health.observe(CARD, ["hot"], remarks=["corrected errors: 9"])
    assert node.after(0) == {"all": "UNHEALTHY hot"}
    node.health.observe(CARD, [])
    assert node.after(0) == {"all": "HEALTHY was reset"}


def test_problems_and_remarks_that_are_one_text_and_no_list_are_an_error() -> None:
    with pytest.raises(TypeError, match="problems must be a list of texts, is 'hot'"):
        Node().health.observe(CARD, "hot")
    with pytest.raises(TypeError, match="remarks must be a list of texts, is 'dusty'"):
        Node().health.observe(CARD, [], remarks="dusty")


def test_a_removed_card_is_not_reported_and_comes_back_without_history() -> None:
    node = Node()
    node.health.fault(CARD, "burnt")
    node.health.remove(CARD)
    node.health.remove("unknown")
    assert node.health.report() == []
    node.health.publish(CARD, {"card": None}, pool="rack")
    node.health.observe(CARD, [])
    assert node.health.report() == [DeviceHealth("card", HealthStatus.HEALTHY, pool="rack")]
