"""Nothing stays of what runs contained, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster.harness.errors import HarnessError
from tests.lab.harness import contained as module
from tests.lab.harness.contained import contained, entered

STARTER = """
import subprocess, sys, time
from tests.lab.harness.contained import contained
process = subprocess.Popen(contained(["sh", "-c", sys.argv[1]]), stdout=subprocess.PIPE, text=True)
print(process.stdout.readline(), flush=True)
time.sleep(60)
"""


def processes(mark):
    """Those whose command line has this text, but for ourselves."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes()
        except OSError:
            continue
        if mark.encode() in words and int(path.name) != os.getpid():
            found.append(int(path.name))
    return found


def mounts(text):
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if text in line]


def test_a_killed_starter_takes_everything_with_it(tmp_path):
    mark = f"7{os.getpid()}.25"
    script = f"mount --bind {tmp_path} /mnt; sleep {mark} & sleep {mark} & echo started; wait"
    with subprocess.Popen([sys.executable, "-c", STARTER, script], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout.readline().strip() == "started"
        assert len(processes(mark)) >= 3
        assert not mounts(f" {tmp_path} ")
        starter.send_signal(signal.SIGKILL)
    end = time.monotonic() + 10
    while processes(mark) and time.monotonic() < end:
        time.sleep(0.05)
    assert processes(mark) == []


def test_it_has_no_network():
    done = subprocess.run(contained(["cat", "/proc/net/dev"]), capture_output=True, text=True, check=True)
    assert [line.split(":")[0].strip() for line in done.stdout.splitlines()[2:]] == ["lo"]


def test_another_root_with_directories_to_read_and_to_write(tmp_path, busybox):
    root, read, write = (tmp_path / name for name in ("root", "read", "write"))
    for path in (root / "in", root / "out", root / "proc", read, write):
        path.mkdir(parents=True)
    (root / "busybox").write_bytes(busybox.read_bytes())
    (root / "busybox").chmod(0o755)
    (read / "word").write_text("hello")
    command = ["/busybox", "sh", "-c", "/busybox cat /in/word >/out/word; /busybox touch /in/other"]
    done = subprocess.run(
        entered(root, command, read={"/in": read}, write={"/out": write}), capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "Read-only file system" in done.stderr
    assert (write / "word").read_text() == "hello"
    assert not mounts(str(tmp_path))


def test_a_missing_tool_is_named(monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda tool: None if tool == "unshare" else f"/bin/{tool}")
    with pytest.raises(HarnessError, match="needs unshare"):
        contained(["true"])
