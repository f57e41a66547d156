from __future__ import annotations

from dataclasses import astuple

import pytest

from dra_sdk.scheduling.allocator.behaviour import SINCE_1_37, UP_TO_1_36, Behaviour


@pytest.mark.parametrize(
    ("minor", "expected"), [(34, UP_TO_1_36), (36, UP_TO_1_36), (37, SINCE_1_37), (38, SINCE_1_37)]
)
def test_a_release_decides(minor: int, expected: Behaviour) -> None:
    assert Behaviour.of(minor) is expected


def test_everything_was_mended_at_once() -> None:
    assert set(astuple(UP_TO_1_36)) == {False}
    assert set(astuple(SINCE_1_37)) == {True}
