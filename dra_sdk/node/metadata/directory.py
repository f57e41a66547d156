"""The metadata files of a driver's claims, under its plugin data directory: their content, and their lifetime."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from dra_sdk.errors import ClaimError, InvalidObjectError
from dra_sdk.model import JSON
from dra_sdk.model.claim import Claim, ClaimRef, PreparedDevice
from dra_sdk.model.edits import ContainerEdits, Mount
from dra_sdk.node.files import Files, safe_id
from dra_sdk.node.locks import NamedLocks
from dra_sdk.node.metadata import MetadataFile
from dra_sdk.node.metadata.document import VERSIONS, DeviceMetadata, device_entry
from dra_sdk.node.metadata.layout import (
    FILE,
    HOST_DIRECTORY,
    ClaimIdentity,
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
    versions: the API versions that are written.
    """

    def __init__(self, driver: str, data: Path, files: Files, versions: Sequence[str] = VERSIONS) -> None:
        self._driver, self._data, self._files, self._versions = driver, data, files, versions
        self._updating = Lock()

    def build(self, claim: Claim[Any], prepared: Sequence[PreparedDevice]) -> list[MetadataFile]:
        """The files of a claim: published attributes, and what the driver added.

        ClaimError for a name that cannot be part of a path, InvalidObjectError for a device that breaks a limit.
        """
        devices = [
            replace(after, metadata={**(before.device.attributes if before.device else {}), **after.metadata})
            for before, after in zip(claim.devices, prepared, strict=True)
        ]
        return claim_files(self._driver, claim.raw, devices, self._versions)

    def mounts(self, files: Iterable[MetadataFile]) -> dict[str, ContainerEdits]:
        """For each request the read-only mount of its file."""
        return {
            each.request: ContainerEdits(
                mounts=(Mount(str(self._data / each.path), each.container_path, options=("ro", "bind")),)
            )
            for each in files
        }

    def write(self, files: Iterable[MetadataFile]) -> None:
        """Write the files; ClaimError if one cannot be written.

        No write waits for the disk: a reboot ends the containers that have the file, and the claim is prepared again.
        """
        for each in files:
            path = self._data / each.path
            try:
                path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                # A container's user need not be root.
                self._files.write(path, each.content.encode(), 0o644, whole=False)
            except OSError as error:
                raise ClaimError(f"cannot write device metadata {path}: {error.strerror}") from error

    def ensure(self, uid: str, files: Iterable[MetadataFile]) -> None:
        """Write missing or damaged files of a claim again: a runtime cannot mount a missing file.

        A readable file stays as it is: it may have been updated.
        """
        self.write(each for each in files if _uid_in(self._data / each.path) != uid)

    def update(self, ref: ClaimRef, request: str, devices: Iterable[PreparedDevice]) -> MetadataFile:
        """Replace the devices of one request of a prepared claim; returns the written file.

        A container that runs already keeps the file it was started with, so this is for what becomes known between
        prepare and the start of containers, such as the addresses of a network interface. ClaimError if the claim is
        not prepared or has no such request.
        """
        path = self._data / host_path(ref.namespace, ref.name, request)
        with self._updating:
            document = read_file(path) if path.exists() else None
            if document is None or document.metadata.uid != ref.uid:
                raise ClaimError(f"{ref}: no metadata found for request {request}")
            file = updated_file(self._driver, document, request, devices, self._versions)
            self.write([file])
        return file

    def remove(self, ref: ClaimRef) -> None:
        """Remove a claim's files; nothing to do if there are none, or if they are of a newer claim of that name."""
        try:
            directory = self._data / HOST_DIRECTORY / claim_directory(ref.namespace, ref.name)
        except ClaimError:  # no API server can have a claim of this name, so it has no files
            return
        if _owner(directory) in {None, ref.uid}:
            _remove_tree(directory)

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
            with locks.try_hold(f"claim/{safe_id(owner)}") as is_ours:
                if is_ours and not is_held(owner):
                    _remove_tree(directory)


def claim_files(
    driver: str, claim: Mapping[str, Any], devices: Iterable[PreparedDevice], versions: Sequence[str] = VERSIONS
) -> list[MetadataFile]:
    """The files of `claim` (a ResourceClaim as JSON), one for each request that has a device, with generation 1.

    Subrequests of one request share its file, each with an entry of its own. Raises ClaimError for a name that cannot
    be part of a path, InvalidObjectError for a device that breaks a limit.
    """
    identity = identify(claim)
    by_base: dict[str, dict[str, list[JSON]]] = {}
    for device in devices:
        requests = by_base.setdefault(checked_base_request(device.request), {})
        requests.setdefault(device.request, []).append(device_entry(driver, device))
    about = {"name": identity.name, "namespace": identity.namespace, "uid": identity.uid, "generation": 1}
    found = []
    for base, requests in by_base.items():
        listed = [{"name": name, "devices": entries} for name, entries in requests.items()]
        fields = {"metadata": about, "podClaimName": identity.pod_claim, "requests": listed}
        found.append(_file(driver, identity, base, DeviceMetadata.model_validate(fields).encode(versions)))
    return found


def updated_file(
    driver: str,
    document: DeviceMetadata,
    request: str,
    devices: Iterable[PreparedDevice],
    versions: Sequence[str] = VERSIONS,
) -> MetadataFile:
    """The file of `document` with other devices for `request` and the next generation; ClaimError if it has none."""
    about = document.metadata
    identity = ClaimIdentity(about.namespace, about.name, about.uid, document.pod_claim_name)
    if document.request(request) is None:
        listed = ", ".join(each.name for each in document.requests) or "none"
        raise ClaimError(f"{identity}: request {request} not found in its metadata, which has {listed}")
    entries = []
    for device in devices:
        if device.request != request:
            raise ClaimError(f"{identity}: device {device.pool}/{device.name} belongs to request {device.request}")
        entries.append(device_entry(driver, device))
    fields = document.model_dump(mode="json", by_alias=True)
    fields["metadata"]["generation"] += 1
    for each in fields["requests"]:
        if each["name"] == request:
            each["devices"] = entries
    content = DeviceMetadata.model_validate(fields).encode(versions)
    return _file(driver, identity, checked_base_request(request), content)


def _file(driver: str, identity: ClaimIdentity, base: str, content: str) -> MetadataFile:
    path = host_path(identity.namespace, identity.name, base)
    return MetadataFile(base, path, container_path(driver, identity, base), content)


def _owner(directory: Path) -> str | None:
    """The UID of the claim of these files; None if no file has it."""
    found = (_uid_in(path) for path in sorted(directory.glob(f"*/{FILE}")))
    return next((uid for uid in found if uid is not None), None)


def _uid_in(path: Path) -> str | None:
    """The UID of the claim that a file is about; None if it is missing or damaged."""
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
