"""The document in a metadata file: devices of one claim by request, in every version of the API.

Source: metadata.resource.k8s.io types DeviceMetadata, DeviceMetadataRequest, Device; resource.k8s.io/v1 types
DeviceAttribute and NetworkDeviceData. Both versions hold the same fields. Models read leniently, because a newer
driver may say more than is known here, and null is an absent field.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from dra_sdk.model.device import AttributeValue, Version

GROUP: Final = "metadata.resource.k8s.io"
KIND: Final = "DeviceMetadata"
#: API versions that are written and read, newest first.
VERSIONS: Final = (f"{GROUP}/v1beta1", f"{GROUP}/v1alpha1")


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        return {key: item for key, item in value.items() if item is not None} if isinstance(value, dict) else value


class Attribute(_Part):
    """One attribute; a field that is set tells its type."""

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
        """The value as a driver's author would write it; None if it is of a type that is not known here."""
        if self.version is not None:
            return Version(self.version)
        if self.versions is not None:
            return [Version(each) for each in self.versions]
        known = (self.bool_value, self.int_value, self.string, self.bools, self.ints, self.strings)
        return next((each for each in known if each is not None), None)


class NetworkData(_Part):
    """How a network device looks in the pod; `ips` are addresses with a prefix such as `10.9.8.7/24`."""

    interface_name: str | None = None
    ips: list[str] = []
    hardware_address: str | None = None


class Device(_Part):
    """One allocated device."""

    driver: str
    pool: str
    name: str
    attributes: dict[str, Attribute] = {}
    network_data: NetworkData | None = None


class Request(_Part):
    """The devices of one request, or of `request/subrequest` where alternatives were asked for."""

    name: str
    devices: list[Device] = []


class Identity(_Part):
    """Which claim it is; `generation` begins with 1 and grows with each change."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0


class DeviceMetadata(_Part):
    """One document; `pod_claim_name` is the claim's name in its pod, where the claim was made from a template."""

    metadata: Identity = Identity()
    pod_claim_name: str | None = None
    requests: list[Request] = []

    def request(self, name: str) -> Request | None:
        """The entry of a request, None if there is none of this name."""
        return next((each for each in self.requests if each.name == name), None)
