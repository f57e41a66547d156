"""The document in a metadata file: the devices of one claim by request, in every version of the API.

A file is a stream of JSON objects: the same document once for each API version, newest first, so that a reader takes
the first that it knows. Both versions have the same fields. The models read leniently, because a newer driver may say
more than is known here, and null is an absent field. Source: KEP-5304; metadata.resource.k8s.io types DeviceMetadata,
DeviceMetadataRequest, Device; resource.k8s.io/v1 types DeviceAttribute and NetworkDeviceData.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from dra_sdk.errors import InvalidObjectError
from dra_sdk.model import JSON
from dra_sdk.model.claim import PreparedDevice
from dra_sdk.model.device import AttributeValue, Version
from dra_sdk.model.device import Device as PublishedDevice
from dra_sdk.model.status import NetworkData
from dra_sdk.wire.slice import device_json
from dra_sdk.wire.validation import check_device
from dra_sdk.wire.validation.names import pool_name
from dra_sdk.wire.validation.problems import byte_length

GROUP: Final = "metadata.resource.k8s.io"
KIND: Final = "DeviceMetadata"
#: API versions that are written and read, newest first.
VERSIONS: Final = (f"{GROUP}/v1beta1", f"{GROUP}/v1alpha1")
ADDRESSES_LIMIT: Final = 16
INTERFACE_NAME_LIMIT: Final = 256  # bytes
HARDWARE_ADDRESS_LIMIT: Final = 128  # bytes
ATTRIBUTES_LIMIT: Final = 32
"""How many attributes a device may have; a list counts as one, and releases differ in how many items are allowed."""


class _MetadataModel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        return {key: item for key, item in value.items() if item is not None} if isinstance(value, dict) else value


class Attribute(_MetadataModel):
    """One attribute; exactly one field is set, that of its type."""

    bool_value: bool | None = Field(default=None, alias="bool")
    int_value: int | None = Field(default=None, alias="int")
    string: str | None = None
    version: str | None = None
    bools: list[bool] | None = None
    ints: list[int] | None = None
    strings: list[str] | None = None
    versions: list[str] | None = None

    @property
    def value(self) -> AttributeValue | None:
        """The value as a driver's author writes it; None if its type is not known here."""
        if self.version is not None:
            return Version(self.version)
        if self.versions is not None:
            return [Version(text) for text in self.versions]
        known = (self.bool_value, self.int_value, self.string, self.bools, self.ints, self.strings)
        return next((value for value in known if value is not None), None)


class NetworkDeviceData(_MetadataModel):
    """How a network device looks in the pod; `ips` are addresses with a prefix such as `10.9.8.7/24`."""

    interface_name: str | None = None
    ips: list[str] = []
    hardware_address: str | None = None


class Device(_MetadataModel):
    """One allocated device."""

    driver: str
    pool: str
    name: str
    attributes: dict[str, Attribute] = {}
    network_data: NetworkDeviceData | None = None


class DeviceMetadataRequest(_MetadataModel):
    """The devices of one request, or of `request/subrequest` where alternatives were asked for."""

    name: str
    devices: list[Device] = []


class Identity(_MetadataModel):
    """The identity of the claim; `generation` begins with 1 and grows with each change."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0


class DeviceMetadata(_MetadataModel):
    """One document; `pod_claim_name` is the claim's name in its pod if the claim was made from a template."""

    metadata: Identity = Identity()
    pod_claim_name: str | None = None
    requests: list[DeviceMetadataRequest] = []

    def request(self, name: str) -> DeviceMetadataRequest | None:
        """Return the entry of a request, None if there is none of this name."""
        return next((request for request in self.requests if request.name == name), None)

    def encode(self, versions: Sequence[str] = VERSIONS) -> str:
        """Return the text of the file: a line for each version. Indented, it takes six times as long."""
        return encode(self.model_dump(mode="json", by_alias=True, exclude_defaults=True), versions)


def encode(fields: JSON, versions: Sequence[str] = VERSIONS) -> str:
    """Return the text of a file with these fields, which are the same in each version, so they are encoded once."""
    body = json.dumps(fields).removeprefix("{")
    heads = (json.dumps({"kind": KIND, "apiVersion": version}).removesuffix("}") for version in versions)
    return "".join(f"{head}, {body}\n" for head in heads)


def device_entry(driver: str, device: PreparedDevice) -> JSON:
    """Return the document's entry of one device. InvalidObjectError names the device and the field that breaks a limit.

    Its attributes are `device.metadata`, which follow the rules of a published device, at most 32. Its network data is
    that of `device.status`.
    """
    fields = device_json(PublishedDevice(device.name, device.metadata), driver)
    check_device(fields, driver)
    problems = [str(problem) for problem in pool_name(device.pool, "pool")]
    entry = {"driver": driver, "pool": device.pool, **fields}
    network = device.status.network if device.status else None
    if network is not None:
        problems += _network_problems(network)
        entry["networkData"] = _network_json(network)
    if problems:
        raise InvalidObjectError(f"metadata of device {device.pool}/{device.name}", problems)
    return {key: entry[key] for key in ("driver", "pool", "name", "attributes", "networkData") if key in entry}


def _network_json(data: NetworkData) -> JSON:
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
        elif not _is_canonical(address):
            yield f"network_data.ips[{index}]: must be an address with a prefix such as 10.9.8.7/24, is {address!r}"


def _is_canonical(address: str) -> bool:
    """Return whether this is `address/prefix` in its canonical form."""
    try:
        interface = ipaddress.ip_interface(address)
    except ValueError:
        return False
    mapped = interface.version == 6 and interface.ipv4_mapped is not None  # noqa: PLR2004 (IPv6)
    return not mapped and "%" not in address and address == interface.with_prefixlen
