"""Which tests there are for the inside of the machine, so that one which did not run there is missed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
INSIDE = "tests/lab/inside"


def inside_tests() -> list[str]:
    """Their node ids, as pytest collects them here. AssertionError with what it said where it cannot."""
    command = [sys.executable, "-m", "pytest", INSIDE, "--collect-only", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "DRA_SDK_LAB": "collect", "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    found = [line for line in done.stdout.splitlines() if line.startswith(INSIDE)]
    assert done.returncode == 0, done.stdout + done.stderr
    assert found, f"no test in {INSIDE}"
    return found
