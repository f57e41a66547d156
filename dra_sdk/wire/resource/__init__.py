"""API objects of resource.k8s.io/v1 as typed models, with every field of Kubernetes 1.34 to 1.37.

`model_validate` reads JSON strictly, `to_json` writes it. `dra_sdk.wire.validation` checks the limits.
"""

from dra_sdk.wire.resource.claims import ResourceClaim, ResourceClaimTemplate
from dra_sdk.wire.resource.classes import DeviceClass, DeviceTaintRule
from dra_sdk.wire.resource.pool_status import ResourcePoolStatusRequest
from dra_sdk.wire.resource.slices import Device, ResourceSlice

__all__ = [
    "Device",
    "DeviceClass",
    "DeviceTaintRule",
    "ResourceClaim",
    "ResourceClaimTemplate",
    "ResourcePoolStatusRequest",
    "ResourceSlice",
]
