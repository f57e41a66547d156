from __future__ import annotations

from dra_sdk.tools.conformance.check import Severity, Status
from dra_sdk.tools.conformance.report.text import closing
from tests.tools.conformance.report.results import RESULTS, report

PASSED, MUST, SHOULD, ABSENT, _ = RESULTS


def test_counts_and_score() -> None:
    made = report()
    assert [made.count(status) for status in Status] == [1, 2, 1, 1]
    assert made.score(Severity.MUST) == "1/2"
    assert made.score(Severity.SHOULD) == "0/1"
    assert [each.check.id for each in made.failures] == ["PREP-001", "PREP-012"]


def test_a_driver_conforms_unless_something_that_must_hold_failed() -> None:
    assert report(PASSED, MUST).exit_status == 1
    assert report(PASSED, SHOULD).exit_status == 0
    assert report(PASSED, SHOULD, strict=True).exit_status == 1
    assert report(PASSED, ABSENT).exit_status == 0


def test_where_nothing_was_seen_to_hold_nothing_is_claimed() -> None:
    assert not report(ABSENT).conformant
    assert report(ABSENT).exit_status == 2
    assert list(closing(report(ABSENT)))[-1].endswith("the driver could not be checked")
