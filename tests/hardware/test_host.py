from __future__ import annotations

from pathlib import Path

from dra_sdk.hardware import Host


def test_default_is_the_machine_itself():
    assert (Host().sys, Host().proc, Host().dev) == (Path("/sys"), Path("/proc"), Path("/dev"))


def test_everything_lies_under_the_root(tmp_path):
    host = Host(tmp_path)
    assert {path.parent for path in (host.sys, host.proc, host.dev)} == {tmp_path}
