"""The metadata files of one claim: what is in them, where they go, and how containers get them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dra_sdk.errors import ClaimError
from dra_sdk.model.edits import ContainerEdits, Mount
from dra_sdk.node.metadata.document import VERSIONS, DeviceMetadata
from dra_sdk.node.metadata.encoding import MetadataDevice, encode, entry
from dra_sdk.node.metadata.layout import ClaimIdentity, checked_base_request, container_path, host_path, identify


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """One file: for one request, without subrequest, of one claim.

    `path` is relative to the driver's plugin data directory, `container_path` is where containers see it. All fields
    are text, so that the file can be remembered with the claim and written again if it is lost.
    """

    request: str
    path: str
    container_path: str
    content: str


def claim_metadata(
    driver: str, claim: Mapping[str, Any], devices: Iterable[MetadataDevice], versions: Sequence[str] = VERSIONS
) -> list[MetadataFile]:
    """The files of `claim` (a ResourceClaim as JSON), one for each request that has a device, with generation 1.

    Subrequests of one request share its file, each with an entry of its own. Raises ClaimError for a name that cannot
    be part of a path, InvalidObjectError for a device that breaks a limit.
    """
    identity = identify(claim)
    by_base: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for device in devices:
        requests = by_base.setdefault(checked_base_request(device.request), {})
        requests.setdefault(device.request, []).append(entry(driver, device))
    return [
        _file(driver, identity, base, encode(_document(identity, requests), versions))
        for base, requests in by_base.items()
    ]


def updated_metadata(
    driver: str,
    document: DeviceMetadata,
    request: str,
    devices: Iterable[MetadataDevice],
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
        entries.append(entry(driver, device))
    fields = document.model_dump(mode="json", by_alias=True)
    fields["metadata"]["generation"] += 1
    for each in fields["requests"]:
        if each["name"] == request:
            each["devices"] = entries
    content = encode(DeviceMetadata.model_validate(fields), versions)
    return _file(driver, identity, checked_base_request(request), content)


def metadata_edits(files: Iterable[MetadataFile], data: Path) -> dict[str, ContainerEdits]:
    """For each request the read-only mount of its file; `data` is the plugin data directory on the host."""
    return {
        each.request: ContainerEdits(
            mounts=(Mount(str(data / each.path), each.container_path, options=("ro", "bind")),)
        )
        for each in files
    }


def _document(identity: ClaimIdentity, requests: Mapping[str, list[dict[str, Any]]]) -> DeviceMetadata:
    about = {"name": identity.name, "namespace": identity.namespace, "uid": identity.uid, "generation": 1}
    listed = [{"name": name, "devices": devices} for name, devices in requests.items()]
    return DeviceMetadata.model_validate({"metadata": about, "podClaimName": identity.pod_claim, "requests": listed})


def _file(driver: str, identity: ClaimIdentity, base: str, content: str) -> MetadataFile:
    path = host_path(identity.namespace, identity.name, base)
    return MetadataFile(base, path, container_path(driver, identity, base), content)
