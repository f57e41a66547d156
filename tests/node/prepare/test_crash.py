"""A driver that is killed at any step loses no device and leaves no file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.node.prepare.crash import SCENARIOS

PROGRAM = Path(__file__).with_name("crash.py")
WORKERS = 2


def test_killed_at_every_step_a_fresh_process_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = sorted(SCENARIOS)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    workers = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(tmp_path), *names[index::WORKERS]],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(WORKERS)
    ]
    points: dict[str, int] = {}
    for worker in workers:
        printed, errors = worker.communicate()
        assert worker.returncode == 0, errors
        found = json.loads(printed.splitlines()[-1])
        assert found["failures"] == [], errors
        points |= found["points"]
    with capsys.disabled():
        print(f"\n{sum(points.values())} kill points: {points}")
    assert sorted(points) == names
    assert min(points.values()) > 0, points
    assert points["prepare"] == 27 + 6, "every step of the files and every boundary of the hook"
