from __future__ import annotations

from dataclasses import astuple, replace

import pytest

from dra_sdk.tools.scheduling.allocator.behaviour import OF_1_34, SINCE_1_37, UP_TO_1_36, Behaviour


@pytest.mark.parametrize(
    ("minor", "expected"), [(34, OF_1_34), (35, UP_TO_1_36), (36, UP_TO_1_36), (37, SINCE_1_37), (38, SINCE_1_37)]
)
def test_a_release_decides(minor: int, expected: Behaviour) -> None:
    assert Behaviour.of(minor) is expected


def test_everything_was_mended_at_once() -> None:
    assert set(astuple(UP_TO_1_36)) == {False}
    assert set(astuple(replace(SINCE_1_37, counters_with_devices=True))) == {True}


def test_1_34_differs_in_where_counters_lie() -> None:
    assert replace(OF_1_34, counters_with_devices=False) == UP_TO_1_36
    assert OF_1_34.counters_with_devices
