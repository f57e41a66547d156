"""resource.k8s.io/v1 OpaqueDeviceConfiguration."""

from __future__ import annotations

from typing import Any

from dra_sdk.wire.resource.base import Object


class OpaqueDeviceConfiguration(Object):
    """Parameters that only the driver understands."""

    driver: str = ""
    parameters: Any = None
