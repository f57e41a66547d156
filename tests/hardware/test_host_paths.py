"""Paths below another root."""

from __future__ import annotations

from pathlib import Path

import pytest

from dra_sdk import HardwareError
from dra_sdk.hardware.host_paths import find_library, find_program, follow


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


@pytest.mark.parametrize(
    ("file", "links"),
    [
        (
            "nix/store/abc-tool/bin/tool",
            {"run/current-system": "/nix/store/def-system", "nix/store/def-system/sw/bin": "/nix/store/abc-tool/bin"},
        ),
        ("x86_64-bottlerocket-linux-gnu/sys-root/usr/libexec/nvidia/tesla/bin/tool", {}),
        (
            "x86_64-bottlerocket-linux-gnu/sys-root/usr/libexec/nvidia/tesla/bin/tool",
            {"usr": "x86_64-bottlerocket-linux-gnu/sys-root/usr"},
        ),
    ],
)
def test_a_program_is_found_where_the_distribution_has_it(tmp_path, file, links):
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).touch()
    for link, target in links.items():
        (tmp_path / link).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / link).symlink_to(target)
    assert find_program(tmp_path, "tool") == tmp_path / file


@pytest.mark.parametrize(
    ("files", "links", "found"),
    [
        (["usr/lib64/x.so.1", "lib64/x.so.1"], {}, "usr/lib64/x.so.1"),
        (["usr/local/glibc/usr/lib/x.so.1.2"], {"usr/local/glibc/usr/lib/x.so.1": "x.so.1.2"}, "x.so.1.2"),  # Talos
        (
            ["x86_64-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla/x.so.1"],
            {"usr": "x86_64-bottlerocket-linux-gnu/sys-root/usr"},
            "sys-root/usr/lib/nvidia/tesla/x.so.1",
        ),
        (
            ["nix/store/abc-driver/lib/x.so.1.2"],
            {"run/opengl-driver": "/nix/store/abc-driver", "nix/store/abc-driver/lib/x.so.1": "x.so.1.2"},
            "nix/store/abc-driver/lib/x.so.1.2",
        ),
        (["opt/x.so.1"], {}, None),
    ],
)
def test_a_library_is_found_where_the_distribution_has_it(tmp_path, files, links, found):
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    for link, target in links.items():
        (tmp_path / link).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / link).symlink_to(target)
    library = find_library(tmp_path, "x.so.1")
    assert (library is None) if found is None else str(library).endswith(found)
