"""Paths below another root."""

from __future__ import annotations

from pathlib import Path

import pytest

from dra_sdk import HardwareError
from dra_sdk.hardware.host_paths import find_program, follow


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("usr/lib64/a", "usr/lib64/a"),
        ("/usr/lib64/a", "usr/lib64/a"),
        ("lib64/a", "usr/lib64/a"),
        ("absolute/a", "usr/lib64/a"),
        ("up/a", "etc/a"),
        ("../../etc", "etc"),
        ("no/such/file", "no/such/file"),
        ("", ""),
    ],
)
def test_links_stay_below_the_root(tmp_path, path, where):
    (tmp_path / "usr/lib64").mkdir(parents=True)
    for name, target in {"lib64": "usr/lib64", "absolute": "/lib64", "up": "../../../etc"}.items():
        (tmp_path / name).symlink_to(target)
    assert follow(tmp_path, path) == tmp_path / where


def test_a_loop_of_links(tmp_path):
    (tmp_path / "a").symlink_to("/b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(HardwareError, match=f"a/c below {tmp_path}: too many levels of symbolic links, at {tmp_path}"):
        follow(tmp_path, Path("a/c"))


def test_a_program_is_found_in_the_first_directory_that_has_it(tmp_path):
    assert find_program(tmp_path, "tool") is None
    for directory in ("usr/local/bin", "usr/bin"):
        (tmp_path / directory).mkdir(parents=True)
        (tmp_path / directory / "tool").touch()
    (tmp_path / "opt/bin/tool").mkdir(parents=True)  # a directory is no program
    assert find_program(tmp_path, "tool") == tmp_path / "usr/bin/tool"
