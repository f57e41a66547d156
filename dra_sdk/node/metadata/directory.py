"""The metadata files of a driver's claims, under its plugin data directory: their content, and their lifetime."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dra_sdk.errors import ClaimError, InvalidObjectError
from dra_sdk.model import JSON
from dra_sdk.model.claim import Claim, ClaimRef, PreparedDevice
from dra_sdk.model.device import Device
from dra_sdk.model.edits import ContainerEdits, Mount
from dra_sdk.node.files import Files, claim_lock
from dra_sdk.node.locks import NamedLocks
from dra_sdk.node.metadata import MetadataFile
from dra_sdk.node.metadata.document import ATTRIBUTES_LIMIT, device_entry, encode
from dra_sdk.node.metadata.layout import (
    FILE,
    HOST_DIRECTORY,
    checked_base_request,
    claim_directory,
    container_path,
    host_path,
    identify,
)
from dra_sdk.node.metadata.reading import read_file


class MetadataDirectory:
    """The metadata files of one driver. Safe for threads, as long as a caller holds the claim's lock.

    driver: the driver's name.
    data: its plugin data directory, which the paths of MetadataFile are relative to.
    files: writes them.
    """

    def __init__(self, driver: str, data: Path, files: Files) -> None:
        self._driver, self._data, self._files = driver, data, files
        self._published: dict[tuple[str, str], tuple[Device, JSON]] = {}

    def build(self, claim: Claim[Any], prepared: Sequence[PreparedDevice]) -> list[MetadataFile]:
        """Return the files of a claim: published attributes, and what the driver added.

        ClaimError for a name that cannot be part of a path, InvalidObjectError for a device that breaks a limit.
        """
        entries = [
            (after.request, self._entry(before.device, after))
            for before, after in zip(claim.devices, prepared, strict=True)
        ]
        return _files(self._driver, claim.raw, entries)

    def _entry(self, published: Device | None, device: PreparedDevice) -> JSON:
        """Return the entry of one device: its published attributes, which are checked once, and those of this claim."""
        entry = device_entry(self._driver, device)
        if published is None:
            return entry
        known = self._published.get((device.pool, device.name))
        if known is None or known[0] != published:
            alone = replace(device, metadata=published.attributes, status=None)
            known = (published, device_entry(self._driver, alone).get("attributes", {}))
            self._published[device.pool, device.name] = known
        added = entry.get("attributes", {})
        attributes = {**known[1], **added}
        values = sum(
            len(value) if isinstance(value, list) else 1
            for attribute in attributes.values()
            for value in attribute.values()
        )
        if values > ATTRIBUTES_LIMIT:  # the error names the device
            return device_entry(self._driver, replace(device, metadata={**published.attributes, **device.metadata}))
        ends = {key: entry[key] for key in ("networkData",) if key in entry}
        return {key: entry[key] for key in ("driver", "pool", "name")} | {"attributes": attributes} | ends

    def mounts(self, files: Iterable[MetadataFile]) -> dict[str, ContainerEdits]:
        """Return the read-only mount of each file, by its request."""
        return {
            file.request: ContainerEdits(
                mounts=(Mount(str(self._data / file.path), file.container_path, options=("ro", "bind")),)
            )
            for file in files
        }

    def write(self, files: Iterable[MetadataFile]) -> None:
        """Write the files; ClaimError if one cannot be written.

        No write waits for the disk: a reboot ends the containers that have the file, and the claim is prepared again.
        """
        for file in files:
            path = self._data / file.path
            try:
                for directory in (path.parent.parent, path.parent):  # upwards, `mkdir` would first fail for each
                    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
                # A container's user need not be root.
                self._files.write(path, file.content.encode(), 0o644, whole=False)
            except OSError as error:
                raise ClaimError(f"cannot write device metadata {path}: {error.strerror}") from error

    def ensure(self, uid: str, files: Iterable[MetadataFile]) -> None:
        """Write missing or damaged files of a claim again: a runtime cannot mount a missing file.

        A readable file of the claim stays as it is.
        """
        self.write(file for file in files if _uid_in(self._data / file.path) != uid)

    def remove(self, ref: ClaimRef, files: Sequence[MetadataFile] = ()) -> None:
        """Remove a claim's files; nothing to do if there are none, or if they are of a newer claim of that name.

        files: what was written for the claim. Files that are still as they were written are not read as documents.
        """
        if files and self._remove_unchanged(files):
            return
        try:
            directory = self._data / HOST_DIRECTORY / claim_directory(ref.namespace, ref.name)
        except ClaimError:  # no API server can have a claim of this name, so it has no files
            return
        if _owner(directory) in {None, ref.uid}:
            _remove_tree(directory)

    def _remove_unchanged(self, files: Sequence[MetadataFile]) -> bool:
        """Remove these files and their directories if all of them are unchanged, and there are no others."""
        paths = [self._data / file.path for file in files]
        try:
            if any(path.read_bytes() != file.content.encode() for path, file in zip(paths, files, strict=True)):
                return False
            for path in paths:
                path.unlink()
                path.parent.rmdir()
            paths[0].parent.parent.rmdir()
        except OSError:
            return False
        return True

    def sweep(self, is_held: Callable[[str], bool], locks: NamedLocks | None = None) -> None:
        """Remove the files of claims that are neither held (`held` is called with the UID) nor locked.

        Files without the UID of their claim are removed too, unless another process may be about to write there. Then
        the next unprepare of the claim removes them.
        """
        locks = locks or NamedLocks()
        for directory in (self._data / HOST_DIRECTORY).glob("*"):
            owner = _owner(directory)
            if owner is None:
                if not locks.is_shared:
                    _remove_tree(directory)
                continue
            with locks.try_hold(claim_lock(owner)) as is_ours:
                if is_ours and not is_held(owner):
                    _remove_tree(directory)


def _files(driver: str, claim: Mapping[str, Any], entries: Iterable[tuple[str, JSON]]) -> list[MetadataFile]:
    """Return the files of `claim` with these entries of devices, each with its request."""
    identity = identify(claim)
    by_base: dict[str, dict[str, list[JSON]]] = {}
    for request, entry in entries:
        by_base.setdefault(checked_base_request(request), {}).setdefault(request, []).append(entry)
    about = {"name": identity.name, "namespace": identity.namespace, "uid": identity.uid, "generation": 1}
    pod_claim = {"podClaimName": identity.pod_claim} if identity.pod_claim is not None else {}
    files = []
    for base, requests in by_base.items():
        listed = [{"name": name, "devices": devices} for name, devices in requests.items()]
        content = encode({"metadata": about, **pod_claim, "requests": listed})
        path = host_path(identity.namespace, identity.name, base)
        files.append(MetadataFile(base, path, container_path(driver, identity, base), content))
    return files


def _owner(directory: Path) -> str | None:
    """Return the UID of the claim of these files; None if no file has it."""
    uids = (_uid_in(path) for path in sorted(directory.glob(f"*/{FILE}")))
    return next((uid for uid in uids if uid is not None), None)


def _uid_in(path: Path) -> str | None:
    """Return the UID of the claim that a file is about; None if it is missing or damaged."""
    try:
        return read_file(path).metadata.uid
    except InvalidObjectError:
        return None


def _remove_tree(directory: Path) -> None:
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ClaimError(f"cannot remove device metadata {directory}: {error.strerror}") from error
