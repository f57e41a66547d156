"""Starting, finding and ending processes."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.cluster.harness.processes import (
    MARK,
    Process,
    foreign_processes,
    kill,
    marked,
    parse_stat,
    spawn,
    terminate,
    wait_gone,
)
from tests.cluster.harness.waiting import TIMEOUT

SLEEP = ["/bin/sh", "-c", "exec sleep 600"]


@pytest.fixture
def started():
    processes: list[Process] = []
    yield processes
    kill(processes)


def test_stat_of_a_program_with_brackets_in_its_name():
    assert parse_stat("42 (a) S (b) R 1 42") == ["R", "1", "42"]


def test_spawned_process_is_found_by_its_mark_and_logged(tmp_path, started):
    log = tmp_path / "log"
    mark = f"unit-{os.getpid()}-spawn"  # other runs of these tests may run now
    process = spawn(["/bin/sh", "-c", "echo out; echo err >&2; sleep 600"], log, {MARK: mark, "PATH": "/bin:/usr/bin"})
    started.append(process)
    while log.read_text().count("\n") < 2:
        time.sleep(0.02)
    assert log.read_text() == "out\nerr\n"
    found = marked(mark)
    assert process in found
    started.extend(found)
    assert os.getsid(process.pid) == process.pid
    assert marked(mark[:-1]) == []


def test_another_process_with_the_same_id_is_neither_alive_nor_killed(tmp_path, started):
    process = spawn(SLEEP, tmp_path / "log", {"PATH": "/bin:/usr/bin"})
    started.append(process)
    earlier = Process(process.pid, process.start - 1)
    assert not earlier.alive()
    earlier.send(signal.SIGKILL)
    assert wait_gone([process], 0.2) == [process]


def test_terminate_kills_a_process_that_ignores_it(tmp_path, started):
    script = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    process = spawn(["/bin/sh", "-c", script], tmp_path / "log", {"PATH": "/bin:/usr/bin"})
    started.append(process)
    while "ready" not in (tmp_path / "log").read_text():
        time.sleep(0.02)
    terminate(process, 0.1)
    assert not process.alive()


def test_ended_child_is_not_alive_and_leaves_no_zombie(tmp_path):
    process = spawn(["/bin/true"], tmp_path / "log", {})
    assert wait_gone([process], TIMEOUT) == []
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, 0)


def test_a_foreign_process_is_one_without_mark(tmp_path, started):
    name = f"st{os.getpid()}"
    program = tmp_path / name
    program.symlink_to("/bin/sleep")
    ours = spawn([str(program), "600"], tmp_path / "log", {MARK: "unit"})
    theirs = spawn([str(program), "600"], tmp_path / "log", {})
    started += [ours, theirs]
    assert foreign_processes(name) == [theirs.pid]
