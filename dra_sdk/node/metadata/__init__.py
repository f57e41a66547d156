"""Device metadata for workloads: files in a container that describe the allocated devices.

Source: KEP-5304.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """One metadata file: for one request, without subrequest, of one claim.

    All fields are text, so that the claim's checkpoint can hold them and the file can be written again if it is lost.

    request: the name of the request.
    path: its path on the host, relative to the driver's plugin data directory.
    container_path: its path in containers.
    content: a stream of JSON objects (see `document`).
    """

    request: str
    path: str
    container_path: str
    content: str
