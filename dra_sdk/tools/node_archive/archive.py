"""An archive of a node as a directory of files: the manifest, and an extraction that writes below its directory only.

The standard library's extraction filters exist since Python 3.11.4 and depend on the links that were extracted before.
This extraction needs no filter: it knows three kinds of members, checks every name and every link before it writes
anything, and makes the links last, so nothing is ever written through a link.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, Final

from dra_sdk.errors import SettingsError
from dra_sdk.input_files import read_limited

MANIFEST: Final = "dra-sdk-node.json"
VERSION: Final = 1
MAX_FILE: Final = 4 << 20
"""Bytes of one file."""
MAX_CONTENT: Final = 64 << 20
"""Bytes of all files together."""
MAX_MEMBERS: Final = 100_000
"""Files, directories and links; and directories with those that only the names of others mention."""
_MAX_STREAM: Final = MAX_CONTENT + MAX_MEMBERS * 1536
"""Bytes of the uncompressed tar file: the files, and three blocks of 512 bytes for header and padding of each."""
_MAX_NAME: Final = 1024  # bytes; with the directory it must be less than PATH_MAX
_MAX_PART: Final = 255  # bytes between two slashes (NAME_MAX)
_MAX_TARGET: Final = 4095  # bytes (PATH_MAX without its final NUL)
_LEADING_UP: Final = re.compile(r"(?:\.\./)*(?:\.\.$)?")


@dataclass(frozen=True, slots=True)
class HostDevice:
    """A device node on a host. In an archive it is an empty file, because only root can make device nodes.

    type: `b` (block), `c` (character) or `p` (FIFO); an archive has no FIFOs.
    major: the major number.
    minor: the minor number.
    mode: the permission bits.
    """

    type: str
    major: int
    minor: int
    mode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveManifest:
    """What an archive says beyond its files.

    source: the kernel, the machine and the SDK, as in `uname`, and whether identifiers are the real ones.
    devices: the device nodes by path, such as `/dev/kvm`.
    left_out: the reason for each file that was not captured, by path.
    """

    source: Mapping[str, Any] = field(default_factory=dict)
    devices: Mapping[str, HostDevice] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """Return the content of the file."""
        devices = {
            path: {"type": device.type, "major": device.major, "minor": device.minor, "mode": f"{device.mode:04o}"}
            for path, device in sorted(self.devices.items())
        }
        document = {"version": VERSION, "source": dict(self.source), "devices": devices, "leftOut": dict(self.left_out)}
        return json.dumps(document, indent=1).encode()

    @classmethod
    def decode(cls, content: bytes, title: str) -> ArchiveManifest:
        """Read the file; SettingsError, which begins with `title`, if it is not one of a version that is known here."""
        try:
            document = json.loads(content)
            if document["version"] != VERSION:
                raise SettingsError(f"{title}: version {document['version']!r} is not known; this SDK reads {VERSION}")
            devices = {
                str(path): HostDevice(_kind(node["type"]), int(node["major"]), int(node["minor"]), int(node["mode"], 8))
                for path, node in document.get("devices", {}).items()
            }
            return cls(
                source=dict(document.get("source", {})), devices=devices, left_out=dict(document.get("leftOut", {}))
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
            raise SettingsError(f"{title}: is not a manifest of an archive: {type(error).__name__}: {error}") from error


def read_manifest(root: Path) -> ArchiveManifest:
    """Return the manifest in a directory that was extracted from an archive, an empty one without. SettingsError."""
    path = root / MANIFEST
    return ArchiveManifest.decode(_content(path), str(path)) if path.is_file() else ArchiveManifest()


def _content(path: Path) -> bytes:
    try:
        return read_limited(path, MAX_FILE)
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from error


@contextmanager
def opened_root(path: Path) -> Iterator[Path]:
    """Provide the directory that a path names: itself, or a temporary one with an archive's content. SettingsError."""
    if path.is_dir():
        yield path
        return
    with TemporaryDirectory(prefix="dra-sdk-node-") as name:
        extract(path, Path(name))
        yield Path(name)


def extract(archive: Path, directory: Path) -> ArchiveManifest:
    """Write an archive's files below a directory and return its manifest.

    An archive without a manifest is one that `tar` made of a directory. SettingsError if it cannot be read, is larger
    than the limits, or has a member that is not an ordinary file, a directory or a link inside the archive: nothing is
    written then. SettingsError too if a file cannot be written.
    """
    try:
        members = _Members.read(archive)
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, UnicodeError, ValueError) as error:
        raise SettingsError(f"{archive} is not an archive of a node (.tar.gz): {error}") from error
    except OSError as error:
        raise SettingsError(f"cannot read {archive}: {error.strerror or error}") from error
    members.check_directories()
    content = members.files.get(MANIFEST)
    manifest = ArchiveManifest() if content is None else ArchiveManifest.decode(content, f"{archive}: {MANIFEST}")
    try:
        members.write(directory)
    except OSError as error:
        raise SettingsError(f"{archive} cannot be extracted below {directory}: {error.strerror}") from error
    return manifest


@dataclass(slots=True)
class _Members:
    """The members of one archive, all in memory."""

    archive: Path
    directories: set[str] = field(default_factory=set)
    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    size: int = 0

    @classmethod
    def read(cls, archive: Path) -> _Members:
        members = cls(archive)
        with _Stream(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            for number, member in enumerate(tar):
                if number >= MAX_MEMBERS:
                    raise SettingsError(f"{archive} has more than {MAX_MEMBERS} members")
                members.add(tar, member)
        return members

    def add(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        name = self._name(member.name)
        if name in self.files or name in self.links:
            raise self._refused(member.name, "is there twice")
        if member.isdir():
            self._add_directories(name)
        elif name == ".":
            raise self._refused(member.name, "is not a directory")
        elif member.issym():
            self.links[name] = self._target(name, member)
        elif member.isreg():
            self._add_file(tar, name, member)
        else:
            raise self._refused(member.name, "is neither a file, a directory nor a symbolic link")
        self._add_directories(str(PurePosixPath(name).parent))

    def check_directories(self) -> None:
        """Raise SettingsError if a file or link is a directory too, or has members below it."""
        if clash := self.directories & {*self.files, *self.links}:
            raise self._refused(min(clash), "is there twice, once as a directory or with members below it")

    def write(self, directory: Path) -> None:
        """Write directories first, links last."""
        for name in sorted(self.directories):
            (directory / name).mkdir(parents=True, exist_ok=True)
        for name, content in self.files.items():
            (directory / name).write_bytes(content)
        for name, target in self.links.items():
            (directory / name).symlink_to(target)

    def _add_directories(self, name: str) -> None:
        """Add a directory and those above it; each counts, since one name can stand for hundreds of them."""
        while name not in self.directories:
            self.directories.add(name)
            name = str(PurePosixPath(name).parent)
        if len(self.directories) > MAX_MEMBERS:
            raise SettingsError(f"{self.archive} has more than {MAX_MEMBERS} directories")

    def _add_file(self, tar: tarfile.TarFile, name: str, member: tarfile.TarInfo) -> None:
        self.size += member.size
        if member.size > MAX_FILE:
            raise self._refused(member.name, f"has {member.size} bytes, the limit is {MAX_FILE}")
        if self.size > MAX_CONTENT:
            raise SettingsError(f"{self.archive}: its files have more than {MAX_CONTENT} bytes together")
        content = tar.extractfile(member)
        self.files[name] = content.read() if content else b""

    def _name(self, name: str) -> str:
        parts = name.removeprefix("./").rstrip("/").split("/")
        if name in {".", "./"}:
            return "."
        if name.startswith("/") or not {"", ".", ".."}.isdisjoint(parts) or "\0" in name:
            raise self._refused(name, "is not a path inside the archive")
        for text, what, limit in ((name, "name", _MAX_NAME), (max(parts, key=_size), "part of its name", _MAX_PART)):
            if _size(text) > limit:
                raise self._refused(name[:80] + "…", f"has a {what} of {_size(text)} bytes, the limit is {limit}")
        return "/".join(parts)

    def _target(self, name: str, member: tarfile.TarInfo) -> str:
        """Return the target of a link, which may go up only at its beginning: there its directory is a real one."""
        problem = link_problem(name, member.linkname)
        if problem:
            raise self._refused(member.name, f"is a link to {member.linkname[:_MAX_NAME]!r}, which {problem}")
        return member.linkname

    def _refused(self, name: str, problem: str) -> SettingsError:
        return SettingsError(f"{self.archive}: member {name!r} {problem}")


def link_problem(name: str, target: str) -> str:
    """Return why a link with this name and target could lead out of the archive; empty if it cannot.

    `..` is allowed only at the beginning of the target, and at most as often as the link's own directory is deep. A
    path that goes up only there stays inside when it passes other links, because each of them stays inside too.
    """
    leading = _LEADING_UP.match(target)
    ups = leading[0].count("..") if leading else 0
    rest = target[leading.end() :] if leading else target
    if not target or target.startswith("/") or "\0" in target or _size(target) > _MAX_TARGET:
        return f"is not a relative path of at most {_MAX_TARGET} bytes"
    if ups > name.count("/") or ".." in rest.split("/"):
        return "leads out of the archive"
    return ""


def _size(text: str) -> int:
    return len(os.fsencode(text))


class _Stream(gzip.GzipFile):
    """A gzip stream with an end: SettingsError instead of more than _MAX_STREAM bytes, as of a small file of zeros."""

    def __init__(self, archive: Path) -> None:
        super().__init__(archive, "rb")
        self._archive = archive
        self._left = _MAX_STREAM

    def read(self, size: int | None = -1) -> bytes:
        """Return at most `size` bytes; all that are left if it is negative or None."""
        most = self._left + 1
        content = super().read(most if size is None or size < 0 else min(size, most))
        self._left -= len(content)
        if self._left < 0:
            raise SettingsError(f"{self._archive} has more than {_MAX_STREAM} bytes when uncompressed")
        return content


def _kind(value: object) -> str:
    if value not in {"b", "c"}:
        raise ValueError(f"type {value!r} of a device node must be b or c")
    return str(value)
