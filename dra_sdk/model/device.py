"""Devices as an author describes them, before they become part of a ResourceSlice.

Source: resource.k8s.io/v1 types Device, DeviceAttribute, DeviceCapacity, CapacityRequestPolicy, DeviceTaint,
DeviceCounterConsumption, NodeAllocatableResourceMapping. Nothing is checked here: `dra_sdk.wire` knows every
limit and names the device that breaks one before anything is published.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from dra_sdk.model.quantity import Quantity

_PARTS: Final = 3
_NUMBER: Final = re.compile(r"[0-9]{1,18}")  # of a version: less than 2^63, and three of them fit into 64 characters
Amount = Quantity | int | str
"""How an author may write a quantity."""


class Version(str):
    """An attribute value that is compared as a semantic version 2.0.0 (no leading `v`), not as text."""

    __slots__ = ()

    @classmethod
    def lenient(cls, text: str) -> Version:
        """A version as hardware and its software write it: `580.95.05` → `580.95.5`, `v6.1` → `6.1.0`.

        Always a valid one, of three numbers: a further part is dropped; of each part the number it begins with counts,
        of `86-rc1` 86, and 0 of a part that begins with none, or is missing.
        """
        parts = [*text.removeprefix("v").split("."), *["0"] * _PARTS][:_PARTS]
        return cls(".".join(str(int((_NUMBER.match(part) or "0")[0])) for part in parts))


AttributeValue = bool | int | str | Version | Sequence[bool] | Sequence[int] | Sequence[str] | Sequence[Version]
"""A device attribute: scalar, or a non-empty list of one scalar type (KEP-5491, DRAListTypeAttributes)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPolicy:
    """How much of a consumable capacity one request may take (KEP-5075).

    Either `valid_values` (ascending) or a range of `min`, optional `max` and `step`; `default` is taken by requests
    that name no amount.
    """

    default: Amount
    valid_values: Sequence[Amount] = ()
    min: Amount | None = None
    max: Amount | None = None
    step: Amount | None = None


@dataclass(frozen=True, slots=True)
class Capacity:
    """An amount that a device has; with `policy`, how requests may share it (needs `allow_multiple_allocations`)."""

    value: Amount
    policy: RequestPolicy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTaint:
    """Keeps claims that do not tolerate it away from a device; `NoExecute` also evicts running pods (KEP-5055)."""

    key: str
    effect: Literal["NoSchedule", "NoExecute", "None"]
    value: str = ""
    time_added: datetime | None = None


@dataclass(frozen=True, slots=True)
class CounterConsumption:
    """What an allocated partition takes out of a counter set of its pool (KEP-4815)."""

    counter_set: str
    counters: Mapping[str, Amount]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAllocatable:
    """How a device accounts against a node resource such as `cpu` (KEP-5517, alpha in 1.36)."""

    capacity_key: str | None = None
    multiplier: Amount = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSelection:
    """Which nodes can reach a device or pool: exactly one of the three (resource.k8s.io/v1 ResourceSliceSpec).

    `node_selector` is a core/v1 NodeSelector as JSON with exactly one term.
    """

    node_name: str | None = None
    node_selector: Mapping[str, Any] | None = None
    all_nodes: bool = False


@dataclass(frozen=True, slots=True)
class Device:
    """One allocatable device.

    `name` is a DNS label, unique in its pool. Keys of `attributes` and `capacity` are C identifiers of at most 32
    characters, which belong to the driver's own domain, or `domain/identifier`.
    """

    name: str
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    capacity: Mapping[str, Capacity | Amount] = field(default_factory=dict)
    allow_multiple_allocations: bool = False
    taints: Sequence[DeviceTaint] = ()
    consumes: Sequence[CounterConsumption] = ()
    binds_to_node: bool = False
    binding_conditions: Sequence[str] = ()
    binding_failure_conditions: Sequence[str] = ()
    node_allocatable: Mapping[str, NodeAllocatable] = field(default_factory=dict)
    node: NodeSelection | None = None
