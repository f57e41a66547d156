"""The state file of one claim: what must survive a restart, a crash, an upgrade and a downgrade.

Two lines of JSON: a header with the format version and the SHA-256 of the second line, then the body. Fields that
a newer release added are ignored, so a downgrade reads them; a higher format version is refused. Wrong bytes are
never mistaken for "no state".
"""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from dra_sdk.errors import StateError
from dra_sdk.model.claim import HeldClaim, HeldDevice
from dra_sdk.model.quantity import Quantity

FORMAT = 1


class Phase(StrEnum):
    """How far the preparation of a claim came."""

    STARTED = "PrepareStarted"
    COMPLETED = "PrepareCompleted"


class _Kept(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class DeviceState(_Kept):
    """One device of a claim; `data` is the driver's, `cdi_ids` what the kubelet was told."""

    request: str
    pool: str
    name: str
    share_id: str | None = None
    admin_access: bool = False
    consumed_capacity: dict[str, str] = {}
    data: dict[str, Any] = {}
    cdi_ids: list[str] = []

    @field_validator("consumed_capacity")
    @classmethod
    def _are_quantities(cls, amounts: dict[str, str]) -> dict[str, str]:
        for amount in amounts.values():
            Quantity(amount)
        return amounts


class MetadataState(_Kept):
    """One device metadata file: `path` under the plugin data directory, mounted at `container_path`."""

    request: str
    path: str
    container_path: str
    content: str


class ClaimState(_Kept):
    """All that is remembered of a claim.

    `cdi_spec` is the whole CDI spec and `metadata` the metadata files, to be written again if they are lost; `statuses`
    are our entries of the claim's `status.devices`.
    """

    namespace: str
    name: str
    uid: str
    boot_id: str
    phase: Phase
    devices: list[DeviceState]
    journal: list[dict[str, Any]] = []
    cdi_spec: dict[str, Any] | None = None
    metadata: list[MetadataState] = []
    statuses: list[dict[str, Any]] = []

    def held(self, boot_id: str) -> HeldClaim:
        """The claim as hooks see it, on a node whose current boot is `boot_id`."""
        devices = tuple(
            HeldDevice(
                each.request,
                each.pool,
                each.name,
                each.share_id,
                each.admin_access,
                {key: Quantity(amount) for key, amount in each.consumed_capacity.items()},
                each.data,
            )
            for each in self.devices
        )
        complete = self.phase is Phase.COMPLETED
        journal = tuple(self.journal)
        return HeldClaim(self.namespace, self.name, self.uid, devices, journal, complete, self.boot_id != boot_id)


def plain(value: Any) -> Any:
    """A deep copy of `value` exactly as a state file would give it back; ValueError where it is not JSON."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from error


def encode(state: ClaimState) -> bytes:
    """The file's content. `data` and `journal` must be JSON (see `plain`)."""
    body = json.dumps(state.model_dump(exclude_defaults=True), separators=(",", ":"), allow_nan=False).encode()
    header = {"version": FORMAT, "sha256": hashlib.sha256(body).hexdigest()}
    return json.dumps(header).encode() + b"\n" + body + b"\n"


def decode(content: bytes, source: str) -> ClaimState:
    """Read a file's content; StateError names `source` and what is wrong with it."""
    head, _, body = content.partition(b"\n")
    body = body.removesuffix(b"\n")
    try:
        header = json.loads(head)
        version, checksum = int(header["version"]), str(header["sha256"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise StateError(
            f"state file {source} has no readable header; it was not written by dra-sdk or is damaged"
        ) from error
    if version > FORMAT:
        raise StateError(f"state file {source} has format {version}, this release reads up to {FORMAT}")
    if hashlib.sha256(body).hexdigest() != checksum:
        raise StateError(f"state file {source} is damaged: its checksum does not match")
    try:
        return ClaimState.model_validate(json.loads(body))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise StateError(f"state file {source} cannot be understood: {where}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise StateError(f"state file {source} cannot be understood: {error}") from error
