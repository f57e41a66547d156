"""The state file of one claim: what must survive a restart, a crash, an upgrade and a downgrade.

Two lines of JSON: a header with the format version and the SHA-256 of the second line, then the body. Fields that
a newer release added are ignored, so a downgrade reads them; a higher format version is refused. Wrong bytes are
never mistaken for "no state".
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Final

from pydantic import AfterValidator, TypeAdapter, ValidationError

from dra_sdk.errors import StateError
from dra_sdk.model import JSON
from dra_sdk.model.claim import HeldClaim, HeldDevice
from dra_sdk.model.quantity import Quantity

FORMAT = 1
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


class Phase(StrEnum):
    """How far the preparation of a claim came."""

    STARTED = "PrepareStarted"
    COMPLETED = "PrepareCompleted"


def _are_quantities(amounts: dict[str, str]) -> dict[str, str]:
    for amount in amounts.values():
        Quantity(amount)
    return amounts


@dataclass(frozen=True, slots=True)
class DeviceState:
    """One device of a claim; `data` is the driver's, `cdi_ids` what the kubelet was told."""

    request: str
    pool: str
    name: str
    share_id: str | None = None
    admin_access: bool = False
    consumed_capacity: Annotated[dict[str, str], AfterValidator(_are_quantities)] = field(default_factory=dict)
    data: JSON = field(default_factory=dict)
    cdi_ids: list[str] = field(default_factory=list)

    def named(self, cdi_ids: list[str]) -> DeviceState:
        """The same device with its CDI ids; `dataclasses.replace` takes four times as long."""
        return DeviceState(
            self.request,
            self.pool,
            self.name,
            self.share_id,
            self.admin_access,
            self.consumed_capacity,
            self.data,
            cdi_ids,
        )


@dataclass(frozen=True, slots=True)
class MetadataState:
    """One device metadata file: `path` under the plugin data directory, mounted at `container_path`."""

    request: str
    path: str
    container_path: str
    content: str


@dataclass(frozen=True, slots=True)
class ClaimState:
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
    journal: list[JSON] = field(default_factory=list)
    cdi_spec: JSON | None = None
    metadata: list[MetadataState] = field(default_factory=list)
    statuses: list[JSON] = field(default_factory=list)

    def completed(
        self, devices: list[DeviceState], cdi_spec: JSON | None, metadata: list[MetadataState], statuses: list[JSON]
    ) -> ClaimState:
        """The same claim when it is prepared."""
        return ClaimState(
            self.namespace,
            self.name,
            self.uid,
            self.boot_id,
            Phase.COMPLETED,
            devices,
            self.journal,
            cdi_spec,
            metadata,
            statuses,
        )

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
    if type(value) is dict and not value:
        return {}
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from error


def encode(state: ClaimState) -> bytes:
    """The file's content, without what is empty. `data` and `journal` must be JSON (see `plain`)."""
    body = _ENCODER.encode(_claim(state)).encode()
    return b'{"version": %d, "sha256": "%s"}\n%s\n' % (FORMAT, hashlib.sha256(body).hexdigest().encode(), body)


def _claim(state: ClaimState) -> JSON:
    """The state as JSON; by hand, because what every prepare waits for takes a generic way three times as long."""
    body: JSON = {
        "namespace": state.namespace,
        "name": state.name,
        "uid": state.uid,
        "boot_id": state.boot_id,
        "phase": state.phase,
        "devices": [_device(each) for each in state.devices],
    }
    if state.journal:
        body["journal"] = state.journal
    if state.cdi_spec is not None:
        body["cdi_spec"] = state.cdi_spec
    if state.metadata:
        body["metadata"] = [asdict(each) for each in state.metadata]
    if state.statuses:
        body["statuses"] = state.statuses
    return body


def _device(state: DeviceState) -> JSON:
    body: JSON = {"request": state.request, "pool": state.pool, "name": state.name}
    if state.share_id is not None:
        body["share_id"] = state.share_id
    if state.admin_access:
        body["admin_access"] = True
    if state.consumed_capacity:
        body["consumed_capacity"] = state.consumed_capacity
    if state.data:
        body["data"] = state.data
    if state.cdi_ids:
        body["cdi_ids"] = state.cdi_ids
    return body


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
        return _reader().validate_python(json.loads(body))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise StateError(f"state file {source} cannot be understood: {where}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise StateError(f"state file {source} cannot be understood: {error}") from error


@cache
def _reader() -> TypeAdapter[ClaimState]:
    """Checks every field; made when the first file is read, because most starts find none."""
    return TypeAdapter(ClaimState)
