"""The plugin that fails a run whose tests leave something behind, on runs of pytest of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ORPHAN = """sleep 600 >&- 2>&- & echo $! > {here}/pid
until [ "$(tr "\\\\0" " " < /proc/$!/cmdline)" = "sleep 600 " ]; do :; done"""
"""A shell command whose process runs on when the shell has ended, and has become `sleep` by then."""
HEAD = "import pathlib, socket, subprocess, tempfile, threading\nhere = pathlib.Path(__file__).parent\nkept = []\n"
INNOCENT = "def test_innocent():\n    pass\n"
AT_ONCE, LATER = 0.2, 200.0
"""Seconds that things have to end: for those that never do, and for those that do on however busy a machine."""
PRINTED_TWICE = {"CI", "BUILD_NUMBER"}
"""Variables with which pytest repeats the whole message of a failure in its summary."""
pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("bare_pytest")]  # each test starts a pytest


@pytest.fixture
def run_pytest(tmp_path: Path) -> Callable[[str, float], tuple[int, str]]:
    """Runs pytest on the text of a test file; returns exit status and output."""

    def run(text: str, limit: float) -> tuple[int, str]:
        plugin = "dra_sdk.testing.leftovers"
        (tmp_path / "conftest.py").write_text(
            f"import {plugin}\n{plugin}.LIMIT = {limit}\npytest_plugins = ['{plugin}']\n"
        )
        (tmp_path / "test_it.py").write_text(HEAD + text)
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        options = ["-q", "-p", "no:cacheprovider", "--basetemp", tmp_path / "base"]
        command = [sys.executable, "-m", "pytest", *options, tmp_path]
        environment = {name: value for name, value in os.environ.items() if name not in PRINTED_TWICE}
        environment |= {"PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    return run


GUILTY = {
    "thread": (
        "threading.Thread(target=threading.Event().wait, daemon=True, name='idle').start()",
        "thread idle, first",
    ),
    "socket": ("kept.append(socket.socket())", "open socket:["),
    "directory": ("kept.append(tempfile.mkdtemp(prefix='left-', dir=here))", "/left-"),
    "process": (f"subprocess.run(['sh', '-c', f{ORPHAN!r}])", "(sleep 600), started by"),
    "mount": ("subprocess.run(['mount', '-t', 'tmpfs', 'tmpfs', tmp_path], check=True)", "mount at "),
}
"""What a test does, and what the end of the run says of it."""


def test_what_a_test_leaves_fails_the_run_and_names_the_test(run_pytest, tmp_path):
    guilty = {name: source for name, source in GUILTY.items() if name != "mount" or os.geteuid() == 0}
    tests = [f"def test_{name}(tmp_path):\n    {body}\n" for name, (body, _) in guilty.items()]
    try:
        status, said = run_pytest("".join(tests) + INNOCENT, AT_ONCE)
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        for point in (tmp_path / "base").glob("test_mount*"):
            subprocess.run(["umount", point], check=False, capture_output=True)
    assert status == 1
    assert "the tests left behind:" in said
    for name, (_, message) in guilty.items():
        (line,) = [line for line in said.splitlines() if message in line]
        assert line.endswith("/test_mount0" if name == "mount" else f"test_it.py::test_{name}")


def test_a_pytest_that_a_test_starts_touches_no_directory_of_other_sessions(tmp_path, tmp_path_factory):
    (tmp_path / "test_it.py").write_text(
        f"{HEAD}def test_it(tmp_path):\n    (here / 'path').write_text(str(tmp_path))\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    assert tmp_path_factory.getbasetemp() in Path((tmp_path / "path").read_text()).parents


def test_what_ends_in_time_is_no_failure(run_pytest):
    status, said = run_pytest(
        "def test_tidy():\n"
        "    threading.Timer(0.2, list).start()\n"
        "    socket.socket().close()\n"
        "    with tempfile.TemporaryDirectory():\n"
        "        subprocess.run(['true'], check=True)\n",
        LATER,
    )
    assert (status, "left behind" in said) == (0, False)
