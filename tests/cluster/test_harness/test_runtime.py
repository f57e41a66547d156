"""containerd and its friends, from the packages of this machine's distribution."""

from __future__ import annotations

from tests.cluster.harness.runtime import CNI_PLUGINS, PROGRAMS, Runtime, choose_mirror, is_static


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


def test_runtime_names_what_is_missing(tmp_path):
    runtime = Runtime.under(tmp_path)
    for folder, names in ((runtime.bin, PROGRAMS), (runtime.cni, CNI_PLUGINS)):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).touch(mode=0o755)
    assert runtime.missing() == []
    (runtime.bin / "ctr").unlink()
    assert runtime.missing() == [runtime.bin / "ctr"]
