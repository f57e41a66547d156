"""From a ResourceClaim to the devices that this driver prepares, each with its configuration. Pure.

Source: resource.k8s.io/v1 ResourceClaimStatus, AllocationResult, DeviceAllocationConfiguration; KEP-4381. The claim is
read leniently: a newer API server may send fields that are not known here, and null stands for an absent field.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from dra_sdk.errors import ClaimError, ConfigError, DeviceHeldError, StateError
from dra_sdk.model import JSON
from dra_sdk.model.claim import AllocatedDevice, ClaimConfig, ClaimRef, Deadline, base_request
from dra_sdk.model.class_fields import CLASS_ONLY, given, inherited
from dra_sdk.model.config import OpaqueConfig, config_class
from dra_sdk.model.device import Device
from dra_sdk.model.driver import DriverInfo
from dra_sdk.node.prepare.checkpoint import Checkpoint
from dra_sdk.node.prepare.state_files import Unreadable
from dra_sdk.wire.resource.claims import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceRequestAllocationResult,
    ResourceClaimStatus,
)
from dra_sdk.wire.resource.metadata import NodeSelector

log = logging.getLogger(__name__)
Fetch = Callable[[ClaimRef, Deadline], JSON]
"""Reads a ResourceClaim from the API server before the deadline."""
FindDevice = Callable[[str, str], Device | None]
"""Returns a published device by pool and name."""
Allocated = AllocatedDevice[OpaqueConfig | None]
_CLASS: Final = "FromClass"
_SOURCES: Final = {_CLASS: "the DeviceClass", "FromClaim": "the claim"}  # in the order of precedence


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a claim wants of this driver.

    ref: the claim as the kubelet names it.
    raw: the ResourceClaim as the API server returned it.
    devices: the devices, in allocation order.
    configs: the driver's entries of configuration.
    """

    ref: ClaimRef
    raw: JSON
    devices: Sequence[Allocated]
    configs: Sequence[ClaimConfig]


def read_status(raw: JSON, ref: ClaimRef) -> ResourceClaimStatus:
    """Return the status of a ResourceClaim. ClaimError if it is not the claim of `ref`, or names the invalid field."""
    metadata = raw.get("metadata")
    if not isinstance(metadata, dict):
        raise ClaimError("the API server's answer is not a ResourceClaim: it has no metadata")
    uid = metadata.get("uid")
    if uid != ref.uid:
        raise ClaimError(f"the claim was replaced: it has UID {uid} now")
    try:
        status = raw.get("status")
        return ResourceClaimStatus.model_validate({} if status is None else status, extra="ignore")
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(["status", *(str(part) for part in first["loc"])])
        raise ClaimError(f"the API server's answer is not a ResourceClaim: {field}: {first['msg']}") from error


def read(
    info: DriverInfo, node: str, ref: ClaimRef, raw: JSON, status: ResourceClaimStatus, *, find_device: FindDevice
) -> Wanted:
    """Return what a claim, of which `status` is decoded, wants of this driver; each device with its configuration.

    Raises ClaimError for a claim that is not allocated, is allocated for another node, holds nothing of this driver, or
    holds a device that the driver does not publish; ConfigError for configuration that cannot be used.
    """
    allocation = status.allocation
    if allocation is None:
        raise ClaimError("the claim is not allocated")
    _check_node(allocation, node)
    results = [result for result in allocation.devices.results or () if result.driver == info.name]
    if not results:
        raise ClaimError(f"the claim's allocation holds no device of driver {info.name}")
    entries = allocation.devices.config or ()
    chains = resolve_configs(info, ref, results, entries)
    configs = claim_configs(info, entries)
    devices = tuple(_device(info, result, chain, find_device) for result, chain in zip(results, chains, strict=True))
    return Wanted(ref, raw, devices, configs)


def resolve_configs(
    info: DriverInfo,
    ref: ClaimRef,
    results: Sequence[DeviceRequestAllocationResult],
    entries: Sequence[DeviceAllocationConfiguration],
) -> list[list[OpaqueConfig]]:
    """Return the driver's entries that apply to each result, decoded; the last one takes precedence.

    Entries of the class come before those of the claim, and what only they may set holds in those of the claim too. An
    entry without requests applies to all, one for `req` to `req/sub` as well. Entries that match no device are logged.
    ConfigError names entry, requests, kind and field.
    """
    resolved: list[list[OpaqueConfig]] = [[] for _ in results]
    of_class: dict[tuple[int, type[OpaqueConfig]], JSON] = {}
    for entry in entries:
        if entry.source not in _SOURCES:
            raise ClaimError(f"a configuration of the claim has source {entry.source!r}, want {' or '.join(_SOURCES)}")
    for label, entry, parameters in _own_entries(info, entries):
        config = _decoded(info, parameters, label)
        matching = [place for place, result in enumerate(results) if _matches(entry, result)]
        _refuse_class_only(info, entry, parameters, label)
        for place in matching:
            which = place, type(config)
            if entry.source == _CLASS:
                of_class[which] = parameters
            merged = inherited(parameters, of_class.get(which, {}), info.class_only)
            resolved[place].append(config if merged == parameters else _decoded(info, merged, label))
        if not matching:
            log.warning("%s: %s applies to none of its devices", ref, label)
    return resolved


def claim_configs(info: DriverInfo, entries: Sequence[DeviceAllocationConfiguration]) -> tuple[ClaimConfig, ...]:
    """Return the driver's entries, which `resolve_configs` has decoded."""
    return tuple(
        ClaimConfig(label, tuple(entry.requests or ()), parameters["kind"])
        for label, entry, parameters in _own_entries(info, entries)
    )


def _own_entries(
    info: DriverInfo, entries: Sequence[DeviceAllocationConfiguration]
) -> Iterator[tuple[str, DeviceAllocationConfiguration, Any]]:
    """Yield the driver's entries in the order of precedence, each with its name in messages and its parameters."""
    for index, entry in sorted(enumerate(entries), key=lambda item: item[1].source == "FromClaim"):
        if entry.opaque is not None and entry.opaque.driver == info.name:
            label = f"config[{index}] of {_SOURCES[entry.source]}"
            if entry.requests:
                label += f" for requests {', '.join(entry.requests)}"
            yield label, entry, entry.opaque.parameters


def default_config(info: DriverInfo) -> OpaqueConfig | None:
    """Return the driver's first kind of configuration, for none. ConfigError if it has fields without default."""
    if not info.configs:
        return None
    try:
        return info.configs[0].decode({})
    except ConfigError as error:
        raise ConfigError(f"a {info.configs[0].kind} config is required, and the claim has none: {error}") from error


def refuse_taken(devices: Sequence[Allocated], unreadable: Iterable[Unreadable], holders: Iterable[Checkpoint]) -> None:
    """Raise DeviceHeldError or StateError as `refuse_unreadable` and `refuse_held`."""
    refuse_unreadable(devices, unreadable)
    refuse_held(devices, holders)


def refuse_held(devices: Iterable[Allocated], others: Iterable[Checkpoint]) -> None:
    """Raise DeviceHeldError if a device is held by another claim and cannot be shared with it.

    The scheduler normally prevents this, except after a lost or stale allocation. Two claims may
    hold a device together if one of them has admin access, or both hold shares of it (KEP-5075, `shareID`).
    """
    only_shares: dict[tuple[str, str], bool] = {}
    for mine in devices:
        if not mine.admin_access:
            key = mine.pool, mine.name
            only_shares[key] = bool(mine.share_id) and only_shares.get(key, True)
    for other in others:
        for held in other.claim.devices:
            share = only_shares.get((held.pool, held.name))
            if share is None or held.admin_access or (share and held.share_id):
                continue
            raise DeviceHeldError(f"device {held.pool}/{held.name} is held by {other}")


def refuse_unreadable(devices: Sequence[Allocated], unreadable: Iterable[Unreadable]) -> None:
    """Raise DeviceHeldError if a claim whose state file cannot be read holds a device, as `refuse_held`.

    StateError for a file that does not tell what its claim holds: that may be any device.
    """
    for file in unreadable:
        if file.state is None:
            raise StateError(
                f"{file.advice}; it does not say which devices its claim holds, so no claim gets a device until then"
            )
        try:
            refuse_held(devices, [file.state])
        except DeviceHeldError as error:
            raise DeviceHeldError(f"{error}: {file.advice}") from error


def _check_node(allocation: AllocationResult, node: str) -> None:
    """Raise ClaimError if the allocation's node selector names only other nodes. Labels are not checked."""
    selector = allocation.node_selector or NodeSelector()
    terms = selector.node_selector_terms or ()
    named = [_node_names(term.match_fields) for term in terms]
    if terms and all(names is not None and node not in names for names in named):
        listed = ", ".join(sorted({name for names in named for name in names or ()}))
        raise ClaimError(f"the claim is allocated for node {listed}, this is {node}")


def _node_names(requirements: Any) -> set[str] | None:
    """Return the nodes that a selector term names, None if it names none."""
    for requirement in requirements or ():
        if (requirement.key, requirement.operator) == ("metadata.name", "In"):
            return set(requirement.values or ())
    return None


def _matches(entry: DeviceAllocationConfiguration, result: DeviceRequestAllocationResult) -> bool:
    requests = entry.requests
    return not requests or result.request in requests or base_request(result.request) in requests


def _decoded(info: DriverInfo, parameters: Any, label: str) -> OpaqueConfig:
    if not isinstance(parameters, dict):
        raise ConfigError(f"{label}: its parameters must be an object, are {parameters!r:.80}")
    config = config_class(info.configs, parameters)
    if config is None:
        known = ", ".join(f"{kind.api_version} {kind.kind}" for kind in info.configs) or "no configuration at all"
        raise ConfigError(
            f"{label}: driver {info.name} does not know apiVersion {parameters.get('apiVersion')!r} "
            f"kind {parameters.get('kind')!r}; it takes {known}"
        )
    try:
        return config.decode(parameters)
    except ConfigError as error:
        raise ConfigError(f"{label}: {config.kind}: {error}") from error


def _refuse_class_only(info: DriverInfo, entry: DeviceAllocationConfiguration, parameters: JSON, label: str) -> None:
    if entry.source != _CLASS and (wrong := given(parameters, info.class_only)):
        raise ConfigError(f"{label}: {parameters['kind']}: {', '.join(wrong)} {CLASS_ONLY}")


def _device(
    info: DriverInfo,
    result: DeviceRequestAllocationResult,
    configs: Sequence[OpaqueConfig],
    find_device: FindDevice,
) -> Allocated:
    chain: tuple[OpaqueConfig | None, ...] = tuple(configs) or (default_config(info),)
    device = find_device(result.pool, result.device)
    if device is None:  # it was unplugged, or never existed; KEP-4381: the driver must check
        raise ClaimError(f"device {result.pool}/{result.device} is not among those that driver {info.name} publishes")
    return AllocatedDevice(
        result.request,
        result.pool,
        result.device,
        chain[-1],
        chain,
        device,
        result.share_id or None,
        bool(result.admin_access),
        result.consumed_capacity or {},
    )
