"""A run always ends, and the machine boots as often as asked. A shell script stands for QEMU."""

from __future__ import annotations

import fcntl
import os
import tempfile

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
    """Runs a script in place of QEMU; `$1` is the directory that the machine writes to."""

    def start(script, boots=(("a b", "c"),), **limits):
        monkeypatch.setattr(machine, "initrd", lambda base: b"")
        monkeypatch.setattr(
            machine,
            "in_root",
            lambda root, line, *, read, write, network: ["sh", "-c", script, "qemu", *map(str, write.values())],
        )
        return machine.run_tests(layers, tmp_path, boots, Progress(), limits=machine.Limits(**limits))

    return start


def test_a_silent_machine_is_killed_and_its_last_words_are_kept(run):
    found = run("echo 'stuck here'; exec sleep 600", silence=2.0)
    assert (found.status, found.why) == (None, "the machine was killed after 2 s without a sign of life")
    assert "stuck here" in found.problem("test_a")


def test_the_next_boot_has_other_arguments_and_the_files_of_the_first(run):
    found = run("cat $1/arguments | tee -a $1/kept; echo 0 > $1/status; cat $1/kept", boots=(["a"], ["b"]))
    assert (found.status, found.console, found.why) == (0, "a\na\nb\na\nb", "")


def test_no_boot_follows_one_that_did_not_come_to_its_end(run):
    assert run("cat $1/arguments", boots=(["a"], ["b"])).console == "a"


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    found = tmp_path / "temporary"
    found.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(found))
    return found


def test_the_directory_of_a_killed_run_is_removed_and_no_other(run, temporary):
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
