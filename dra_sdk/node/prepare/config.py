"""Which opaque configuration applies to which allocated device.

Source: resource.k8s.io/v1 DeviceAllocationConfiguration. Entries of the class come before those of the claim, and
of several that match the last one wins. No `requests` means all; an entry for `req` also covers `req/sub`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dra_sdk.errors import ConfigError
from dra_sdk.model.claim import base_request
from dra_sdk.model.config import OpaqueConfig
from dra_sdk.model.driver import DriverInfo
from dra_sdk.wire.claim import Config, Result

_SOURCE = {"FromClass": "the DeviceClass", "FromClaim": "the claim"}


@dataclass(frozen=True, slots=True)
class Resolved:
    """The configurations per result (in the order of the results), and the entries of this driver that met none."""

    configs: Sequence[Sequence[OpaqueConfig]]
    unmatched: Sequence[str]


def resolve(info: DriverInfo, results: Sequence[Result], entries: Sequence[Config]) -> Resolved:
    """Decode the driver's entries and give each result those that match.

    ConfigError names entry, requests, kind and field.
    """
    ordered = sorted(enumerate(entries), key=lambda item: item[1].source == "FromClaim")
    found: list[list[OpaqueConfig]] = [[] for _ in results]
    unmatched = []
    for index, entry in ordered:
        if entry.opaque is None or entry.opaque.driver != info.name:
            continue
        label = f"config[{index}] of {_SOURCE[entry.source]}"
        if entry.requests:
            label += f" for requests {', '.join(entry.requests)}"
        config = _decode(info, entry.opaque.parameters, label)
        matching = [place for place, result in enumerate(results) if _matches(entry, result)]
        for place in matching:
            found[place].append(config)
        if not matching:
            unmatched.append(label)
    return Resolved(found, unmatched)


def default_config(info: DriverInfo) -> OpaqueConfig | None:
    """What applies where nobody configured anything; ConfigError if the driver's first kind has no defaults."""
    if not info.configs:
        return None
    try:
        return info.configs[0].decode({})
    except ConfigError as error:
        raise ConfigError(f"a {info.configs[0].kind} config is required and the claim brings none: {error}") from error


def _matches(entry: Config, result: Result) -> bool:
    return not entry.requests or result.request in entry.requests or base_request(result.request) in entry.requests


def _decode(info: DriverInfo, parameters: dict[str, Any], label: str) -> OpaqueConfig:
    given = (parameters.get("apiVersion"), parameters.get("kind"))
    for config in info.configs:
        if given == (config.api_version, config.kind):
            try:
                return config.decode(parameters)
            except ConfigError as error:
                raise ConfigError(f"{label}: {config.kind}: {error}") from error
    known = ", ".join(f"{config.api_version} {config.kind}" for config in info.configs) or "no configuration at all"
    raise ConfigError(
        f"{label}: driver {info.name} does not know apiVersion {given[0]!r} kind {given[1]!r}; it takes {known}"
    )
