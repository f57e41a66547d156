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
    assert outcome.read(results, "console").problem(f"{FILE}::test_good[x]") == ""


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


def test_a_machine_that_died(tmp_path):
    found = outcome.read(tmp_path, "Kernel panic", "the machine was killed after 900 s")
    assert found.status is None
    assert "the machine was killed after 900 s; its console ends:\nKernel panic" in found.problem(
        f"{FILE}::test_good[x]"
    )
    assert outcome.read(tmp_path, "").ended == "the machine ended before pytest"
