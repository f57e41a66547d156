"""The first file system of the machine, read by another implementation."""

from __future__ import annotations

import subprocess

import pytest

from tests.cluster.harness.errors import HarnessError
from tests.lab.harness.initrd import cpio, kernel_release, load_order

DEPENDENCIES = """kernel/fs/9p/9p.ko.xz: kernel/net/9p/9pnet.ko.xz kernel/fs/netfs/netfs.ko.xz
kernel/net/9p/9pnet.ko.xz: kernel/fs/netfs/netfs.ko.xz
kernel/net/9p/9pnet_virtio.ko.xz: kernel/net/9p/9pnet.ko.xz kernel/fs/netfs/netfs.ko.xz
kernel/fs/netfs/netfs.ko.xz:
"""


def test_another_implementation_unpacks_it(tmp_path, busybox):
    files = {"init": b"#!/bin/sh\n", "bin/tool": bytes(range(256)) * 3, "empty": b""}
    subprocess.run(
        [busybox, "cpio", "-i"], input=cpio(("bin", "proc"), files), cwd=tmp_path, check=True, capture_output=True
    )
    assert {
        str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    } == files
    assert (tmp_path / "proc").is_dir()
    assert (tmp_path / "init").stat().st_mode & 0o777 == 0o755


def test_modules_come_after_what_they_need():
    found = [path.rpartition("/")[2] for path in load_order(("9p", "9pnet_virtio"), DEPENDENCIES)]
    assert found == ["netfs.ko.xz", "9pnet.ko.xz", "9p.ko.xz", "9pnet_virtio.ko.xz"]


def test_a_module_that_the_kernel_lacks():
    with pytest.raises(HarnessError, match="the kernel has no module overlay"):
        load_order(("overlay",), DEPENDENCIES)


@pytest.mark.parametrize("names", [(), ("6.1", "6.12")])
def test_there_must_be_one_kernel(tmp_path, names):
    for name in ("", *names):
        (tmp_path / "usr/lib/modules" / name).mkdir(parents=True, exist_ok=True)
    with pytest.raises(HarnessError, match="expected modules of one kernel"):
        kernel_release(tmp_path)
