"""The paths of metadata files on the host and in the container, and the identity of their claim. Pure.

Source: KEP-5304. Parts of these paths are names that users choose, so each is checked against the API's own rules
before it becomes part of a path.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dra_sdk.errors import ClaimError
from dra_sdk.wire.validation.names import dns_label, driver_name, required_subdomain
from dra_sdk.wire.validation.problems import Problems, byte_length, show

HOST_DIRECTORY: Final = "dra-device-metadata"  # under the driver's plugin data directory
CONTAINER_DIRECTORY: Final = "/var/run/kubernetes.io/dra-device-attributes"
FILE: Final = "metadata.json"
SUFFIX: Final = "-metadata.json"
POD_CLAIM_ANNOTATION: Final = "resource.kubernetes.io/pod-claim-name"

_UID_LIMIT: Final = 128
_NAME_MAX: Final = 255  # bytes in one part of a path


@dataclass(frozen=True, slots=True)
class ClaimIdentity:
    """The claim that a file is about.

    namespace: the claim's namespace.
    name: the claim's name.
    uid: the claim's UID.
    pod_claim: the claim's name inside its pod if it was made from a template.
    """

    namespace: str
    name: str
    uid: str
    pod_claim: str | None = None

    def __str__(self) -> str:
        return f"claim {self.namespace}/{self.name} ({self.uid})"


def identify(claim: Mapping[str, Any]) -> ClaimIdentity:
    """Read the identity from a ResourceClaim of the API server; ClaimError names the field that cannot be used."""
    metadata = claim.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    identity = ClaimIdentity(
        _text(metadata.get("namespace"), "metadata.namespace"),
        _text(metadata.get("name"), "metadata.name"),
        _text(metadata.get("uid"), "metadata.uid"),
        _text(annotations.get(POD_CLAIM_ANNOTATION), f"annotation {POD_CLAIM_ANNOTATION}") or None,
    )
    claim_directory(identity.namespace, identity.name)
    if not 0 < byte_length(identity.uid) <= _UID_LIMIT:
        raise ClaimError(f"metadata.uid must have 1 to {_UID_LIMIT} bytes, is {show(identity.uid)}")
    if identity.pod_claim is not None:
        _must(dns_label(identity.pod_claim, f"annotation {POD_CLAIM_ANNOTATION}"))
    return identity


def checked_base_request(request: str) -> str:
    """Return the request without its subrequest; ClaimError unless both are names of requests."""
    base, slash, sub = request.partition("/")
    _must(dns_label(base, f"request {show(request)}"))
    if slash:
        _must(dns_label(sub, f"request {show(request)}"))
    return base


def claim_directory(namespace: str, name: str) -> str:
    """Return the directory of a claim's files under HOST_DIRECTORY.

    `<namespace>_<claim>`, which no other claim has, because neither part can hold an underscore; a claim whose name is
    so long that a file system would refuse it gets a digest at the end instead.
    """
    _must(dns_label(namespace, "metadata.namespace"))
    _must(required_subdomain(name, "metadata.name"))
    plain = f"{namespace}_{name}"
    if len(plain) <= _NAME_MAX:
        return plain
    digest = hashlib.sha256(plain.encode()).hexdigest()[:32]
    return f"{plain[: _NAME_MAX - len(digest) - 1]}_{digest}"


def host_path(namespace: str, name: str, request: str) -> str:
    """Return a request's file, relative to the driver's plugin data directory."""
    return f"{HOST_DIRECTORY}/{claim_directory(namespace, name)}/{checked_base_request(request)}/{FILE}"


def container_path(driver: str, claim: ClaimIdentity, request: str) -> str:
    """Return the path in a container of one driver's file for one request."""
    _must(driver_name(driver, "the driver's name"))
    if claim.pod_claim is not None:
        _must(dns_label(claim.pod_claim, "the claim's name in the pod"))
        directory = f"resourceclaimtemplates/{claim.pod_claim}"
    else:
        _must(required_subdomain(claim.name, "the claim's name"))
        directory = f"resourceclaims/{claim.name}"
    return f"{CONTAINER_DIRECTORY}/{directory}/{checked_base_request(request)}/{driver}{SUFFIX}"


def _text(value: Any, field: str) -> str:
    if not isinstance(value, str | None):
        raise ClaimError(f"{field} must be a string, is {show(value)}")
    return value or ""


def _must(problems: Problems) -> None:
    for problem in problems:
        raise ClaimError(str(problem))
