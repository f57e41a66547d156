"""Attributes that a request derives by an expression from what the driver published, for the constraints of its claim.

Source: KEP-6080; resource.k8s.io/v1 DeviceDerivedAttribute; k8s.io/dynamic-resource-allocation, structured (1.37).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dra_sdk import cel
from dra_sdk.tools.scheduling.allocator.devices import Content, PoolDevice
from dra_sdk.tools.scheduling.allocator.errors import AllocationError


class DerivedAttribute:
    """One of them; evaluated when a constraint first asks, once for devices that are alike.

    `where` names the claim, the request and the attribute.
    """

    __slots__ = ("_expression", "_features", "_known", "where")

    def __init__(self, expression: str, features: cel.Features, where: str) -> None:
        self._expression, self._features, self.where = expression, features, where
        self._known: dict[Content, Mapping[str, Any]] = {}

    def of(self, device: PoolDevice) -> Mapping[str, Any]:
        """The DeviceAttribute of a device; AllocationError if the expression is wrong or has no value for it."""
        found = self._known.get(device.content)
        if found is None:
            found = self._known[device.content] = self._evaluated(device)
        return found

    def _evaluated(self, device: PoolDevice) -> Mapping[str, Any]:
        try:
            return cel.compile_derived(self._expression, self._features).attribute(device.content.view)
        except cel.CelError as error:
            raise AllocationError(f"{self.where}, evaluated on device {device.id}: {error}") from None
