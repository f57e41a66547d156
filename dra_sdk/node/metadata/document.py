"""The document in a metadata file: the devices of one claim by request, in every version of the API.

A file is a stream of JSON objects: the same document once for each API version, newest first, so that a reader takes
the first that it knows. Both versions have the same fields. Source: KEP-5304; metadata.resource.k8s.io types
DeviceMetadata, DeviceMetadataRequest, Device; resource.k8s.io/v1 types DeviceAttribute and NetworkDeviceData.
"""

from __future__ import annotations

import json
from typing import Final

from pydantic import Field

from dra_sdk.errors import InvalidObjectError
from dra_sdk.model import JSON
from dra_sdk.model.claim import PreparedDevice
from dra_sdk.model.device import Device as PublishedDevice
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.resource.base import Object
from dra_sdk.wire.resource.claims import NetworkDeviceData
from dra_sdk.wire.resource.slices import DeviceAttribute
from dra_sdk.wire.slice import device_json
from dra_sdk.wire.validation import check_device
from dra_sdk.wire.validation.decoding import read_as
from dra_sdk.wire.validation.names import pool_name
from dra_sdk.wire.validation.status import network_data

GROUP: Final = "metadata.resource.k8s.io"
KIND: Final = "DeviceMetadata"
#: API versions that are written and read, newest first.
VERSIONS: Final = (f"{GROUP}/v1beta1", f"{GROUP}/v1alpha1")
ATTRIBUTES_LIMIT: Final = 32
"""How many attributes a device may have; a list counts as one, and releases differ in how many items are allowed."""


class Device(Object):
    """One allocated device."""

    driver: str
    pool: str
    name: str
    attributes: dict[str, DeviceAttribute] = Field(default_factory=dict)
    network_data: NetworkDeviceData | None = None


class DeviceMetadataRequest(Object):
    """The devices of one request, or of `request/subrequest` where alternatives were asked for."""

    name: str
    devices: list[Device] = Field(default_factory=list)


class Identity(Object):
    """The identity of the claim; `generation` begins with 1 and grows with each change."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0


class DeviceMetadata(Object):
    """One document; `pod_claim_name` is the claim's name in its pod if the claim was made from a template."""

    metadata: Identity = Field(default_factory=Identity)
    pod_claim_name: str | None = None
    requests: list[DeviceMetadataRequest] = Field(default_factory=list)


def encode(fields: JSON) -> str:
    """Return the text of a file: a line for each version. Indented, it takes six times as long."""
    body = json.dumps(fields).removeprefix("{")
    heads = (json.dumps({"kind": KIND, "apiVersion": version}).removesuffix("}") for version in VERSIONS)
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
        fields = {
            "interfaceName": network.interface_name,
            "ips": [*network.ips],
            "hardwareAddress": network.hardware_address,
        }
        entry["networkData"] = {key: value for key, value in fields.items() if value}
        problems += _network_problems(entry["networkData"])
    if problems:
        raise InvalidObjectError(f"metadata of device {device.pool}/{device.name}", problems)
    return {key: entry[key] for key in ("driver", "pool", "name", "attributes", "networkData") if key in entry}


def _network_problems(fields: JSON) -> list[str]:
    """Return what is wrong with network data, by field; a value of the wrong type hides what else is wrong."""
    profile = ServerProfile.of()
    data, problems = read_as(NetworkDeviceData, fields, profile)
    if data is None:
        return [f"networkData.{problem}" for problem in problems]
    return [*map(str, network_data(data, "networkData", profile))]
