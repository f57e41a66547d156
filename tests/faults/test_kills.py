"""Kills at random moments, ten thousand with FULL=1: nothing is lost or doubled, or left after the next start."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import SystemRandom

import pytest

from tests.counts import count
from tests.faults.kills import KINDS

PROGRAM = Path(__file__).with_name("kills.py")
SEED = "DRA_SDK_KILLS_SEED"
"""Draws the claims, the calls and the moments of the kills; what a process has done by such a moment varies."""
KILLS = count(2_000, 10_000)
WORKERS = 2
MEMORY = Path("/dev/shm")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """In memory where there is such a directory: a kill does not take from the kernel what it has not written yet."""
    return Path(f"{MEMORY}/{tmp_path.name}-{os.getpid()}") if MEMORY.is_dir() else tmp_path / "sites"


@pytest.mark.timeout(1200)
def test_killed_thousands_of_times(directory: Path, record_property: Callable[[str, object], None]) -> None:
    seed = int(os.environ.get(SEED) or SystemRandom().randrange(1 << 32))
    record_property("told", f"kills: seed {seed}; {SEED}={seed} draws the same")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    directory.mkdir()
    arguments = [sys.executable, str(PROGRAM), str(directory), str(seed), str(KILLS // len(KINDS))]
    found: Counter[str] = Counter()
    kinds: dict[str, int] = {}
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        workers = []
        for index in range(WORKERS):
            command = [*arguments, *KINDS[index::WORKERS]]
            worker = subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            workers.append(stack.enter_context(worker))
            stack.callback(worker.kill)
        for worker in workers:
            printed, errors = worker.communicate()
            assert worker.returncode == 0, f"seed {seed}: {errors}"
            for kind, counts in json.loads(printed).items():
                found.update(counts)
                kinds[kind] = counts["kills"]
    record_property(
        "told", f"{found['kills']} kills (seed {seed}): none lost, none doubled, nothing left; {dict(found)}"
    )
    assert sorted(kinds) == sorted(KINDS)
    assert sum(kinds.values()) >= KILLS
    assert found["unclear claims with something left"], "no kill hit a call"
    assert found["claims held"], "no kill hit a process with claims that are held"
