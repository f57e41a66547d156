"""What is written down about a claim, and the answer that is read from it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from dra_sdk.model.claim import AllocatedDevice, PreparedDevice, base_request
from dra_sdk.model.edits import ContainerEdits
from dra_sdk.node.prepare.cdi import build_spec, name_devices, name_metadata
from dra_sdk.wire.device_status import device_status_json
from dra_sdk.wire.dra import AnsweredDevice, ClaimRef
from dra_sdk.wire.state import ClaimState, DeviceState, MetadataState, Phase


def started(ref: ClaimRef, devices: Sequence[AllocatedDevice[Any]], boot_id: str) -> ClaimState:
    """PrepareStarted: what the claim holds, before anything was done for it."""
    kept = [
        DeviceState(
            each.request,
            each.pool,
            each.name,
            each.share_id,
            each.admin_access,
            {key: str(amount) for key, amount in each.consumed_capacity.items()},
        )
        for each in devices
    ]
    return ClaimState(ref.namespace, ref.name, ref.uid, boot_id, Phase.STARTED, kept)


def completed(
    state: ClaimState,
    prepared: Sequence[PreparedDevice],
    kind: str,
    driver: str,
    *,
    metadata: Sequence[MetadataState] = (),
    mounts: Mapping[str, ContainerEdits] | None = None,
) -> ClaimState:
    """PrepareCompleted: the CDI spec of `kind` and everything else that a repeated prepare answers from.

    `mounts` are the edits that bring each request's metadata file into its containers. Raises HookError or
    InvalidObjectError for edits that make no CDI spec.
    """
    names = name_devices(state.uid, prepared)
    extra = {name_metadata(state.uid, request): edits for request, edits in (mounts or {}).items()}
    spec = build_spec(kind, names, prepared, extra)
    waiting = {request: name_metadata(state.uid, request) for request in mounts or {}}
    devices = []
    for kept, name in zip(state.devices, names, strict=True):
        both = [name, waiting.pop(base_request(kept.request), "")]  # the first device of a request brings its file
        devices.append(kept.named([f"{kind}={each}" for each in both if each]))
    return state.completed(devices, spec, list(metadata), _statuses(driver, prepared))


def answer(state: ClaimState) -> list[AnsweredDevice]:
    """What the kubelet is told of a prepared claim."""
    return [
        AnsweredDevice(base_request(each.request), each.pool, each.name, tuple(each.cdi_ids), each.share_id)
        for each in state.devices
    ]


def _statuses(driver: str, prepared: Sequence[PreparedDevice]) -> list[dict[str, Any]]:
    """One entry for each device, as the API wants it: of a device that several requests have, the last status."""
    now = datetime.now(UTC)
    found = {
        (each.pool, each.name, each.share_id): device_status_json(driver, each, each.status, now)
        for each in prepared
        if each.status is not None
    }
    return list(found.values())
