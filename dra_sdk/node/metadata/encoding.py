"""From what a driver knows of its allocated devices to the text of a metadata file. Pure.

A file is a stream of JSON objects: the same document once for each API version, newest first, so that a reader
takes the first that it knows. Source: KEP-5304.
"""

from __future__ import annotations

import ipaddress
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dra_sdk.errors import InvalidObjectError, SettingsError
from dra_sdk.model.device import AttributeValue, Device
from dra_sdk.model.status import NetworkData
from dra_sdk.node.metadata.document import KIND, VERSIONS, DeviceMetadata
from dra_sdk.wire.slice import device_json
from dra_sdk.wire.validation import check_device
from dra_sdk.wire.validation.names import pool_name
from dra_sdk.wire.validation.problems import byte_length

log = logging.getLogger(__name__)
ADDRESSES_LIMIT: Final = 16
INTERFACE_NAME_LIMIT: Final = 256  # bytes
HARDWARE_ADDRESS_LIMIT: Final = 128  # bytes


@dataclass(frozen=True, slots=True)
class MetadataDevice:
    """One allocated device and what its containers may know of it.

    `request` is as allocated (`request` or `request/subrequest`). `attributes` follow the rules of a published device,
    at most 32.
    """

    request: str
    pool: str
    name: str
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    network_data: NetworkData | None = None


def known_versions(wanted: Sequence[str]) -> tuple[str, ...]:
    """Those of `wanted` that can be written, newest first; SettingsError if that is none.

    One setting may serve releases that know different versions, so the others are logged and left out.
    """
    known = tuple(each for each in VERSIONS if each in wanted)
    unknown = [each for each in wanted if each not in VERSIONS]
    if not known:
        asked = ", ".join(wanted) or "none"
        raise SettingsError(f"no version of device metadata can be written: asked for {asked}, known {VERSIONS}")
    if unknown:
        log.warning("device metadata is not written as %s, which this release does not know", ", ".join(unknown))
    return known


def entry(driver: str, device: MetadataDevice) -> dict[str, Any]:
    """The document's entry of one device; InvalidObjectError names the device and what breaks a limit."""
    fields = device_json(Device(device.name, device.attributes), driver)
    check_device(fields, driver)
    problems = [str(problem) for problem in pool_name(device.pool, "pool")]
    found = {"driver": driver, "pool": device.pool, **fields}
    if device.network_data is not None:
        problems += _network_problems(device.network_data)
        found["networkData"] = _network(device.network_data)
    if problems:
        raise InvalidObjectError(f"metadata of device {device.pool}/{device.name}", problems)
    return {key: found[key] for key in ("driver", "pool", "name", "attributes", "networkData") if key in found}


def encode(document: DeviceMetadata, versions: Sequence[str] = VERSIONS) -> str:
    """The text of the file."""
    body = document.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    objects = ({"kind": KIND, "apiVersion": version, **body} for version in versions)
    return "".join(f"{json.dumps(each, indent=2)}\n" for each in objects)


def _network(data: NetworkData) -> dict[str, Any]:
    fields = {
        "interfaceName": data.interface_name,
        "ips": list(data.ips),
        "hardwareAddress": data.hardware_address,
    }
    return {key: value for key, value in fields.items() if value}


def _network_problems(data: NetworkData) -> Iterator[str]:
    limits = (
        ("interface_name", data.interface_name, INTERFACE_NAME_LIMIT),
        ("hardware_address", data.hardware_address, HARDWARE_ADDRESS_LIMIT),
    )
    for name, text, limit in limits:
        if byte_length(text) > limit:
            yield f"network_data.{name}: must be at most {limit} bytes, has {byte_length(text)}"
    if len(data.ips) > ADDRESSES_LIMIT:
        yield f"network_data.ips: must have at most {ADDRESSES_LIMIT} addresses, has {len(data.ips)}"
    for index, address in enumerate(data.ips):
        if address in data.ips[:index]:
            yield f"network_data.ips[{index}]: {address} is there twice"
        elif not _is_usual(address):
            yield f"network_data.ips[{index}]: must be an address with a prefix such as 10.9.8.7/24, is {address!r}"


def _is_usual(address: str) -> bool:
    """Whether this is `address/prefix` as everybody writes it."""
    try:
        interface = ipaddress.ip_interface(address)
    except ValueError:
        return False
    mapped = interface.version == 6 and interface.ipv4_mapped is not None  # noqa: PLR2004 (IPv6)
    return not mapped and "%" not in address and address == interface.with_prefixlen
