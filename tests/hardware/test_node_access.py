"""Acting on this machine: programs that end, hang or cannot be killed, daemons, and files of the kernel."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from dra_sdk.hardware.node_access import (
    WRITE_SECONDS,
    Command,
    CommandError,
    NodeAccess,
    PendingWrite,
    SystemEffects,
    WriteError,
    check_not_pending,
    children,
)
from dra_sdk.hardware.polling import Clock
from dra_sdk.testing import FakeEffects
from dra_sdk.testing.waiting import LONG, wait


def test_a_program_reads_its_stdin_and_its_output_is_returned():
    assert SystemEffects().run(Command(["cat"], "yes")) == "yes"


@pytest.mark.parametrize(
    ("script", "error"), [("echo out; echo err >&2; exit 3", "status 3: err out"), ("exit 1", "status 1: no output")]
)
def test_the_output_of_a_program_that_fails_is_in_the_error(script, error):
    with pytest.raises(CommandError, match=error):
        SystemEffects().run(Command(["sh", "-c", script]))


def test_a_missing_program():
    with pytest.raises(CommandError, match="/no/such: cannot be run: No such file"):
        SystemEffects().run(Command(["/no/such"]))


def test_output_in_another_encoding_is_no_error():
    assert SystemEffects().run(Command(["printf", r"\377"])) == "\ufffd"


@pytest.fixture
def pid_file(tmp_path, monkeypatch):
    """The time of a program begins when it has written its pid here: before that, the machine is only busy."""
    path, communicate = tmp_path / "pid", subprocess.Popen.communicate

    def once_started(process, *arguments, **more):
        wait(lambda: path.exists() and path.read_text().endswith("\n"))
        return communicate(process, *arguments, **more)

    monkeypatch.setattr(subprocess.Popen, "communicate", once_started)
    return path


def test_a_program_that_hangs_is_killed_with_everything_that_it_started(pid_file):
    own = f"sleep 60 & echo $! > {pid_file}; wait"
    with pytest.raises(CommandError, match="no answer within 0 s"):
        SystemEffects().run(Command(["sh", "-c", own], timeout=0.3))
    wait(lambda: _ended(int(pid_file.read_text())))


def test_a_program_that_cannot_be_killed_is_left_and_reaped_later(pid_file, monkeypatch):
    """As nvidia-smi is on a GPU that fell off the bus."""
    kill = os.killpg
    monkeypatch.setattr(os, "killpg", lambda *_: None)
    with pytest.raises(CommandError, match="no answer within 0 s"):
        SystemEffects().run(Command(["sh", "-c", f"echo $$ > {pid_file}; exec sleep 3600"], timeout=0.3))
    pid = int(pid_file.read_text())
    assert SystemEffects().started(pid) is not None, "nobody waits for its end"
    assert pid in children()
    kill(pid, signal.SIGKILL)
    wait(lambda: pid not in children())
    assert not Path(f"/proc/{pid}").exists()


def _ended(pid: int) -> bool:
    """Whether a process is gone, or has ended and waits for another parent to read its status."""
    return SystemEffects().started(pid) is None


def test_a_file_that_cannot_be_written_is_in_the_error(tmp_path):
    with pytest.raises(WriteError, match=f"cannot write '1' to {tmp_path}/no: No such file"):
        SystemEffects().write(tmp_path / "no", "1\n")


def test_a_process_is_identified_by_its_start_time(tmp_path):
    system = SystemEffects()
    own = system.started(os.getpid())
    assert own == system.started(os.getpid())
    pid = system.start(Command(["sleep", "60"]), tmp_path / "log")
    assert (system.started(pid) or 0) >= (own or 0) > 0
    os.kill(pid, signal.SIGKILL)
    wait(lambda: system.started(pid) is None)  # a zombie has ended
    assert Path(f"/proc/{pid}").exists()
    assert system.running("DRA_GPU_TEST_MARK=none") == []  # which reaps it
    assert not Path(f"/proc/{pid}").exists()


def test_the_name_of_a_process_may_look_like_its_state(tmp_path):
    program = tmp_path / "a) S 1 (b"
    program.symlink_to("/bin/sleep")
    system = SystemEffects()
    pid = system.start(Command([str(program), "60"]), tmp_path / "log")
    assert (system.started(pid) or 0) >= (system.started(os.getpid()) or 0)
    system.kill([pid], force=True)
    wait(lambda: system.started(pid) is None)


def test_running_processes_are_listed_the_oldest_first(tmp_path, monkeypatch):
    system = SystemEffects()
    env = {"DRA_GPU_TEST_MARK": str(tmp_path)}
    pids = [system.start(Command(["sleep", "60"], env=env), tmp_path / "log") for _ in range(3)]
    times = {pids[0]: 30, pids[1]: None, pids[2]: 20}  # the second one has just ended
    monkeypatch.setattr(system, "started", times.get)
    matching = system.running(f"DRA_GPU_TEST_MARK={tmp_path}")
    system.kill(pids, force=True)
    assert matching == [pids[2], pids[0]]


class Recorded(SystemEffects):
    """Programs are recorded, not run."""

    def __init__(self):
        self.commands = []

    def run(self, command):
        self.commands.append(command)
        return ""


def test_a_process_is_found_also_while_it_executes_a_new_program(tmp_path):
    again = tmp_path / "again"
    again.write_text('#!/bin/sh\nexec "$0"\n')
    again.chmod(0o755)
    marker = f"DRA_SDK_TEST_MARK={tmp_path}"
    process = subprocess.Popen(["sh", "-c", f'exec env "{marker}" "{again}"'])
    try:
        wait(lambda: process.pid in SystemEffects().running(marker))
        assert [SystemEffects().running(marker) for _ in range(300)] == [[process.pid]] * 300
    finally:
        process.kill()
        process.wait()


def test_a_program_gets_the_time_that_is_left_of_the_call(tmp_path):
    effects, now = Recorded(), [100.0]
    node = NodeAccess(tmp_path, effects, Clock(now=lambda: now[0])).within(10)
    for _ in range(2):
        node.run(Command(["x"], timeout=7))
        now[0] += 8
    node.run(Command(["x"]))  # the call has ended: a program that undoes something still gets a second
    assert [command.timeout for command in effects.commands] == [7, 2, 1]


def test_a_program_of_the_host_runs_in_the_root_of_the_host(tmp_path):
    effects = Recorded()
    for root in (Path("/"), tmp_path):
        NodeAccess(root, effects).run_on_host("modprobe", "vfio-pci")
    assert [command.argv for command in effects.commands] == [
        ("modprobe", "vfio-pci"),
        ["chroot", str(tmp_path), "modprobe", "vfio-pci"],
    ]


def test_links_of_a_mounted_host_are_followed_there(tmp_path):
    (tmp_path / "var/lib").mkdir(parents=True)
    (tmp_path / "var/lib/kubelet").symlink_to("/data/kubelet")
    assert NodeAccess(tmp_path, SystemEffects()).local("/var/lib/kubelet/x") == tmp_path / "data/kubelet/x"
    assert NodeAccess(Path("/"), SystemEffects()).local("/var/lib/kubelet") == Path("/var/lib/kubelet")


# -- writes from which the kernel does not return


@pytest.fixture
def fifo(tmp_path):
    """A file whose writer waits until somebody reads it, as the kernel lets a writer wait for a device."""
    os.mkfifo(tmp_path / "bind")
    return tmp_path / "bind"


@pytest.fixture
def unkillable(monkeypatch):
    """The children that are left: SIGKILL does not end them, as in the kernel. They end with the test."""
    kill, left = os.killpg, []
    monkeypatch.setattr(os, "killpg", lambda pid, _signal: left.append(pid))
    yield left
    for pid in left:
        with suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)
    wait(lambda: not set(left) & set(children()))


def test_a_write_in_a_child_process(tmp_path):
    file = tmp_path / "bind"
    file.write_text("before")
    SystemEffects().write(file, "0000:10:00.0 ä\n", LONG)
    assert file.read_text() == "0000:10:00.0 ä\n"
    with pytest.raises(WriteError, match=f"cannot write '1' to {tmp_path}/no: No such file or directory"):
        SystemEffects().write(tmp_path / "no", "1\n", LONG)


def test_a_write_from_which_the_kernel_does_not_return_ends_with_its_time(fifo):
    with pytest.raises(WriteError, match=f"cannot write 'x' to {fifo}: the kernel did not return within 0 s"):
        SystemEffects().write(fifo, "x\n", 0.3)
    assert [write for write in SystemEffects().pending() if write.path == fifo] == [], (
        "a process that was killed is no more"
    )


def test_a_child_that_cannot_be_killed_is_remembered_until_it_returns(fifo, unkillable, caplog):
    system = SystemEffects()
    with pytest.raises(WriteError, match="the kernel did not return within 0 s"):
        system.write(fifo, "x\n", 0.3)
    (pending,) = [write for write in system.pending() if write.path == fifo]
    assert (pending.text, pending.pid) == ("x\n", unkillable[0])
    assert f"the kernel does not return: process {pending.pid} has been writing 'x' to {fifo} for " in caplog.text
    with pytest.raises(WriteError, match=f"cannot write 'x' to {fifo}: process {pending.pid} has been writing 'x' to"):
        system.write(fifo, "x\n", LONG)  # at once, and without another child
    assert len(unkillable) == 1
    with fifo.open() as reader:  # the kernel returns
        assert reader.read() == "x\n"
    wait(lambda: pending not in system.pending())


OTHER = """
import os, sys
from pathlib import Path
from dra_sdk.hardware.node_access import SystemEffects, WriteError
os.killpg = lambda *_: None
try:
    SystemEffects().write(Path(sys.argv[1]), "x", 0.3)
except WriteError as error:
    print(error)
"""
STARTING = """
import sys
from pathlib import Path
from dra_sdk.hardware.node_access import SystemEffects
print(*(f"{write.pid} {write.text}" for write in SystemEffects().pending() if write.path == Path(sys.argv[1])))
"""


def test_writes_of_another_process_are_found_at_the_start_and_later(fifo):
    def run(script):
        done = subprocess.run([sys.executable, "-c", script, str(fifo)], capture_output=True, text=True, check=True)
        return done.stdout.split()

    running = SystemEffects()
    assert [write for write in running.pending() if write.path == fifo] == []
    assert "return" in run(OTHER)
    pid, text = run(STARTING)
    assert text == "x"
    assert [(write.pid, write.text) for write in running.pending() if write.path == fifo] == [(int(pid), "x")]
    os.kill(int(pid), signal.SIGKILL)
    wait(lambda: _ended(int(pid)))
    assert run(STARTING) == []


def test_a_write_gets_the_time_that_is_left_of_the_call(tmp_path):
    seconds, now = [], [100.0]
    effects = FakeEffects(tmp_path)
    effects.write = lambda _path, _text, timeout: seconds.append(timeout)
    node = NodeAccess(tmp_path, effects, Clock(now=lambda: now[0])).within(30)
    for _ in range(3):
        node.write(tmp_path / "bind", "x")
        now[0] += 15
    assert seconds == [WRITE_SECONDS, 15, 1]


@pytest.mark.parametrize(
    ("name", "text", "is_refused"),
    [("speed", "1", True), ("speed", "2", True), ("bind", "1", True), ("bind", "2", False), ("unbind", "2", False)],
)
def test_a_file_takes_no_write_beside_a_pending_one_for_its_device(
    tmp_path: Path, name: str, text: str, is_refused: bool
) -> None:
    class Hanging(SystemEffects):
        def pending(self) -> list[PendingWrite]:
            return [PendingWrite(tmp_path / name, "1", 1, 1)]

    refused = pytest.raises(WriteError, match="process 1 has been writing '1'") if is_refused else nullcontext()
    with refused:
        check_not_pending(Hanging(), tmp_path / name, text)
