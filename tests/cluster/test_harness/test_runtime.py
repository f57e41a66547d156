"""The container runtime, from the packages of Debian."""

from __future__ import annotations

from tests.cluster.harness.runtime import CNI_PLUGINS, PROGRAMS, Runtime


def test_the_runtime_names_missing_programs(tmp_path):
    runtime = Runtime.under(tmp_path)
    for folder, names in ((runtime.bin, PROGRAMS), (runtime.cni, CNI_PLUGINS)):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).touch(mode=0o755)
    assert runtime.missing() == []
    (runtime.bin / "ctr").unlink()
    assert runtime.missing() == [runtime.bin / "ctr"]
