"""The metadata files of all claims of a driver, under its plugin data directory."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Lock
from time import time
from typing import Protocol

from dra_sdk.errors import ClaimError, InvalidObjectError
from dra_sdk.node.metadata.document import VERSIONS, DeviceMetadata
from dra_sdk.node.metadata.encoding import MetadataDevice
from dra_sdk.node.metadata.files import MetadataFile, updated_metadata
from dra_sdk.node.metadata.layout import FILE, HOST_DIRECTORY, claim_directory, host_path
from dra_sdk.node.metadata.reading import read_file


class Writer(Protocol):
    """Replaces a small file durably, or raises OSError and leaves the old one."""

    def write(self, path: Path, content: bytes, mode: int = ...) -> None:
        """Make `path` hold `content`."""


class MetadataDirectory:
    """Files of `driver` under `data`. Safe for threads; whoever works on one claim must be alone with it."""

    def __init__(self, driver: str, data: Path, writer: Writer, versions: Sequence[str] = VERSIONS) -> None:
        self._driver, self._data, self._writer, self._versions = driver, data, writer, versions
        self._updating = Lock()

    @property
    def data(self) -> Path:
        """The plugin data directory, which the paths of MetadataFile are relative to."""
        return self._data

    def write(self, files: Iterable[MetadataFile]) -> None:
        """Make the files hold what they say; ClaimError if one cannot be written."""
        for each in files:
            path = self._data / each.path
            try:
                path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                self._writer.write(path, each.content.encode(), 0o644)  # a container's user need not be root
            except OSError as error:
                raise ClaimError(f"cannot write device metadata {path}: {error.strerror}") from error

    def ensure(self, files: Iterable[MetadataFile]) -> None:
        """Write again what was lost: a runtime cannot mount a file that is not there. What is there stays."""
        self.write(each for each in files if not (self._data / each.path).is_file())

    def update(
        self, namespace: str, name: str, uid: str, request: str, devices: Iterable[MetadataDevice]
    ) -> MetadataFile:
        """Replace the devices of one request of a prepared claim; the file that was written.

        A container that runs already keeps the file it was started with, so this is for what becomes known between
        prepare and the start of containers, such as the addresses of a network interface. ClaimError if the claim is
        not prepared or has no such request.
        """
        path = self._data / host_path(namespace, name, request)
        with self._updating:
            document = self._read(path)
            if document is None or document.metadata.uid != uid:
                raise ClaimError(f"claim {namespace}/{name} ({uid}): no metadata found for request {request}")
            file = updated_metadata(self._driver, document, request, devices, self._versions)
            self.write([file])
        return file

    def remove(self, namespace: str, name: str, uid: str) -> None:
        """Remove a claim's files; nothing to do where there are none, or where they are of a newer claim's."""
        try:
            directory = self._data / HOST_DIRECTORY / claim_directory(namespace, name)
        except ClaimError:  # a claim of this name can be in no API server, so it never had files
            return
        if self._owner(directory) not in {None, uid}:
            return
        _remove_tree(directory)

    def sweep(self, held: Callable[[str], bool], *, older_than: float = 0.0) -> None:
        """Remove the files of claims that are no longer `held` (asked by UID), and what nobody can read.

        `older_than` in seconds spares what another process may be at work on.
        """
        for directory in (self._data / HOST_DIRECTORY).glob("*"):
            owner = self._owner(directory)
            if (owner is None or not held(owner)) and _age(directory) >= older_than:
                _remove_tree(directory)

    def _owner(self, directory: Path) -> str | None:
        """The UID of the claim whose files these are, None where no file tells."""
        for path in sorted(directory.glob(f"*/{FILE}")):
            try:
                document = self._read(path)
            except InvalidObjectError:  # damaged, so of no use to anybody
                continue
            if document is not None:
                return document.metadata.uid
        return None

    def _read(self, path: Path) -> DeviceMetadata | None:
        return read_file(path) if path.exists() else None


def _age(directory: Path) -> float:
    """For how many seconds no request was added; a time to come is as old, since the clock was set back."""
    try:
        return abs(time() - directory.stat().st_mtime)
    except FileNotFoundError:
        return 0.0


def _remove_tree(directory: Path) -> None:
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ClaimError(f"cannot remove device metadata {directory}: {error.strerror}") from error
