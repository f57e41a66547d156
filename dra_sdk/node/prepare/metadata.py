"""Device metadata of prepared claims, for drivers that want it: what is in the files, and when they exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dra_sdk.model.claim import Claim, PreparedDevice
from dra_sdk.model.edits import ContainerEdits
from dra_sdk.node.metadata.directory import MetadataDirectory
from dra_sdk.node.metadata.encoding import MetadataDevice
from dra_sdk.node.metadata.files import MetadataFile, claim_metadata, metadata_edits
from dra_sdk.node.prepare.files import Files
from dra_sdk.wire.dra import ClaimRef
from dra_sdk.wire.state import ClaimState, MetadataState


class ClaimMetadata:
    """The metadata files of one driver under its plugin data directory."""

    def __init__(self, driver: str, data: Path, files: Files) -> None:
        self._driver = driver
        self._directory = MetadataDirectory(driver, data, files)

    def build(self, claim: Claim[Any], prepared: Sequence[PreparedDevice]) -> list[MetadataState]:
        """The files of a claim: published attributes, and what the driver added; errors name device and limit."""
        devices = [
            MetadataDevice(
                after.request,
                after.pool,
                after.name,
                {**(before.device.attributes if before.device else {}), **after.metadata},
                after.status.network if after.status else None,
            )
            for before, after in zip(claim.devices, prepared, strict=True)
        ]
        return [
            MetadataState(
                request=each.request, path=each.path, container_path=each.container_path, content=each.content
            )
            for each in claim_metadata(self._driver, claim.raw, devices)
        ]

    def mounts(self, files: Sequence[MetadataState]) -> Mapping[str, ContainerEdits]:
        """How each request's containers get its file."""
        return metadata_edits(_files(files), self._directory.data)

    def write(self, files: Sequence[MetadataState]) -> None:
        """Write the files; ClaimError if one cannot be."""
        self._directory.write(_files(files))

    def ensure(self, state: ClaimState) -> None:
        """Write again what was lost."""
        self._directory.ensure(_files(state.metadata))

    def remove(self, ref: ClaimRef | ClaimState) -> None:
        """Remove a claim's files."""
        self._directory.remove(ref.namespace, ref.name, ref.uid)

    def sweep(self, held: Callable[[str], bool], abandoned_after: float = 0.0) -> None:
        """Remove the files of claims that are not held, by UID, and have not changed for so many seconds."""
        self._directory.sweep(held, older_than=abandoned_after)


def _files(states: Sequence[MetadataState]) -> list[MetadataFile]:
    return [MetadataFile(each.request, each.path, each.container_path, each.content) for each in states]
