"""The machine's files in the cache, and programs that run on them in namespaces."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from dra_sdk.testing.waiting import wait
from tests.cluster.harness.cache import Cache
from tests.cluster.harness.errors import HarnessError
from tests.cluster.harness.progress import Progress
from tests.lab.harness import layers
from tests.lab.harness.layers import LAB, ensure_layers, in_root
from tests.lab.harness.outcome import ROOT

STARTER = """
import signal, subprocess, sys
from tests.lab.harness.layers import in_namespaces
process = subprocess.Popen(in_namespaces(["sh", "-c", sys.argv[1]]), stdout=subprocess.PIPE, text=True)
print(process.stdout.readline(), flush=True)
signal.pause()
"""


@pytest.fixture
def made(monkeypatch):
    """What would be made; nothing is."""
    done = []
    monkeypatch.setattr(layers, "make_base", lambda at, system: done.append(f"{system.name} base"))
    monkeypatch.setattr(layers, "make_python", lambda at, base, wanted: done.append("python"))
    monkeypatch.setattr(layers, "TO_INSTALL", ())
    return done


def names(cache):
    return sorted(path.name.partition("-")[0] for path in (cache.root / LAB.name).iterdir())


def test_another_recipe_replaces_the_former_one_unless_that_is_in_use(tmp_path, made):
    cache = Cache(tmp_path)
    former = ensure_layers(cache, ROOT, Progress())
    with former.in_use():
        assert ensure_layers(cache, ROOT, Progress(), replace(LAB, suite="sid")) != former
        assert names(cache) == ["base", "base", "python", "python"]
    ensure_layers(cache, ROOT, Progress(), replace(LAB, packages=("another",)))
    assert names(cache) == ["base", "python"]
    with pytest.raises(HarnessError, match="was removed"), former.in_use():
        pass


def test_a_layer_that_fails_half_way_is_not_kept(tmp_path, made, monkeypatch):
    def fail(at, base, wanted):
        (at / "half").touch()
        raise HarnessError("no network")

    monkeypatch.setattr(layers, "make_python", fail)
    with pytest.raises(HarnessError, match="no network"):
        ensure_layers(Cache(tmp_path), ROOT, Progress())
    assert names(Cache(tmp_path)) == ["base"]


def processes(mark):
    """The processes with this text in their command line."""
    running = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            if mark.encode() in path.read_bytes():
                running.append(path.parent.name)
    return running


def mounts(text):
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if text in line]


def test_a_killed_starter_takes_all_processes_and_mounts_with_it(tmp_path):
    mark = f"7{os.getpid()}.25"
    script = f"mount --bind {tmp_path} /mnt; sleep {mark} & sleep {mark} & echo started; wait"
    with subprocess.Popen([sys.executable, "-c", STARTER, script], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout.readline().strip() == "started"
        assert len(processes(mark)) >= 3
        assert not mounts(f" {tmp_path} ")
        starter.send_signal(signal.SIGKILL)
    wait(lambda: not processes(mark))


def test_another_root_with_directories_to_read_and_to_write(tmp_path, busybox):
    root, read, write = (tmp_path / name for name in ("root", "read", "write"))
    for path in (root / "in", root / "out", root / "proc", root / "dev/pts", read, write):
        path.mkdir(parents=True)
    (root / "busybox").write_bytes(busybox.read_bytes())
    (root / "busybox").chmod(0o755)
    (read / "word").write_text("hello")
    script = """\
/busybox cat /in/word >/out/word
/busybox ls /dev/pts >/out/terminals
for each in /in /; do /busybox touch $each/other; done
"""
    command = in_root(root, ["/busybox", "sh", "-c", script], read={"/in": read}, write={"/out": write})
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.count("Read-only file system") == 2
    assert (write / "word").read_text() == "hello"
    assert (write / "terminals").read_text() == "ptmx\n"
    assert not mounts(str(tmp_path))
