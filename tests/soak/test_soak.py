"""A soak of a few tests, as the command runs it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dra_sdk.testing.waiting import wait
from tests.soak.__main__ import Log

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(600)  # each test starts several runs of pytest
TESTS = """
import pathlib, socket, subprocess, threading, pytest

@pytest.fixture(scope="module")
def server():
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found

def test_calculates():
    assert 1 + 1 == 2

def test_uses_a_thread():
    thread = threading.Thread(target=list)
    thread.start()
    thread.join()

def test_uses_a_process():
    subprocess.run(["true"], check=True)

def test_uses_a_server(server):
    assert server.getsockname()

def test_uses_it_too(server):
    assert server.getsockname()

def test_fails_the_second_time(tmp_path_factory):
    thread = threading.Thread(target=list)
    thread.start()
    thread.join()
    mark = pathlib.Path(__file__).with_name("mark")
    assert not mark.exists()
    mark.touch()
"""
CONCURRENT = {
    f"test_it.py::test_{name}"
    for name in ("uses_a_thread", "uses_a_process", "uses_a_server", "uses_it_too", "fails_the_second_time")
}


@pytest.fixture
def soak(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command on the text of a test file, without load unless it is asked for."""

    def run(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        project = tmp_path / "project"
        project.mkdir()
        (project / "test_it.py").write_text(text)
        (project / "pytest.ini").write_text("[pytest]\n")
        output = f"--output={tmp_path / 'output'}"
        command = [
            sys.executable,
            "-m",
            "tests.soak",
            output,
            "--load=0",
            *arguments,
            str(project),
            f"--rootdir={project}",
        ]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    return run


def test_the_first_round_decides_what_is_repeated_and_failures_are_named(soak, tmp_path):
    done = soak(TESTS, "--rounds=3", "--seed=7", "--jobs=1")
    assert done.returncode == 1
    assert "5 of 6 tests start threads, sockets or processes" in done.stderr
    assert set((tmp_path / "output/concurrent.txt").read_text().splitlines()) == CONCURRENT
    logs = [Log.read(tmp_path / f"output/round-{number}.jsonl") for number in (1, 2, 3)]
    assert [len(log.tests) for log in logs] == [6, 5, 5]
    assert set(logs[2].tests) == CONCURRENT
    assert "FAILED test_it.py::test_fails_the_second_time (call)" in done.stderr
    assert "--random-order-seed=8" in done.stderr
    assert f"output: {tmp_path}/output/round-2.txt" in done.stderr
    assert "   2 times  test_it.py::test_fails_the_second_time" in done.stdout
    assert "assert not mark.exists()" in (tmp_path / "output/round-2.txt").read_text()
    assert not (tmp_path / "output/round-1.txt").exists()


def test_a_test_that_ends_the_process_is_named(soak):
    done = soak("import os\ndef test_fatal():\n    os._exit(9)\n", "--rounds=1")
    assert done.returncode == 1
    assert "FAILED test_it.py::test_fatal (pytest ended with status 9)" in done.stderr


def test_a_signal_ends_the_rounds_and_lets_their_tests_clean_up(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import pathlib, threading\n"
        "def test_waits():\n"
        "    here = pathlib.Path(__file__).parent\n"
        "    try:\n"
        "        (here / 'began').touch()\n"
        "        threading.Event().wait()\n"
        "    finally:\n"
        "        (here / 'cleaned').touch()\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    options = ["--rounds=3", "--load=0", f"--output={tmp_path / 'output'}", f"--rootdir={tmp_path}", str(tmp_path)]
    # As a shell starts a program in the background: it ignores SIGINT.
    with subprocess.Popen(
        ["env", "--ignore-signal=INT", sys.executable, "-m", "tests.soak", *options], cwd=ROOT
    ) as soak:
        wait((tmp_path / "began").exists)
        soak.terminate()
        assert soak.wait() == 130
    assert (tmp_path / "cleaned").exists()
