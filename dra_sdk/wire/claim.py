"""The parts of a ResourceClaim that preparation reads.

Source: resource.k8s.io/v1 ResourceClaim, AllocationResult, DeviceRequestAllocationResult,
DeviceAllocationConfiguration. Reading is lenient: a newer API server may send fields that we do not know.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from dra_sdk.errors import ClaimError


class _Read(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, raw: Any) -> Any:
        return {key: value for key, value in raw.items() if value is not None} if isinstance(raw, dict) else raw


class Result(_Read):
    """One allocated device (DeviceRequestAllocationResult)."""

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    share_id: str | None = Field(default=None, alias="shareID")
    consumed_capacity: dict[str, str] = {}


class Opaque(_Read):
    """Parameters for one driver (OpaqueDeviceConfiguration)."""

    driver: str
    parameters: dict[str, Any] = {}


class Config(_Read):
    """One configuration entry of an allocation; no `requests` means all of them."""

    source: Literal["FromClass", "FromClaim"]
    requests: list[str] = []
    opaque: Opaque | None = None


class Devices(_Read):
    """What was allocated (DeviceAllocationResult)."""

    results: list[Result] = []
    config: list[Config] = []


class Allocation(_Read):
    """AllocationResult."""

    devices: Devices = Devices()


class Consumer(_Read):
    """Who may use a claim (ResourceClaimConsumerReference): usually a pod."""

    name: str = ""


class _Status(_Read):
    allocation: Allocation | None = None
    reserved_for: list[Consumer] = []


class _Metadata(_Read):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class ResourceClaim(_Read):
    """A ResourceClaim as far as a driver needs it."""

    metadata: _Metadata = _Metadata()
    status: _Status = _Status()

    @property
    def consumers(self) -> str:
        """The names of the pods that may use it, for log lines."""
        return ",".join(each.name for each in self.status.reserved_for)


def read_claim(raw: dict[str, Any]) -> ResourceClaim:
    """Read a claim; ClaimError where it is not one."""
    try:
        return ResourceClaim.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise ClaimError(f"the API server's answer is no ResourceClaim: {where}: {first['msg']}") from error
