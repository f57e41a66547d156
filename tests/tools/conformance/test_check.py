from __future__ import annotations

import pytest

from dra_sdk.tools.conformance.check import CheckFailed, Level, Need, Severity, expect
from dra_sdk.tools.conformance.run import Run


def test_a_level_collects_its_checks() -> None:
    level = Level("colour", "Colours")

    @level.must("COL-001", "somewhere", Need.RESTART)
    def is_red(_run: Run) -> None:
        """The driver
        is red."""

    @level.should("COL-002", "elsewhere")
    def is_round(_run: Run) -> None:
        """The driver is round."""

    must, should = level.checks
    assert (must.id, must.level, must.severity, must.needs) == ("COL-001", "colour", Severity.MUST, {Need.RESTART})
    assert (must.contract, must.title, must.source) == ("The driver is red.", "is red", "somewhere")
    assert (should.severity, should.needs) == (Severity.SHOULD, frozenset())


def test_expect_carries_evidence() -> None:
    expect(1, "nothing to see")
    with pytest.raises(CheckFailed, match="too blue") as caught:
        expect([], "too blue", colour="blue")
    assert caught.value.evidence == {"colour": "blue"}
