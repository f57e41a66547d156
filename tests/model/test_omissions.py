"""What is left out is collected for a discovery, in its own thread, and said in a sentence."""

from __future__ import annotations

from threading import Thread

from dra_sdk import HardwareError
from dra_sdk.model.omissions import Omission, collecting_omissions, leave_out, leave_out_fact


def test_devices_and_facts_are_collected_once_each() -> None:
    with collecting_omissions() as omissions:
        for _ in range(2):
            leave_out("card 3", HardwareError("/sys/card3/id: cannot be read: Input/output error"))
            leave_out_fact("/sys/card4/speed", "/sys/card4/speed: expected a number")
    assert [str(omission) for omission in sorted(omissions)] == [
        "left out: /sys/card4/speed: expected a number",
        "card 3 is left out: /sys/card3/id: cannot be read: Input/output error",
    ]


def test_each_discovery_has_its_own() -> None:
    with collecting_omissions() as outer:
        with collecting_omissions() as inner:
            leave_out("card 1", "gone")
        thread = Thread(target=leave_out, args=("card 2", "in another thread"))
        thread.start()
        thread.join()
        leave_out("card 3", "gone")
    leave_out("card 4", "after it")
    assert inner == {Omission("card 1", "gone", is_device=True)}
    assert outer == {Omission("card 3", "gone", is_device=True)}
