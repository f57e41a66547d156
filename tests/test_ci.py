"""The CI script: which stages run, in which order, and what it prints. A script stands for make."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "run"
EVEN, ODD = "20000", "20001"
MAKE = """#!/bin/sh
echo "$* ${KUBE_VERSION:-}" >> "$MADE"
[ "$*" != "${FAILING:-}" ] || exit 2
"""


@pytest.fixture
def ci(tmp_path):
    """Runs the script with programs that do nothing; returns exit status, output, and what was made."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {
        "make": MAKE,
        "python3": "#!/bin/sh\n",
        "gcc": "#!/bin/sh\n",
        "uname": "#!/bin/sh\necho aarch64\n",  # one that lacks no other loader
        "apt-get": "#!/bin/sh\nexit 9\n",
    }.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    made = tmp_path / "made"

    def run(**environment: str) -> tuple[int, str, list[str]]:
        both = {"PATH": f"{programs}:{os.environ['PATH']}", "MADE": str(made), **environment}
        done = subprocess.run([SCRIPT], env=both, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr, made.read_text().splitlines()

    return run


def suites(*releases: str) -> list[str]:
    each = ["cluster-build", "test-cluster", "test-differential"]
    on_kubernetes = [f"{name} {release}" for release in releases for name in each]
    if releases:
        on_kubernetes.insert(len(each), f"test-lab {releases[0]}")
    return ["helm ", "test ", "test-newest ", "faults ", "test-template ", "site ", *on_kubernetes]


@pytest.mark.parametrize(("day", "releases"), [(EVEN, ["1.36.3", "1.37.1"]), (ODD, ["1.37.1", "1.36.3"])])
def test_both_releases_run_and_the_day_decides_which_comes_first(ci, day, releases):
    status, said, made = ci(CI_DAY=day)
    assert (status, made) == (0, suites(*releases))
    assert f"Kubernetes {releases[0]} comes first, because day {day} is" in said
    assert f"Kubernetes {releases[1]} follows" in said


def test_the_second_release_is_left_out_where_time_is_short(ci):
    status, said, made = ci(CI_DAY=EVEN, CI_LIMIT="-1")
    assert (status, made) == (0, [each for each in suites("1.36.3") if "lab" not in each])
    assert "Kubernetes 1.37.1 is left out" in said
    assert "It comes first tomorrow." in said


@pytest.mark.parametrize(("limit", "runs"), [("810", False), ("880", True)])
def test_the_lab_is_left_out_where_it_would_take_too_long(ci, limit, runs):
    """It needs 22 minutes, and may end 8 minutes after the limit; the machine of this test has a minute."""
    status, said, made = ci(CI_DAY=EVEN, CI_LIMIT=limit)
    assert status == 0
    assert ("test-lab 1.36.3" in made) is runs
    assert ("make test-lab is left out: 0 min" in said) is not runs
    assert ("make test-lab (1.36.3)               left out: no time" in said) is not runs


def test_a_release_can_be_chosen(ci):
    status, said, made = ci(KUBE_VERSION="1.35.4")
    assert (status, made[6:]) == (0, suites("1.35.4")[6:])
    assert "Kubernetes 1.35.4, because KUBE_VERSION is set" in said


def test_each_stage_is_in_the_table_at_the_end(ci):
    _, said, _ = ci(CI_DAY=EVEN)
    table = said[said.index("== stages") :].splitlines()[1:]
    assert [line[:36].rstrip() for line in table] == [
        *("install packages", "make helm", "make test", "make test-newest", "make faults", "make test-template"),
        "make site",
        *("build Kubernetes 1.36.3", "make test-cluster (1.36.3)", "make test-differential (1.36.3)"),
        "make test-lab (1.36.3)",
        *("build Kubernetes 1.37.1", "make test-cluster (1.37.1)", "make test-differential (1.37.1)"),
        "all together",
    ]
    assert all("passed" in line and line.endswith(" s") for line in table[:-1])


def test_a_failure_ends_the_run_with_its_status_and_the_table(ci):
    status, said, made = ci(FAILING="faults")
    assert (status, made) == (2, suites()[:4])
    table = said[said.index("== stages") :].splitlines()
    assert table[5].split()[:4] == ["make", "faults", "failed", "(2)"]


@pytest.mark.parametrize("command", ["packages", "check"])
def test_what_runs_before_the_installation_needs_no_package(command):
    done = subprocess.run(
        [sys.executable, "-S", "-m", "tests.cluster.harness", command],
        cwd=SCRIPT.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Error" not in done.stderr
    assert done.returncode in {0, 2}


def test_the_makefile_names_tests_that_exist() -> None:
    makefile = SCRIPT.parents[1] / "Makefile"
    text = makefile.read_text().replace("\\\n", " ")
    found = re.findall(r"^(?:SLOW|GUARDS|IMAGE|DRAWN) := (.+)$", text, re.MULTILINE)
    paths = [path for line in found for path in line.split()]
    assert len(found) == 4
    assert [path for path in paths if not (makefile.parent / path).exists()] == []
