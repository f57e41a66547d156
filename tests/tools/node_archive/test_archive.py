"""Archives of nodes are extracted below their directory only, within limits."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from dra_sdk.errors import SettingsError
from dra_sdk.tools.node_archive.archive import (
    MANIFEST,
    MAX_CONTENT,
    MAX_FILE,
    ArchiveManifest,
    HostDevice,
    extract,
    link_problem,
    opened_root,
    read_manifest,
)

Member = tuple[str, bytes, "bytes | str"]


def archive(path: Path, *members: Member) -> Path:
    """A tar file with these members: name, type, and content or target."""
    with tarfile.open(path, "w:gz") as tar:
        for name, kind, value in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            content = value if isinstance(value, bytes) else b""
            member.size, member.linkname = len(content), value if isinstance(value, str) else ""
            tar.addfile(member, io.BytesIO(content))
    return path


def file(name: str, content: bytes = b"x") -> Member:
    return name, tarfile.REGTYPE, content


def link(name: str, target: str) -> Member:
    return name, tarfile.SYMTYPE, target


def test_files_directories_and_links_are_extracted(tmp_path: Path) -> None:
    made = archive(
        tmp_path / "node.tar.gz",
        ("./", tarfile.DIRTYPE, b""),
        file("./sys/devices/pci0000:00/0000:00:03.0/vendor", b"0x10de\n"),
        ("sys/empty/", tarfile.DIRTYPE, b""),
        link("sys/bus/pci/devices/0000:00:03.0", "../../../devices/pci0000:00/0000:00:03.0"),
        link("sys/devices/pci0000:00/0000:00:03.0/loop", "../0000:00:03.0"),
    )
    root = tmp_path / "root"
    assert extract(made, root) == ArchiveManifest()
    assert (root / "sys/bus/pci/devices/0000:00:03.0/loop/vendor").read_text() == "0x10de\n"
    assert (root / "sys/empty").is_dir()


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (file("../evil"), "is not a path inside the archive"),
        (file("sys/../../evil"), "is not a path inside the archive"),
        (file("/etc/evil"), "is not a path inside the archive"),
        (file("sys//x"), "is not a path inside the archive"),
        (file("a/" * 550 + "a"), "has a name of 1101 bytes, the limit is 1024"),
        (file("é" * 128), "has a part of its name of 256 bytes, the limit is 255"),
        (link("sys/x", "a" * 4096), "which is not a relative path of at most 4095 bytes"),
        (file("."), "is not a directory"),
        (link(".", "sys"), "is not a directory"),
        (link("sys/x", "/etc/passwd"), "which is not a relative path"),
        (link("sys/x", "../../etc/passwd"), "which leads out of the archive"),
        (link("x", ".."), "which leads out of the archive"),
        (link("sys/a/b", "../../dev/../.."), "which leads out of the archive"),
        (link("sys/x", ""), "which is not a relative path"),
        (("sys/x", tarfile.LNKTYPE, "sys/y"), "is neither a file, a directory nor a symbolic link"),
        (("dev/sda", tarfile.BLKTYPE, b""), "is neither a file, a directory nor a symbolic link"),
        (("dev/kvm", tarfile.CHRTYPE, b""), "is neither a file, a directory nor a symbolic link"),
        (("dev/pipe", tarfile.FIFOTYPE, b""), "is neither a file, a directory nor a symbolic link"),
        (file("sys/large", b"0" * (MAX_FILE + 1)), f"has {MAX_FILE + 1} bytes, the limit is {MAX_FILE}"),
    ],
)
def test_a_member_that_is_not_a_file_of_a_node_is_refused(tmp_path: Path, member: Member, message: str) -> None:
    made = archive(tmp_path / "node.tar.gz", file("sys/first"), member)
    with pytest.raises(SettingsError, match=r"node\.tar\.gz: member ") as refused:
        extract(made, tmp_path / "root")
    assert message in str(refused.value)
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    "members",
    [
        [link("sys/a", "../proc"), file("sys/a/x")],
        [file("sys/a/x"), link("sys/a", "../proc")],
        [link("sys/a", "../proc"), ("sys/a/b", tarfile.DIRTYPE, b"")],
        [file("sys/a"), file("sys/a/x")],
        [file("sys/a"), file("sys/a")],
        [link("sys/a", "b"), file("sys/a")],
        [("sys/a", tarfile.DIRTYPE, b""), link("sys/a", "b")],
    ],
)
def test_nothing_is_written_through_a_link_or_twice(tmp_path: Path, members: list[Member]) -> None:
    made = archive(tmp_path / "node.tar.gz", *members)
    with pytest.raises(SettingsError, match="is there twice"):
        extract(made, tmp_path / "root")
    assert not (tmp_path / "root").exists()


def test_a_chain_of_links_stays_inside(tmp_path: Path) -> None:
    """Each of these is inside as text; a reader that follows the first would leave by the second."""
    assert link_problem("a/b/c", "../../") == ""
    assert link_problem("d", "a/b/c/../../etc") == "leads out of the archive"
    assert link_problem("a/d", "./../../x") == "leads out of the archive"


def test_many_zeros_end_at_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "zeros.tar.gz"
    header = tarfile.TarInfo("sys/many")
    header.size = 2 * MAX_CONTENT
    with gzip.open(path, "wb", compresslevel=1) as stream:
        stream.write(header.tobuf())
        for _ in range(2 * MAX_CONTENT >> 20):
            stream.write(b"\0" * (1 << 20))
    with pytest.raises(SettingsError, match=f"has {2 * MAX_CONTENT} bytes, the limit is {MAX_FILE}"):
        extract(path, tmp_path / "root")


def test_a_long_header_ends_at_the_limit(tmp_path: Path) -> None:
    """A header of a header is read as a whole, before its member is known."""
    path = tmp_path / "header.tar.gz"
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 4 * MAX_CONTENT
    with gzip.open(path, "wb", compresslevel=1) as stream:
        stream.write(header.tobuf(format=tarfile.GNU_FORMAT))
        for _ in range(4 * MAX_CONTENT >> 20):
            stream.write(b"\0" * (1 << 20))
    with pytest.raises(SettingsError, match="bytes when uncompressed"):
        extract(path, tmp_path / "root")


def test_the_files_together_have_a_limit(tmp_path: Path) -> None:
    part = b"0" * MAX_FILE
    made = archive(tmp_path / "node.tar.gz", *(file(f"sys/{n}", part) for n in range(MAX_CONTENT // MAX_FILE + 1)))
    with pytest.raises(SettingsError, match=f"its files have more than {MAX_CONTENT} bytes together"):
        extract(made, tmp_path / "root")


def test_the_members_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dra_sdk.tools.node_archive.archive.MAX_MEMBERS", 50)
    made = archive(tmp_path / "many.tar.gz", *(file(f"sys/{number}") for number in range(51)))
    with pytest.raises(SettingsError, match="has more than 50 members"):
        extract(made, tmp_path / "root")


def test_directories_count_that_only_names_mention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dra_sdk.tools.node_archive.archive.MAX_MEMBERS", 50)
    extract(archive(tmp_path / "deep.tar.gz", file("a/" * 49 + "a")), tmp_path / "root")
    made = archive(tmp_path / "deep.tar.gz", file("a/" * 25 + "a"), file("b/" * 25 + "b"))
    with pytest.raises(SettingsError, match="has more than 50 directories"):
        extract(made, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_an_archive_that_cannot_be_written_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("")
    with pytest.raises(SettingsError, match=r"deep\.tar\.gz cannot be extracted below .*: File exists"):
        extract(archive(tmp_path / "deep.tar.gz", file("sys/x")), tmp_path / "root")


@pytest.mark.parametrize(
    "content", [b"", b"no archive", gzip.compress(b"no tar", mtime=0), gzip.compress(b"x" * 600, mtime=0)[:-9]]
)
def test_what_is_no_archive_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "node.tar.gz"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"node\.tar\.gz"):
        extract(path, tmp_path / "root")
    with pytest.raises(SettingsError, match=r"cannot read .*absent: No such file or directory"):
        extract(tmp_path / "absent", tmp_path / "root")


def test_the_manifest_has_the_device_nodes(tmp_path: Path) -> None:
    manifest = ArchiveManifest(
        source={"kernel": "6.12"},
        devices={"/dev/kvm": HostDevice("c", 10, 232, 0o660)},
        left_out={"/sys/x": "is binary"},
    )
    made = archive(tmp_path / "node.tar.gz", file(MANIFEST, manifest.encoded()), file("dev/kvm", b""))
    assert extract(made, tmp_path / "root") == manifest
    assert read_manifest(tmp_path / "root") == manifest
    assert read_manifest(tmp_path) == ArchiveManifest()


@pytest.mark.parametrize(
    "content",
    [
        b"no json",
        b"[" * 100_000,
        b"[]",
        b"{}",
        b'{"version": 2}',
        b'{"version": 1, "devices": {"/dev/x": {"type": "s", "major": 1, "minor": 1, "mode": "0600"}}}',
        b'{"version": 1, "devices": {"/dev/x": {"type": "c", "major": 1, "minor": 1, "mode": "rw"}}}',
        b'{"version": 1, "devices": []}',
        b'{"version": 1, "devices": {"/dev/x": {"type": "c", "major": 1e999, "minor": 1, "mode": "0600"}}}',
        b'{"version": 1, "source": 5}',
        b'{"version": 1, "leftOut": [1]}',
    ],
)
def test_a_damaged_manifest_is_told(tmp_path: Path, content: bytes) -> None:
    made = archive(tmp_path / "node.tar.gz", file(MANIFEST, content))
    with pytest.raises(SettingsError, match=MANIFEST):
        extract(made, tmp_path / "root")


def test_a_directory_is_opened_as_it_is_and_an_archive_for_a_while(tmp_path: Path) -> None:
    with opened_root(tmp_path) as root:
        assert root == tmp_path
    with opened_root(archive(tmp_path / "node.tar.gz", file("sys/x"))) as root:
        assert (root / "sys/x").read_bytes() == b"x"
    assert not root.exists()
