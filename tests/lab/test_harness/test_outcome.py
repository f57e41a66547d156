"""Which tests count as passed, and what is said about the others."""

from __future__ import annotations

import pytest

from tests.lab.harness import outcome

JUNIT = """<testsuites><testsuite>
<testcase classname="lab.inside.test_a" name="test_good[x]" time="1.5"/>
<testcase classname="lab.inside.test_a" name="test_bad" time="0.1"><failure message="no">line 7</failure></testcase>
<testcase classname="lab.inside.test_a" name="test_left_out" time="0"><skipped message="not here"/></testcase>
<testcase classname="lab.inside.test_a" name="test_untidy" time="1"/>
<testcase classname="lab.inside.test_a" name="test_untidy" time="0"><error message="not as before">x</error></testcase>
</testsuite></testsuites>"""
FILE = "lab/inside/test_a.py"


@pytest.fixture
def results(tmp_path):
    (tmp_path / "junit.xml").write_text(JUNIT)
    (tmp_path / "status").write_text("1\n")
    return tmp_path


def test_a_test_that_passed(results):
    found = outcome.read(results, "console")
    assert found.status == 1
    assert found.problem(f"{FILE}::test_good[x]") == ""
    assert found.cases[f"{FILE}::test_good[x]"].seconds == 1.5


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("test_bad", "failure\nno\nline 7"),
        ("test_left_out", "skipped\nnot here"),
        ("test_untidy", "error\nnot as before"),
        ("test_gone", "did not run in the machine: pytest ended with status 1; its console ends:\nthe end"),
    ],
)
def test_a_test_that_did_not_pass(results, test, message):
    assert message in outcome.read(results, "the end").problem(f"{FILE}::{test}")


def test_two_boots_count_as_one_run(results):
    first, other = outcome.read(results, "first"), outcome.Case("passed", 1)
    both = first.and_then(outcome.Outcome(0, {"b": other}, "second"))
    assert (both.status, both.console, both.why) == (1, "first\nsecond", "")
    assert both.cases == {**first.cases, "b": other}
    died = outcome.Outcome(None, {}, "", "the machine was killed")
    assert (both.and_then(died).status, both.and_then(died).ended) == (None, "the machine was killed")
    assert outcome.NOTHING.and_then(first) == first


def test_the_next_boot_finds_no_results(results):
    outcome.clear(results)
    assert outcome.read(results, "") == outcome.Outcome(None, {}, "")


def test_a_machine_that_died(tmp_path):
    found = outcome.read(tmp_path, "Kernel panic", "the machine was killed after 900 s")
    assert found.status is None
    assert "the machine was killed after 900 s; its console ends:\nKernel panic" in found.problem(
        f"{FILE}::test_good[x]"
    )
    assert outcome.read(tmp_path, "").ended == "the machine ended before pytest"
