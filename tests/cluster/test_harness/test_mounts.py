"""Reading mountinfo."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.harness import mounts

MOUNTINFO = r"""
20 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda rw
30 20 0:5 / /run/c rw - tmpfs tmpfs rw,size=1k
31 30 0:6 / /run/c/with\040blank rw - cgroup cgroup rw,cpu,cpuacct
32 30 0:7 / /run/c/a rw shared:2 master:1 - overlay overlay rw
33 32 0:8 / /run/c/a/b rw - cgroup2 cgroup2 rw
34 20 0:9 / /run/cc rw - tmpfs tmpfs rw
""".strip()


def test_mountinfo_is_read_with_escapes_and_optional_fields():
    parsed = mounts.parse(MOUNTINFO)
    assert parsed[2] == mounts.Mount(Path("/run/c/with blank"), "cgroup", ("rw", "cpu", "cpuacct"))
    assert [mount.kind for mount in parsed] == ["ext4", "tmpfs", "cgroup", "overlay", "cgroup2", "tmpfs"]


def test_mounts_below_a_folder_come_innermost_first_and_without_its_neighbours():
    found = mounts.below(Path("/run/c"), mounts.parse(MOUNTINFO))
    assert [str(path) for path in found] == ["/run/c/a/b", "/run/c/a", "/run/c/with blank", "/run/c"]
