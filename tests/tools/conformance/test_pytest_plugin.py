from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dra_sdk.tools.conformance.check import Result, Status
from dra_sdk.tools.conformance.checks import BY_ID
from dra_sdk.tools.conformance.pytest_plugin import report_result

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.timeout(300)  # each test runs pytest and a driver as processes, on a machine that may be busy
COMMAND = f"{sys.executable} -m tests.tools.conformance.mutants plugged.example.com"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-rs",
        "-p",
        "dra_sdk.tools.conformance.pytest_plugin",
        "-p",
        "no:cacheprovider",
    ]
    return subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def test_each_check_is_a_test_of_the_suite() -> None:
    suite = ["--pyargs", "dra_sdk.tools.conformance.pytest_suite"]
    done = run(*suite, "--dra-level", "REG-001,REG-012,ROLL-001", f"--dra-command={COMMAND} odd-socket-name")
    assert "1 passed, 2 skipped" in done.stdout, done.stdout + done.stderr
    assert "should, but does not: driver plugged.example.com names its socket plugin.sock" in done.stdout
    assert "not run: needs two instances at once" in done.stdout
    assert done.returncode == 0
    done = run(*suite, "--dra-level", "PREP-001", f"--dra-command={COMMAND} empty-answer")
    assert "FAILED" in done.stdout
    assert "contract: An allocated claim is prepared" in done.stdout
    assert done.returncode == 1


def test_an_author_can_name_the_driver_in_code(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "import pytest\n"
        "from dra_sdk.tools.conformance.target import Target\n"
        "@pytest.fixture(scope='session')\n"
        f"def dra_target(): return Target(command={COMMAND!r})\n"
        "def test_it(dra_check): dra_check()\n"
    )
    done = run(str(tmp_path), "--rootdir", str(tmp_path), "--dra-level", "wire")
    assert "5 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("check_id", "status", "strict", "outcome"),
    [
        ("PREP-001", Status.FAILED, False, pytest.fail.Exception),
        ("PREP-012", Status.FAILED, False, pytest.skip.Exception),
        ("PREP-012", Status.FAILED, True, pytest.fail.Exception),
        ("PREP-001", Status.NOT_RUN, True, pytest.skip.Exception),
        ("PREP-001", Status.NOT_APPLICABLE, False, pytest.skip.Exception),
    ],
)
def test_a_result_decides_how_a_test_ends(
    check_id: str, status: Status, strict: bool, outcome: type[BaseException]
) -> None:
    with pytest.raises(outcome, match="too blue"):
        report_result(Result(BY_ID[check_id], status, "too blue"), strict=strict)


def test_a_passed_check_passes_its_test() -> None:
    report_result(Result(BY_ID["PREP-001"], Status.PASSED), strict=True)
