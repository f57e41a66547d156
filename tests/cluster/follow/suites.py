"""Tests by pytest as parts of the comparison: the upstream tables, and the drivers on a real kubelet."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from tests.cluster.follow.report import Difference
from tests.cluster.harness.cluster import Cluster, take_down
from tests.cluster.harness.errors import HarnessError
from tests.cluster.harness.progress import Progress

ROOT: Final = Path(__file__).parents[3]
VECTORS: Final = ("tests/tools/scheduling", "tests/cel", "tests/wire")
DRAWN: Final = ("tests/cluster/test_differential.py", "tests/cluster/test_validation.py", "tests/cluster/test_cel.py")
"""Tests that `comparisons` does in its own way."""
IMAGE: Final = "tests/cluster/test_image"
"""Tests of `make test-image`, which builds the image for them."""
CLUSTER: Final = "follow"
_GATE: Final = re.compile(r"\b(?:DRA[A-Z]\w+|ResourceHealth\w*)\b")
_FAILED: Final = 1
"""The exit status of pytest if tests failed; others say that it could not run them."""


def vectors() -> tuple[str, list[Difference]]:
    """Runs the tests of the upstream tables. They show what a change of this package for a new release has broken."""
    return run_tests("upstream table", ["-n", "2", *VECTORS], {})


def kubelet(version: str, *, alpha: bool) -> tuple[str, list[Difference]]:
    """Runs the tests on a real kubelet, with the beta gates or with all gates on."""
    if Cluster.find(CLUSTER) is not None:
        raise HarnessError(f"a cluster {CLUSTER!r} runs already: take it down first (--name {CLUSTER})")
    cluster = Cluster.up(version, alpha=alpha, name=CLUSTER, progress=Progress())
    try:
        arguments = ["tests/cluster", *(f"--ignore={path}" for path in (*DRAWN, IMAGE))]
        environment = {"KUBE_VERSION": version, "DRA_SDK_TEST_CLUSTER": cluster.name}
        return run_tests(f"kubelet, {'all' if alpha else 'default'} gates", arguments, environment)
    finally:
        take_down(CLUSTER, Progress())


def run_tests(area: str, arguments: Iterable[str], environment: Mapping[str, str]) -> tuple[str, list[Difference]]:
    """Runs pytest; returns what it ran, with a difference for each failure. Raises HarnessError if it cannot run."""
    with tempfile.TemporaryDirectory(prefix="follow-") as folder:
        target = Path(folder) / "junit.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junit-xml={target}", *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
        )
        if done.returncode not in (0, _FAILED) or not target.is_file():
            raise HarnessError(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        suite = ET.fromstring(target.read_text())
    return read_results(area, suite)


def read_results(area: str, suite: ET.Element) -> tuple[str, list[Difference]]:
    """Returns how many tests a JUnit report has, and a difference for each that failed."""
    total = skipped = 0
    found = []
    for case in suite.iter("testcase"):
        total += 1
        skipped += case.find("skipped") is not None
        trouble = case.find("failure") if case.find("failure") is not None else case.find("error")
        if trouble is not None:
            message, text = trouble.get("message", ""), trouble.text or ""
            name = f"{case.get('classname', '').removeprefix('tests.cluster.')}::{case.get('name', '')}"
            found.append(Difference(area, name, _reason(message, text), [text[-1500:]]))
    return f"{total - skipped} tests", found


def _reason(message: str, text: str) -> str:
    gates = ", ".join(dict.fromkeys(_GATE.findall(text)))
    line = next(iter(message.splitlines()), "failed")[:200]
    return f"{line} (about {gates})" if gates else line
