"""A run ends, whatever the machine does. A script stands for QEMU; the machine itself is what test_lab.py boots."""

from __future__ import annotations

import fcntl
import os

import pytest

from tests.cluster.harness.progress import Progress
from tests.lab.harness import machine
from tests.lab.harness.layers import Layers


@pytest.fixture
def layers(tmp_path):
    found = Layers(tmp_path / "base", tmp_path / "python")
    (found.base / "usr/lib/modules/6.12").mkdir(parents=True)
    found.python.mkdir()
    return found


@pytest.fixture
def run(layers, tmp_path, monkeypatch):
    """Runs a script instead of QEMU; `$1` is where the machine writes to."""

    def start(script, **limits):
        monkeypatch.setattr(machine, "initrd", lambda base: b"")
        monkeypatch.setattr(
            machine,
            "entered",
            lambda root, line, *, read, write: ["sh", "-c", script, "qemu", *map(str, write.values())],
        )
        return machine.run_tests(layers, tmp_path, ["a b", "c"], Progress(), **{"seconds": 20.0, **limits})

    return start


def test_what_it_wrote_and_said_comes_back(run):
    found = run("cat $1/arguments; echo 0 > $1/status; echo off")
    assert (found.status, found.console, found.why) == (0, "a b\nc\noff", "")


def test_one_that_does_not_end_is_ended(run):
    found = run("echo up; exec sleep 60", seconds=0.5)
    assert (found.status, found.console) == (None, "up")
    assert found.why == "it was ended after 0.5 s"


def test_one_that_gives_no_sign_of_life_is_ended(run):
    found = run("echo 'stuck here'; exec sleep 60", silence=1.0)
    assert (found.status, found.why) == (None, "it was ended after 1 s without a sign of life")
    assert "stuck here" in found.problem("test_a")


@pytest.mark.parametrize("sign", ["cat /proc/uptime > $1/beat", "echo"])
def test_one_that_gives_signs_of_life_is_not(run, sign):
    """Each way of them by itself, for longer than it may be silent."""
    found = run(f"for each in 1 2 3 4 5 6 7 8; do {sign}; sleep 0.4; done", silence=2.0)
    assert found.why == ""


def test_one_that_does_not_start(run):
    assert run("echo no such device >&2; exit 1").why == "QEMU ended with status 1"


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    found = tmp_path / "temporary"
    found.mkdir()
    monkeypatch.setattr(machine.tempfile, "tempdir", str(found))
    return found


def test_nothing_of_a_run_stays(run, temporary):
    assert str(temporary) in run("echo $1").console
    assert not list(temporary.iterdir())


def test_what_a_killed_run_left_goes_but_not_what_another_one_has(run, temporary):
    left, others, fresh = (temporary / f"dra-sdk-lab-{name}" for name in ("left", "others", "fresh"))
    for path in (left, others, fresh):
        path.mkdir()
    for path in (left, others):
        os.utime(path, (0, 0))
    handle = os.open(others, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)
    try:
        run("true")
    finally:
        os.close(handle)
    assert set(temporary.iterdir()) == {others, fresh}
