"""What the engine acts on, handed in, so that tests need no cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dra_sdk.loader import Driver
from dra_sdk.model import JSON
from dra_sdk.model.claim import Claim, ClaimRef
from dra_sdk.model.edits import ContainerEdits
from dra_sdk.model.undo import UndoStep
from dra_sdk.node.files import Files
from dra_sdk.node.locks import NamedLocks
from dra_sdk.node.prepare.allocation import Fetch, FindDevice
from dra_sdk.node.prepare.cdi_specs import CdiSpecs
from dra_sdk.node.prepare.checkpoint_store import CheckpointStore
from dra_sdk.node.prepare.claim_users import FetchPod
from dra_sdk.node.prepare.counters import FindCounters, no_counters

if TYPE_CHECKING:
    from dra_sdk.node.metadata.directory import MetadataDirectory

Announce = Callable[[ClaimRef, Sequence[JSON]], None]
Undone = Callable[[ClaimRef, Sequence[UndoStep]], None]
Variables = Callable[[Claim[Any]], Mapping[str, ContainerEdits]]


@dataclass(frozen=True, kw_only=True)
class Dependencies:
    """What the engine acts on.

    store: the checkpoints.
    cdi: the CDI specs.
    fetch: reads a ResourceClaim from the API server before the deadline.
    fetch_pod: reads a pod from there; only for claims of PodGroups.
    find_device: returns a published device by pool and name.
    find_counters: returns the counters of a pool.
    boot_id: the kernel's boot id.
    locks: locks of claims and devices.
    metadata: the device metadata files; None for drivers without `DriverInfo.metadata`.
    announce: takes the driver's entries of a claim's `status.devices`; must not block.
    undone: takes what became of the steps of an undo; must not block.
    variables: returns, for the containers of each request, the variable by which the driver's NRI plugin finds the
        claim; None for drivers that are no NRI plugin.
    """

    store: CheckpointStore
    cdi: CdiSpecs
    fetch: Fetch
    fetch_pod: FetchPod
    find_device: FindDevice
    boot_id: str
    find_counters: FindCounters = no_counters
    locks: NamedLocks = field(default_factory=NamedLocks)
    metadata: MetadataDirectory | None = None
    announce: Announce = lambda _ref, _statuses: None
    undone: Undone = lambda _ref, _steps: None
    variables: Variables | None = None

    @classmethod
    def of(
        cls,
        driver: Driver,
        data: Path,
        cdi_dir: Path,
        files: Files,
        *,
        boot_id: str,
        fetch: Fetch,
        fetch_pod: FetchPod,
        find_device: FindDevice,
        find_counters: FindCounters,
        announce: Announce,
        undone: Undone = lambda _ref, _steps: None,
        locks: NamedLocks | None = None,
    ) -> Dependencies:
        """Return what a driver with this plugin data directory acts on. InvalidObjectError for a bad CDI kind."""
        info, locks, metadata, variables = driver.info, locks or NamedLocks(), None, None
        undoable = driver.implements("dra_unprepare")
        if info.metadata:
            from dra_sdk.node.metadata.directory import MetadataDirectory  # noqa: PLC0415 (its models are for few drivers)

            metadata = MetadataDirectory(info.name, data, files)
        if driver.is_nri_plugin:
            from dra_sdk.node.nri.descriptions import claim_variables  # noqa: PLC0415 (NRI is for few drivers)

            variables = partial(claim_variables, info.name)
        shared, volatile = locks.is_shared, info.volatile
        return cls(
            store=CheckpointStore.of(data, boot_id, files, undoable=undoable, shared=shared, volatile=volatile),
            cdi=CdiSpecs(cdi_dir, info.cdi_kind, info.name, files),
            fetch=fetch,
            fetch_pod=fetch_pod,
            find_device=find_device,
            find_counters=find_counters,
            boot_id=boot_id,
            locks=locks,
            metadata=metadata,
            announce=announce,
            undone=undone,
            variables=variables,
        )
