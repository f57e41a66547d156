"""The checkpoint of one claim: what must survive a restart, a crash, an upgrade and a downgrade.

Two lines of JSON. The first is a header: format version, the SHA-256 of the second line, and the devices of the claim,
with their own checksum. The second is the checkpoint. So the devices are known even if the end of a file is lost. What
no checksum confirms is not trusted. Unknown fields of a newer release are ignored, so a downgrade can read the file; a
higher format version is refused. A damaged file never counts as "no state". `docs/state.md` describes the format.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from dra_sdk.errors import HookError, StateError
from dra_sdk.model import JSON
from dra_sdk.model.claim import AllocatedDevice, ClaimRef, Deadline, HeldClaim, HeldDevice, PreparedDevice
from dra_sdk.model.device import CounterConsumption
from dra_sdk.model.edits import ContainerEdits
from dra_sdk.model.quantity import Quantity
from dra_sdk.model.status import DeviceStatus
from dra_sdk.node.metadata import MetadataFile
from dra_sdk.node.prepare import env_lists
from dra_sdk.node.prepare.cdi_specs import build_spec, metadata_device_name, name_devices, request_device_name
from dra_sdk.wire.cdi import parse_qualified_name, qualified_name

FORMAT: Final = 1
_CONDITION_STATUS: Final = {True: "True", False: "False", None: "Unknown"}


class ClaimPhase(StrEnum):
    """The state of a claim's preparation."""

    STARTED = "PrepareStarted"
    COMPLETED = "PrepareCompleted"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything that is recorded of a claim.

    claim: the claim as hooks see it in the boot in which this was written.
    boot_id: the kernel's boot id when it was written. With another one the claim must be prepared again.
    cdi_spec: the whole CDI spec, to be written again if it is lost; None if its devices change no container.
    metadata: the device metadata files (KEP-5304), to be written again if they are lost.
    statuses: the driver's entries of the claim's `status.devices`.
    refused: the steps that held the claim at the last attempt to undo it, each `[name, reason]`.
    """

    claim: HeldClaim
    boot_id: str
    cdi_spec: JSON | None = None
    metadata: tuple[MetadataFile, ...] = ()
    statuses: tuple[JSON, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return str(self.claim)

    @property
    def ref(self) -> ClaimRef:
        """The claim as the kubelet names it."""
        return ClaimRef(self.claim.namespace, self.claim.name, self.claim.uid)

    @property
    def phase(self) -> ClaimPhase:
        """The state of the claim's preparation."""
        return ClaimPhase.COMPLETED if self.claim.complete else ClaimPhase.STARTED

    @property
    def device_locks(self) -> set[str]:
        """The names of the locks of its devices."""
        return {f"device/{device.pool}/{device.name}" for device in self.claim.devices}

    @property
    def counter_locks(self) -> set[str]:
        """The names of the locks of the counter sets that its devices take from."""
        return {f"counters/{device.pool}/{name}" for device in self.claim.devices for name in device.consumes}

    @classmethod
    def started(
        cls, ref: ClaimRef, devices: Sequence[AllocatedDevice[Any]], boot_id: str, pods: Sequence[str] = ()
    ) -> Checkpoint:
        """Return PrepareStarted: the devices of the claim, before anything is changed for it."""
        held = tuple(
            HeldDevice(
                device.request,
                device.pool,
                device.name,
                device.share_id,
                device.admin_access,
                device.consumed_capacity,
                consumes=consumption_of(device.device.consumes) if device.device and not device.admin_access else {},
            )
            for device in devices
        )
        return cls(HeldClaim(ref.namespace, ref.name, ref.uid, held, complete=False, pods=tuple(pods)), boot_id)

    def undoing(self) -> Checkpoint:
        """Return the same in PrepareStarted, because a half-undone claim is not prepared."""
        return replace(self, claim=replace(self.claim, complete=False))

    def used_by(self, pods: Iterable[str]) -> Checkpoint:
        """Return the same with other pods that use the claim, by their UIDs."""
        return replace(self, claim=replace(self.claim, pods=tuple(pods)))

    def completed(
        self,
        prepared: Sequence[PreparedDevice],
        kind: str,
        driver: str,
        *,
        metadata: Sequence[MetadataFile] = (),
        mounts: Mapping[str, ContainerEdits] | None = None,
        variables: Mapping[str, ContainerEdits] | None = None,
    ) -> Checkpoint:
        """Return PrepareCompleted, with the CDI spec of `kind` and everything else that a repeated prepare needs.

        `mounts` are the edits that bring each request's metadata file into its containers, `variables` those that tell
        the driver's NRI plugin which requests a container uses. Raises HookError or InvalidObjectError for edits that
        make no CDI spec.
        """
        claim, statuses = self.claim, tuple(_statuses(driver, prepared))
        of_requests = dict(variables or {})
        if any(map(env_lists.FILLS, prepared)):
            for request, joined in env_lists.by_request(prepared).items():
                of_requests[request] = of_requests.get(request, ContainerEdits()) + joined
        of_others = [_cdi_devices_of_others(kind, device) for device in prepared]
        names = name_devices(claim.uid, prepared)
        extra: dict[str, ContainerEdits] = {}
        of_request: dict[str, list[str]] = {}
        for device_name, edits_by_request in ((metadata_device_name, mounts), (request_device_name, of_requests)):
            for request, edits in (edits_by_request or {}).items():
                extra[device_name(claim.uid, request)] = edits
                of_request.setdefault(request, []).append(device_name(claim.uid, request))
        spec = build_spec(kind, names, prepared, extra)
        devices = []
        for held, device, name, others in zip(claim.devices, prepared, names, of_others, strict=True):
            own = [name] if name else []
            if of_request:  # the first device of a request has those of the request
                own += of_request.pop(held.base_request, [])
            cdi_ids = *(qualified_name(kind, cdi_name) for cdi_name in own), *others
            lists = env_lists.device_lists(device) if device.edits.env_lists else {}
            devices.append(replace(held, cdi_ids=cdi_ids, env_lists=lists))
        return replace(
            self,
            claim=replace(claim, devices=tuple(devices), complete=True),
            cdi_spec=spec,
            metadata=tuple(metadata),
            statuses=statuses,
        )

    def reported(self, driver: str, device: HeldDevice, status: DeviceStatus) -> Checkpoint:
        """Return the checkpoint with another status of a device. A condition that stays keeps its transition time."""
        made = _status_json(driver, device, status, _now())
        earlier = {_status_key(entry): entry for entry in self.statuses}
        conditions = earlier.get(_status_key(made), {}).get("conditions", ())
        times = {(known["type"], known["status"]): known["lastTransitionTime"] for known in conditions}
        for condition in made.get("conditions", ()):
            known_since = times.get((condition["type"], condition["status"]))
            condition["lastTransitionTime"] = known_since or condition["lastTransitionTime"]
        return replace(self, statuses=tuple({**earlier, _status_key(made): made}.values()))

    def held(self, boot_id: str, deadline: Deadline | None = None) -> HeldClaim:
        """Return the claim as hooks see it now; `boot_id` is that of the current boot."""
        claim = self.claim if self.boot_id == boot_id else replace(self.claim, rebooted=True)
        return replace(claim, deadline=deadline) if deadline else claim


def consumption_of(consumes: Iterable[CounterConsumption]) -> Mapping[str, Mapping[str, Quantity]]:
    """Return what a device takes (`Device.consumes`), by counter set and counter."""
    return {
        consumed.counter_set: {name: Quantity(amount) for name, amount in consumed.counters.items()}
        for consumed in consumes
    }


def _cdi_devices_of_others(kind: str, device: PreparedDevice) -> tuple[str, ...]:
    """Return the CDI devices of others that a device brings along. InvalidObjectError if a name is not qualified."""
    for name in device.cdi_devices:
        parse_qualified_name(name)
        if name.startswith(f"{kind}="):
            raise HookError(f"dra_prepare gave the CDI device {name!r} of another, but its kind is the driver's own")
    return tuple(device.cdi_devices)


def refuse_taken_names(state: Checkpoint, kind: str, others: Iterable[Checkpoint]) -> None:
    """Raise HookError if a CDI device of `kind` in `state` has the same name as one of another claim.

    Runtimes would ignore both. CDI devices of others, which have another kind, may be in any number of claims.
    """
    ids = {cdi_id for device in state.claim.devices for cdi_id in device.cdi_ids}
    mine = {cdi_id for cdi_id in ids if cdi_id.startswith(f"{kind}=")}
    for other in others:
        for name in (name for device in other.claim.devices for name in device.cdi_ids if name in mine):
            raise HookError(
                f"dra_prepare gave the CDI name {name.partition('=')[2]!r}, which a device of {other} has; "
                f"a claim's UID in it would tell them apart"
            )


def json_copy(value: Any) -> Any:
    """Return a deep copy of `value` as it is read from a state file. ValueError if it is not JSON."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except RecursionError as error:
        raise ValueError("is not JSON: nested too deeply") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"is not JSON: {error}") from error


def encode(state: Checkpoint) -> bytes:
    """Return the file's content, without empty fields. `data` and `journal` must be JSON (see `json_copy`)."""
    body = _ENCODER.encode(_body(state)).encode()
    claim = state.claim
    devices = [[held.request, held.pool, held.name, held.share_id, held.admin_access] for held in claim.devices]
    known = json.dumps([claim.namespace, claim.name, claim.uid, state.boot_id, devices])
    sums = _sum(body), _sum(known.encode())
    header = f'{{"version": {FORMAT}, "sha256": "{sums[0]}", "claim": {known}, "claim_sha256": "{sums[1]}"}}'
    return b"%s\n%s\n" % (header.encode(), body)


def decode(content: bytes, source: str) -> Checkpoint:
    """Read a file's content. StateError names `source` and the problem."""
    header, body = _parts(content)
    try:
        version, checksum = int(header["version"]), str(header["sha256"])
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise StateError(
            f"state file {source} has no readable header; it was not written by dra-sdk or is damaged"
        ) from error
    if version > FORMAT:
        raise StateError(f"state file {source} has format {version}, this release reads up to {FORMAT}")
    if _sum(body) != checksum:
        raise StateError(f"state file {source} is damaged: its checksum does not match")
    try:
        return _checkpoint(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise StateError(f"state file {source} cannot be understood: {where}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise StateError(f"state file {source} cannot be understood: {error}") from error


def format_of(content: bytes) -> int | None:
    """Return the format version of a file's content; None if its header cannot be read."""
    try:
        return int(_parts(content)[0]["version"])
    except (ValueError, TypeError, KeyError, OverflowError):
        return None


def salvage(content: bytes) -> Checkpoint | None:
    """Return the claim of a file that `decode` refuses, in PrepareStarted and without its data: it still holds devices.

    It comes from the header if the header's own checksum is right, otherwise from the body if the header confirms its
    checksum. None if neither can be trusted: then the devices of the claim are unknown.
    """
    header, body = _parts(content)
    for read in (_header_claim, _body_claim):
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            if state := read(header, body):
                devices = tuple(replace(device, data={}, cdi_ids=()) for device in state.claim.devices)
                claim = HeldClaim(state.claim.namespace, state.claim.name, state.claim.uid, devices, complete=False)
                return Checkpoint(claim, state.boot_id)
    return None


@cache
def _fields(kind: Any) -> tuple[tuple[str, bool], ...]:
    """Return the fields of a dataclass, each with whether it has no default and so is always written."""
    return tuple((one.name, one.default is MISSING and one.default_factory is MISSING) for one in fields(kind))


def _json_of(value: Any) -> Any:
    """Return a dataclass as a JSON object without empty fields; a quantity is text."""
    if isinstance(value, Quantity):
        return str(value)
    return {name: item for name, required in _fields(value.__class__) if (item := getattr(value, name)) or required}


_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_json_of)


def _parts(content: bytes) -> tuple[Any, bytes]:
    """Return the header as JSON, None if it is none, and the bytes of the body."""
    head, _, body = content.partition(b"\n")
    try:
        header = json.loads(head)
    except (ValueError, RecursionError):
        header = None
    return header, body.removesuffix(b"\n")


def _header_claim(header: Any, _body: bytes) -> Checkpoint | None:
    if _sum(json.dumps(header["claim"]).encode()) != header["claim_sha256"]:
        return None
    namespace, name, uid, boot_id, held = header["claim"]
    devices = tuple(HeldDevice(*device) for device in held)
    return Checkpoint(HeldClaim(namespace, name, uid, devices, complete=False), boot_id)


def _body_claim(header: Any, body: bytes) -> Checkpoint | None:
    return _checkpoint(body) if header["sha256"] == _sum(body) else None


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, slots=True)
class _Body:
    """The second line of a file, for reading it; `_body` writes it."""

    namespace: str
    name: str
    uid: str
    boot_id: str
    phase: ClaimPhase
    devices: tuple[HeldDevice, ...]
    journal: tuple[JSON, ...] = ()
    cdi_spec: JSON | None = None
    metadata: tuple[MetadataFile, ...] = ()
    statuses: tuple[JSON, ...] = ()
    pods: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()


def _body(state: Checkpoint) -> JSON:
    claim = state.claim
    names = {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid, "boot_id": state.boot_id}
    more = _filled(journal=claim.journal, cdi_spec=state.cdi_spec, metadata=state.metadata, statuses=state.statuses)
    more |= _filled(pods=claim.pods, refused=state.refused)
    return {**names, "phase": state.phase, "devices": claim.devices, **more}


def _checkpoint(content: bytes) -> Checkpoint:
    """Return the checkpoint that a body holds. ValidationError or ValueError if it holds none."""
    body: _Body = _adapter().validate_python(json.loads(content))
    complete = body.phase is ClaimPhase.COMPLETED
    claim = HeldClaim(body.namespace, body.name, body.uid, body.devices, body.journal, complete, pods=body.pods)
    return Checkpoint(claim, body.boot_id, body.cdi_spec or None, body.metadata, body.statuses, body.refused)


@cache
def _adapter() -> TypeAdapter[_Body]:
    """Return what checks every field. It is made when the first file is read, because most starts find no file."""
    return TypeAdapter(_Body)


def _statuses(driver: str, prepared: Sequence[PreparedDevice]) -> list[JSON]:
    """Return an entry of `status.devices` for each device. If several requests have it, the last status counts."""
    reported = [(device, device.status) for device in prepared if device.status is not None]
    now = _now() if reported else ""
    entries = {
        (device.pool, device.name, device.share_id): _status_json(driver, device, status, now)
        for device, status in reported
    }
    return list(entries.values())


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _status_key(entry: JSON) -> tuple[str, str, str | None]:
    return entry["pool"], entry["device"], entry.get("shareID")


def _status_json(driver: str, device: PreparedDevice | HeldDevice, status: DeviceStatus, now: str) -> JSON:
    """Return the entry of one device (AllocatedDeviceStatus); `now` becomes the transition time of its conditions."""
    network = status.network
    conditions = [
        {
            "type": condition.type,
            "status": _CONDITION_STATUS[condition.status],
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": now,
        }
        for condition in status.conditions
    ]
    fields = {
        "driver": driver,
        "pool": device.pool,
        "device": device.name,
        "shareID": device.share_id,
        "conditions": conditions,
        "data": dict(status.data),
        "networkData": network
        and _filled(
            interfaceName=network.interface_name, hardwareAddress=network.hardware_address, ips=list(network.ips)
        ),
    }
    return _filled(**fields)


def _filled(**fields: Any) -> JSON:
    """Return the fields that are not empty."""
    return {key: value for key, value in fields.items() if value}
