"""The plugin that fails a run whose tests leave something behind, on runs of pytest of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONFTEST = """
import tests.leftovers
tests.leftovers.LIMIT = 0.5
pytest_plugins = ["tests.leftovers"]
"""
KEEP = "import socket, subprocess, tempfile, threading, time\nkept = []\n"


@pytest.fixture
def run_pytest(tmp_path: Path) -> Callable[[str], tuple[int, str]]:
    """Runs pytest on the text of a test file; returns exit status and output."""

    def run(text: str) -> tuple[int, str]:
        (tmp_path / "conftest.py").write_text(CONFTEST)
        (tmp_path / "test_it.py").write_text(KEEP + text)
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--basetemp",
            tmp_path / "base",
            tmp_path,
        ]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    return run


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("threading.Thread(target=time.sleep, args=(3,), daemon=True, name='idle').start()", "thread idle, first seen"),
        ("kept.append(socket.socket())", "open socket:["),
        ("kept.append(tempfile.mkdtemp(prefix='left-'))", "/left-"),
        ("subprocess.Popen(['sh', '-c', 'sleep 3 & exit']).wait()", "(sleep 3), started by"),
    ],
)
def test_what_a_test_leaves_fails_the_run_and_names_the_test(run_pytest, body, message):
    status, said = run_pytest(f"def test_guilty():\n    {body}\ndef test_innocent():\n    pass\n")
    assert status == 1
    assert "the tests left behind:" in said
    (line,) = [line for line in said.splitlines() if message in line]
    assert line.endswith("test_it.py::test_guilty")


def test_a_mount_is_found(run_pytest, tmp_path):
    status, said = run_pytest(
        "def test_guilty(tmp_path):\n"
        "    assert subprocess.run(['mount', '-t', 'tmpfs', 'tmpfs', tmp_path]).returncode == 0\n"
    )
    try:
        assert status == 1
        assert f"mount at {tmp_path}/base/" in said
    finally:
        for point in (tmp_path / "base").glob("test_guilty*"):
            subprocess.run(["umount", point], check=False, capture_output=True)


def test_what_ends_in_time_is_no_failure(run_pytest):
    status, said = run_pytest(
        "def test_tidy():\n"
        "    threading.Thread(target=time.sleep, args=(0.2,)).start()\n"
        "    socket.socket().close()\n"
        "    with tempfile.TemporaryDirectory():\n"
        "        subprocess.run(['true'], check=True)\n"
    )
    assert (status, "left behind" in said) == (0, False)
