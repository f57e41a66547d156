"""What is done to the machine itself: tools that end, hang, cannot be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from dra_driver_gpu import effects
from dra_driver_gpu.effects import Command, CommandError, SystemEffects, WriteError


def test_a_tool_reads_and_answers():
    assert SystemEffects().run(Command(["cat"], "yes")) == "yes"


@pytest.mark.parametrize(
    ("script", "said"), [("echo out; echo err >&2; exit 3", "status 3: err out"), ("exit 1", "status 1: said nothing")]
)
def test_a_tool_that_fails_is_quoted(script, said):
    with pytest.raises(CommandError, match=said):
        SystemEffects().run(Command(["sh", "-c", script]))


def test_a_tool_that_is_not_there():
    with pytest.raises(CommandError, match="/no/such: cannot be run: No such file"):
        SystemEffects().run(Command(["/no/such"]))


def test_what_a_tool_says_in_another_encoding_is_no_error():
    assert SystemEffects().run(Command(["printf", r"\377"])) == "\ufffd"


@pytest.fixture
def pid_file(tmp_path, monkeypatch):
    """A tool's time begins when it has written its number here: until then it is only slow, on a busy machine."""
    path, communicate = tmp_path / "pid", subprocess.Popen.communicate

    def once_started(process, *arguments, **more):
        assert _until(lambda: path.exists() and path.read_text().endswith("\n"))
        return communicate(process, *arguments, **more)

    monkeypatch.setattr(subprocess.Popen, "communicate", once_started)
    return path


def test_a_tool_that_hangs_is_killed_with_all_that_it_started(pid_file):
    own = f"sleep 60 & echo $! > {pid_file}; wait"
    with pytest.raises(CommandError, match="no answer within 0 s"):
        SystemEffects().run(Command(["sh", "-c", own], timeout=0.3))
    assert _ended(int(pid_file.read_text()))


def test_a_tool_that_the_kernel_does_not_let_end_is_left_and_reaped_later(pid_file, monkeypatch):
    """As nvidia-smi is on a GPU that fell off the bus."""
    kill = os.killpg
    monkeypatch.setattr(effects, "_GRACE", 0.1)
    monkeypatch.setattr(os, "killpg", lambda *_: None)
    with pytest.raises(CommandError, match="no answer within 0 s"):
        SystemEffects().run(Command(["sh", "-c", f"echo $$ > {pid_file}; exec sleep 3600"], timeout=0.3))
    pid = int(pid_file.read_text())
    assert SystemEffects().started(pid) is not None, "it was not waited for"
    kill(pid, 9)
    assert _ended(pid, reap=True)


def _ended(pid: int, *, reap: bool = False) -> bool:
    def ended():
        if reap:
            SystemEffects().running("NO=such")
        try:
            zombie = " Z " in Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True
        return zombie and not reap

    return _until(ended)


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(WriteError, match=f"cannot write '1' to {tmp_path}/no: No such file"):
        SystemEffects().write(tmp_path / "no", "1\n")


def test_a_process_is_known_by_its_start(tmp_path):
    system = SystemEffects()
    own = system.started(os.getpid())
    assert own == system.started(os.getpid())
    pid = system.start(Command(["sleep", "60"]), tmp_path / "log")
    assert (system.started(pid) or 0) >= (own or 0) > 0
    os.kill(pid, signal.SIGKILL)
    assert _until(lambda: system.started(pid) is None)  # though nobody has reaped it
    assert Path(f"/proc/{pid}").exists()
    assert system.running("DRA_GPU_TEST_MARK=none") == []  # reaps
    assert not Path(f"/proc/{pid}").exists()


def test_a_process_of_a_difficult_name_is_known_too(tmp_path):
    program = tmp_path / "a) S 1 (b"
    program.symlink_to("/bin/sleep")
    system = SystemEffects()
    pid = system.start(Command([str(program), "60"]), tmp_path / "log")
    assert (system.started(pid) or 0) >= (system.started(os.getpid()) or 0)
    system.kill([pid], force=True)
    assert _until(lambda: system.started(pid) is None)


def test_those_that_run_are_told_the_oldest_first_and_none_that_ended_meanwhile(tmp_path, monkeypatch):
    system = SystemEffects()
    env = {"DRA_GPU_TEST_MARK": str(tmp_path)}
    pids = [system.start(Command(["sleep", "60"], env=env), tmp_path / "log") for _ in range(3)]
    began = {pids[0]: 30, pids[1]: None, pids[2]: 20}
    monkeypatch.setattr(system, "started", began.get)
    found = system.running(f"DRA_GPU_TEST_MARK={tmp_path}")
    system.kill(pids, force=True)
    assert found == [pids[2], pids[0]]


def _until(done):
    end = time.monotonic() + 50
    while not done() and time.monotonic() < end:
        time.sleep(0.01)
    return done()
