"""Paths below another root."""

from __future__ import annotations

from pathlib import Path

import pytest

from dra_sdk import DeviceNode, HardwareError, PermanentError
from dra_sdk.hardware.host_paths import AllowedPaths, files_at, find_library, find_program, follow


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


@pytest.fixture
def host(tmp_path):
    """A host whose /dev has a link into itself, one out of it, and one in a loop."""
    for file in ("dev/card0", "dev/snd/pcm", "dev/snd/deep/seq", "etc/shadow", "var/cards/a"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    for name, target in {"by-id": "card0", "out": "/etc/shadow", "loop": "loop", "snd/link": "pcm"}.items():
        (tmp_path / "dev" / name).symlink_to(target)
    (tmp_path / "run").symlink_to("var/cards")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "leads"),
    [("/dev/card0", "/dev/card0"), ("/dev/by-id", "/dev/card0"), ("/dev", "/dev"), ("/dev/new", "/dev/new"),
     ("/run/a", "/var/cards/a"), ("/var/cards/a", "/var/cards/a")],
)  # fmt: skip
def test_an_allowed_path_is_where_its_links_lead(host, path, leads):
    assert AllowedPaths(host, ["/dev", "/run"]).checked(path) == leads


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/etc/shadow", "host path /etc/shadow is not below /dev, /run"),
        ("/dev/out", "host path /dev/out, which leads to /etc/shadow, is not below"),
        ("/device", "host path /device is not below"),
        ("/", "host path / is not below"),
        ("/dev/../etc/shadow", "must be absolute, without '..'"),
        ("dev/card0", "must be absolute"),
        ("", "must be absolute"),
        ("/dev/a\0b", "must be absolute"),
        ("/dev/loop", "too many levels of symbolic links"),
    ],
)
def test_any_other_path_is_refused_in_a_sentence(host, path, problem):
    with pytest.raises(PermanentError, match=problem):
        AllowedPaths(host, ["/dev", "/run"]).checked(path)


def test_without_allowed_paths_there_is_none(host):
    with pytest.raises(PermanentError, match="is not below any path"):
        AllowedPaths(host, []).checked("/dev/card0")


def test_links_and_directories_become_device_nodes_that_a_spec_can_name(host):
    paths = AllowedPaths(host, ["/dev"])
    assert paths.device_nodes("/dev/by-id") == [DeviceNode("/dev/by-id", "/dev/card0")]
    assert paths.device_nodes("/dev/snd", "/sound", "rw") == [
        DeviceNode("/sound/deep/seq", "/dev/snd/deep/seq", permissions="rw"),
        DeviceNode("/sound/pcm", "/dev/snd/pcm", permissions="rw"),
    ]
    with pytest.raises(PermanentError, match="leads to /etc/shadow"):
        paths.device_nodes("/dev/out")


def test_a_directory_stands_for_its_files_without_links(host):
    assert files_at(host, "/dev/snd") == ["/dev/snd/deep/seq", "/dev/snd/pcm"]
    assert files_at(host, "/dev/card0") == ["/dev/card0"]
    assert files_at(host, "/dev/new") == ["/dev/new"]
