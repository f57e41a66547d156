"""Mounts on a node, and commands that have mounts of their own."""

from __future__ import annotations

import os
import subprocess

import pytest

from dra_sdk.hardware.mounts import is_mounted, mount, unmount, with_mounts
from dra_sdk.hardware.node_access import Command, CommandError
from dra_sdk.testing import FakeNode


def test_a_file_system_is_mounted_and_unmounted_once(tmp_path):
    fake = FakeNode(tmp_path)
    place = fake.path("/s/shm")
    assert not is_mounted(fake.access, "/s/shm")
    for _ in range(2):
        mount(fake.access, "/s/shm", source="shm", kind="tmpfs", options=["rw", "size=1024"])
    assert is_mounted(fake.access, "/s/shm")
    for _ in range(2):
        unmount(fake.access, "/s/shm")
    assert not is_mounted(fake.access, "/s/shm")
    assert fake.effects.calls == [f"run mount -t tmpfs -o rw,size=1024 shm {place}", f"run umount {place}"]


def test_a_directory_is_mounted_at_another(tmp_path):
    fake = FakeNode(tmp_path)
    mount(fake.access, "/b", source="/a", options=["bind"])
    assert fake.effects.calls == [f"run mount -o bind /a {fake.path('/b')}"]


def test_a_mount_that_fails_after_its_effect_can_be_undone(tmp_path):
    fake = FakeNode(tmp_path)
    fake.effects.fail_call(1, after=True)
    with pytest.raises(CommandError, match="injected"):
        mount(fake.access, "/s", source="shm", kind="tmpfs")
    unmount(fake.access, "/s")
    assert not is_mounted(fake.access, "/s")


def test_a_command_in_a_mount_namespace_sees_directories_at_other_paths(tmp_path):
    """The script itself, with a `mount` that only records its arguments."""
    record, mount = tmp_path / "record", tmp_path / "mount"
    mount.write_text(f'#!/bin/sh\necho "$@" >> {record}\n[ "$2" != /bad ]\n')
    mount.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    made = with_mounts(Command(["echo", "a b", "--", "c"]), [("/x y", "/1"), ("/z", "/2")])
    assert made.argv[:4] == ["unshare", "--mount", "--propagation", "private"]
    done = subprocess.run(made.argv[4:], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "a b -- c\n"
    assert record.read_text() == "--bind /x y /1\n--bind /z /2\n"
    bad = with_mounts(Command(["echo"]), [("/bad", "/1")])
    assert subprocess.run(bad.argv[4:], env=env, capture_output=True, check=False).returncode == 1


def test_a_command_without_mounts_stays_as_it_is():
    assert with_mounts(Command(["echo"]), []) == Command(["echo"])
