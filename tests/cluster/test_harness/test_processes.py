"""Starting, finding and ending processes."""

from __future__ import annotations

import os
import signal

import pytest

from dra_sdk.testing.waiting import wait
from tests.cluster.harness.processes import MARK, Process, foreign_processes, kill, marked, spawn, wait_gone

SLEEP = ["/bin/sh", "-c", "exec sleep 600"]


@pytest.fixture
def started():
    processes: list[Process] = []
    yield processes
    kill(processes)


def test_spawned_process_is_found_by_its_mark_and_logged(tmp_path, started):
    log = tmp_path / "log"
    mark = f"unit-{os.getpid()}-spawn"  # other runs of these tests may run now
    process = spawn(["/bin/sh", "-c", "echo out; echo err >&2; sleep 600"], log, {MARK: mark, "PATH": "/bin:/usr/bin"})
    started.append(process)
    wait(lambda: log.read_text() == "out\nerr\n")
    started.extend(marked(mark))  # the shell's child as well
    assert process in marked(mark)
    assert marked(mark[:-1]) == []


def test_another_process_with_the_same_id_is_neither_alive_nor_killed(tmp_path, started):
    process = spawn(SLEEP, tmp_path / "log", {"PATH": "/bin:/usr/bin"})
    started.append(process)
    earlier = Process(process.pid, process.start - 1)
    assert not earlier.alive()
    earlier.send(signal.SIGKILL)
    assert wait_gone([process], 0.2) == [process]


def test_a_foreign_process_is_one_without_mark(tmp_path, started):
    name = f"st{os.getpid()}"
    program = tmp_path / name
    program.symlink_to("/bin/sleep")
    ours = spawn([str(program), "600"], tmp_path / "log", {MARK: "unit"})
    theirs = spawn([str(program), "600"], tmp_path / "log", {})
    started += [ours, theirs]
    assert foreign_processes(name) == [theirs.pid]
