"""The programs of this machine, and the Debian archive."""

from __future__ import annotations

import pytest

from tests.cluster.harness import HarnessError, debian
from tests.cluster.harness.debian import Tool, choose_mirror, is_static, run

PODMAN = Tool("podman", "podman", "runs containers", lambda: False)
RUNC = Tool("runc", "runc", "starts containers", lambda: True)
CRUN = Tool("crun", "crun", "runs containers for podman", lambda: False)


def test_mirror_is_the_archive_and_not_its_security_updates():
    known = ("mirror.example/debian-security/ Debian", "other.example/apt/ Other", "mirror.example/debian/ Debian")
    assert choose_mirror("".join(f"http://{line}\n" for line in known)) == "http://mirror.example/debian"
    assert choose_mirror("http://mirror.example/ubuntu/ Ubuntu\n") is None


def elf(*segment_kinds: int) -> bytes:
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"
    header[32:40] = (64).to_bytes(8, "little")
    header[54:56] = (56).to_bytes(2, "little")
    header[56:58] = len(segment_kinds).to_bytes(2, "little")
    return bytes(header) + b"".join(kind.to_bytes(4, "little") + bytes(52) for kind in segment_kinds)


def test_static_means_no_interpreter_segment():
    assert is_static(elf(1, 1, 7))
    assert not is_static(elf(6, 3, 1))
    assert not is_static(b"#!/bin/sh\n")


def test_what_is_missing_is_named_with_its_purpose_and_the_command_that_installs_it():
    with pytest.raises(HarnessError) as error:
        debian.require("make test", (PODMAN, RUNC, CRUN))
    assert str(error.value).splitlines() == [
        "make test needs programs that this machine lacks:",
        "  podman  runs containers",
        "  crun    runs containers for podman",
        "install them with: apt-get update && apt-get install -y podman crun",
    ]


def test_nothing_is_said_when_nothing_is_missing():
    debian.require("make test", (RUNC,))


def write_go(folder, version):
    program = folder / "go"
    program.write_text(f"#!/bin/sh\necho go version go{version} linux/amd64\n")
    program.chmod(0o755)


@pytest.mark.parametrize(("version", "accepted"), [("1.19.8", False), ("1.21.0", True), ("1.26", True)])
def test_go_must_be_able_to_fetch_a_newer_toolchain(monkeypatch, tmp_path, version, accepted):
    write_go(tmp_path, version)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert debian.find_go() == (tmp_path / "go" if accepted else None)
    lacking = debian.missing(debian.TO_BUILD)
    assert bool(lacking) is not accepted
    if lacking:
        assert debian.explain("the build", lacking).endswith("install Go from https://go.dev/dl and put `go` on PATH")


def test_each_package_is_named_once():
    assert debian.packages((PODMAN, CRUN, PODMAN)) == ["podman", "crun"]


def test_a_program_that_fails_is_quoted():
    with pytest.raises(HarnessError, match="status 3:\nwhy"):
        run(["sh", "-c", "echo why >&2; exit 3"])
