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
[ "$*" != "${SLOW:-}" ] || sleep "$SLOW_SECONDS"
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


def suites(*releases: str, optional: bool = True) -> list[str]:
    made = ["helm ", "test ", "faults ", "test-template ", "site "]
    for place, release in enumerate(releases):
        made += [f"cluster-build {release}", f"test-cluster {release}"]
        if optional:
            made.append(f"test-differential {release}")
        if optional and place == 0:
            made += [f"test-image {release}", f"test-newest {release}", f"test-lab {release}"]
    return made


@pytest.mark.parametrize(("day", "releases"), [(EVEN, ["1.36.3", "1.37.1"]), (ODD, ["1.37.1", "1.36.3"])])
def test_both_releases_run_and_the_day_decides_which_comes_first(ci, day, releases):
    status, said, made = ci(CI_DAY=day)
    assert (status, made) == (0, suites(*releases))
    assert f"Kubernetes {releases[0]} comes first, because day {day} is" in said
    assert f"Kubernetes {releases[1]} follows" in said


def test_without_time_one_release_is_tested_and_all_that_is_left_out_is_told(ci):
    status, said, made = ci(CI_DAY=EVEN, CI_LIMIT="-1")
    assert (status, made) == (0, suites("1.36.3", optional=False))
    assert "Kubernetes 1.37.1 is left out" in said
    assert "It comes first tomorrow." in said
    table = said[said.index("== stages") :]
    first = [f"make test-{name} (1.36.3)" for name in ("differential", "image", "lab")]
    for stage in (*first, "make test-newest", "Kubernetes 1.37.1"):
        assert f"{stage:36} left out: no time" in table


@pytest.mark.parametrize(
    ("limit", "left_out"),
    [
        ("470", ["differential", "image", "newest", "lab"]),
        ("505", ["differential", "newest", "lab"]),
        ("540", ["newest", "lab"]),
        ("620", ["lab"]),
        ("1400", []),
    ],
)
def test_a_stage_that_would_not_end_in_time_is_left_out(ci, limit, left_out):
    """Drawn cases need 520 s, the image 480 s, the newest Python 560 s, the lab 1300 s.

    The machine of this test has up to 20 seconds for all that is before them.
    """
    status, said, made = ci(CI_DAY=EVEN, CI_LIMIT=limit)
    assert status == 0
    for name in ("differential", "image", "newest", "lab"):
        assert any(each.startswith(f"test-{name} ") for each in made) is (name not in left_out)
        assert bool(re.search(rf"make test-{name}.* is left out: 0 min", said)) is (name in left_out)


def test_on_a_slow_machine_a_stage_needs_more_time(ci):
    """`make test` takes two seconds in place of one here, so all others do too."""
    _, said, made = ci(CI_DAY=EVEN, CI_LIMIT="600", SLOW="test", SLOW_SECONDS="2", TEST_SECONDS="1")
    assert "test-differential 1.36.3" not in made
    found = re.search(r"test-differential.* needs up to (\d+) min", said)
    assert found is not None
    assert int(found[1]) >= 17  # twice as long, or more


def test_a_release_can_be_chosen(ci):
    status, said, made = ci(KUBE_VERSION="1.35.4")
    assert (status, made[5:]) == (0, suites("1.35.4")[5:])
    assert "Kubernetes 1.35.4, because KUBE_VERSION is set" in said


def test_each_stage_is_in_the_table_at_the_end(ci):
    _, said, _ = ci(CI_DAY=EVEN)
    table = said[said.index("== stages") :].splitlines()[1:]
    assert [line[:36].rstrip() for line in table] == [
        *("install packages", "make helm", "make test", "make faults", "make test-template", "make site"),
        *("build Kubernetes 1.36.3", "make test-cluster (1.36.3)", "make test-differential (1.36.3)"),
        *("make test-image (1.36.3)", "make test-newest", "make test-lab (1.36.3)"),
        *("build Kubernetes 1.37.1", "make test-cluster (1.37.1)", "make test-differential (1.37.1)"),
        "all together",
    ]
    assert all("passed" in line and line.endswith(" s") for line in table[:-1])


def test_a_failure_ends_the_run_with_its_status_and_the_table(ci):
    status, said, made = ci(FAILING="faults")
    assert (status, made) == (2, suites()[:3])
    table = said[said.index("== stages") :].splitlines()
    assert table[4].split()[:4] == ["make", "faults", "failed", "(2)"]


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
