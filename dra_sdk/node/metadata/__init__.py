"""Device metadata for workloads (KEP-5304): files in a container that say what was allocated. Writing and reading."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """One metadata file: for one request, without subrequest, of one claim.

    All fields are text, so that the file can be remembered in the claim's checkpoint and written again if it is lost.

    request: the name of the request.
    path: where it lies on the host, relative to the driver's plugin data directory.
    container_path: where containers see it.
    content: a stream of JSON objects (see `document`).
    """

    request: str
    path: str
    container_path: str
    content: str
