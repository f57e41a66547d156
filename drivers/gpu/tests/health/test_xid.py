"""XIDs in words, and lists of them."""

from __future__ import annotations

import pytest
from dra_driver_gpu.health import BENIGN_XIDS, HealthRules, parse_xids
from dra_driver_gpu.health.xid import told


def test_the_benign_ones_are_those_of_programs() -> None:
    assert {13, 31, 43, 45, 68, 109} == BENIGN_XIDS


def test_the_list_adds_to_them() -> None:
    rules = HealthRules(also_benign=parse_xids("94, 63"))
    assert [xid for xid in (13, 63, 94, 48, 79) if rules.benign(xid)] == [13, 63, 94]
    assert parse_xids("") == frozenset()


@pytest.mark.parametrize("word", ["x", "0", "-1", "65536", "1.5", "²"])
def test_what_is_no_xid_is_named(word: str) -> None:
    with pytest.raises(ValueError, match="is not an XID: must be a number from 1 to 65535"):
        parse_xids(f"48,{word}")


def test_words() -> None:
    assert told(79) == "XID 79 (the GPU has fallen off the bus)"
    assert told(5000) == "XID 5000"
