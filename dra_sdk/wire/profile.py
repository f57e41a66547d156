"""The limits and feature gates of an API server, by release.

Kubernetes 1.34 is the first release with `resource.k8s.io/v1`. Every later release changed limits and feature gates. A
profile has both, so that objects can be checked without a server. Source: the API types and feature gates of Kubernetes
1.34 to 1.37.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final, Self

from dra_sdk.errors import SettingsError

OLDEST: Final = 34
NEWEST: Final = 37
DEFAULT_VERSION: Final = "1.36"
"""The release of every command unless a flag or a running cluster says otherwise."""

#: Each feature gate with the minor release that added it, and the one that turned it on by default (None: not yet).
GATES: Final[Mapping[str, tuple[int, int | None]]] = {
    "DRAAdminAccess": (34, 34),
    "DRAConsumableCapacity": (34, 36),
    "DRADerivedAttributes": (37, None),
    "DRADeviceBindingConditions": (34, 36),
    "DRADeviceCompatibilityGroups": (37, None),
    "DRADeviceTaintRules": (35, 37),
    "DRADeviceTaints": (34, 36),
    "DRAExtendedResource": (34, 36),
    "DRAFractionalCapacityRange": (37, None),  # beta, but off by default as long as a rollback to 1.36 must be possible
    "DRAListTypeAttributes": (36, None),
    "DRANodeAllocatableResources": (36, None),
    "DRAOptionalNodeOperations": (37, None),
    "DRAPartitionableDevices": (34, 36),
    "DRAPartitionableDevicesType": (37, None),
    "DRAPrioritizedList": (34, 34),
    "DRAResourceClaimDeviceStatus": (34, 34),
    "DRAResourcePoolStatus": (36, None),
}
#: Gates that decide how pods are scheduled in groups and what they share, each with the gates that it needs.
NEEDED_GATES: Final[Mapping[str, tuple[str, ...]]] = {
    "DRAWorkloadResourceClaims": ("GenericWorkload",),
    "GangScheduling": ("GenericWorkload",),
}
_FIRST_WITH_GANGS: Final = 37
_VERSION = re.compile(r"v?1\.(\d+)(?:[.+-].*)?")


@cache
def gate_names() -> frozenset[str]:
    """Return the feature gates of all known releases, also those that change nothing for devices.

    The list is made from the source of Kubernetes by tests/wire/make_gate_names.py.
    """
    return frozenset((files(__package__) / "gate_names.txt").read_text(encoding="utf-8").split())


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one release: numbers of items, and lengths in bytes."""

    devices_per_slice: int = 128
    #: The limit if any device of the slice has taints, consumes counters or has list attributes.
    advanced_devices_per_slice: int = 64
    counter_sets_per_slice: int = 8
    counters_per_set: int = 32
    counter_sets_per_device: int = 2
    compatibility_groups: int = 2
    attributes_and_capacities: int = 32
    attribute_values: int = 48
    attribute_value_length: int = 64
    taints_per_device: int = 16
    binding_conditions: int = 4
    valid_values: int = 10
    requests: int = 32
    alternatives: int = 8
    constraints: int = 32
    configs: int = 32
    allocated_configs: int = 64
    selectors: int = 32
    expression_length: int = 10 * 1024
    derived_attributes: int = 32
    results: int = 32
    opaque_length: int = 10 * 1024
    reserved_for: int = 256
    conditions: int = 8
    status_data_length: int = 10 * 1024
    addresses: int = 16
    interface_name_length: int = 256
    hardware_address_length: int = 128


#: 1.34 limits counters for each slice and each device, not for each set.
COUNTERS_PER_SLICE_1_34: Final = 32
DEVICE_COUNTERS_PER_SLICE_1_34: Final = 1024
COUNTERS_PER_DEVICE_1_34: Final = 32

_NO_LIMIT: Final = 2**31
_LIMITS: Final[Mapping[int, Limits]] = {
    34: Limits(
        advanced_devices_per_slice=128,
        counter_sets_per_slice=_NO_LIMIT,
        counters_per_set=_NO_LIMIT,
        counter_sets_per_device=_NO_LIMIT,
        attribute_values=_NO_LIMIT,
        taints_per_device=4,
    ),
    35: Limits(attribute_values=_NO_LIMIT),
}


@dataclass(frozen=True, slots=True)
class ServerProfile:
    """The release and feature gates of an API server.

    minor: minor release, such as 36 for 1.36.
    gates: feature gates that are on.
    """

    minor: int
    gates: frozenset[str]

    @classmethod
    def of(cls, version: str = f"1.{NEWEST}", gates: Mapping[str, bool] | None = None) -> Self:
        """Return the profile of a release such as `1.36` or `v1.36.3+k3s1`. `gates` turns feature gates on and off.

        A gate that is on turns on those that it needs. A release that is newer than the newest known one gets the
        profile of that one. Raises SettingsError for a release before 1.34, which has no `resource.k8s.io/v1`, and for
        text that is not a version.
        """
        match = _VERSION.fullmatch(version)
        if not match:
            raise SettingsError(f"{version!r} is not a Kubernetes version: want 1.{OLDEST} to 1.{NEWEST}")
        minor = min(int(match[1]), NEWEST)
        if minor < OLDEST:
            raise SettingsError(f"Kubernetes {version} does not serve resource.k8s.io/v1; 1.{OLDEST} is the first to")
        enabled = {name for name, (_, since) in GATES.items() if since is not None and since <= minor}
        changes = gates or {}
        enabled |= {name for name, on in changes.items() if on}
        enabled |= {needed for name in enabled for needed in NEEDED_GATES.get(name, ())}
        return cls(minor, frozenset(enabled - {name for name, on in changes.items() if not on}))

    @property
    def version(self) -> str:
        """The release as text: `1.36`."""
        return f"1.{self.minor}"

    @property
    def limits(self) -> Limits:
        """The limits of this release."""
        return _LIMITS.get(self.minor, Limits())

    @property
    def taint_effects(self) -> tuple[str, ...]:
        """The taint effects of this release, sorted."""
        return ("NoExecute", "NoSchedule", "None") if self.minor > OLDEST else ("NoExecute", "NoSchedule")

    def enabled(self, *gates: str) -> bool:
        """Return whether all these gates are on."""
        return self.gates.issuperset(gates)

    @property
    def applies_taint_rules(self) -> bool:
        """Whether DeviceTaintRules have an effect. 1.34 has no separate gate for them."""
        return self.enabled("DRADeviceTaints", self.taint_rule_gate)

    @property
    def taint_rule_gate(self) -> str:
        """The gate that turns DeviceTaintRules on."""
        return "DRADeviceTaints" if self.minor == OLDEST else "DRADeviceTaintRules"

    @property
    def schedules_gangs(self) -> bool:
        """Whether the scheduler places the pods of a gang together or not at all; 1.36 has a separate gate for it."""
        return self.enabled("GenericWorkload" if self.minor >= _FIRST_WITH_GANGS else "GangScheduling")

    def pod_group_versions(self) -> tuple[str, ...]:
        """Return the API versions of PodGroup and Workload, newest first; empty if the server has none."""
        versions = {36: ("v1alpha2",), 37: ("v1beta1", "v1alpha3")}
        return versions.get(self.minor, ()) if self.enabled("GenericWorkload") else ()

    def taint_rule_versions(self) -> tuple[str, ...]:
        """Return the API versions of DeviceTaintRule, newest first. Before 1.37 an administrator must enable them."""
        versions = {34: ("v1alpha3",), 35: ("v1alpha3",), 36: ("v1beta2", "v1alpha3")}
        return versions.get(self.minor, ("v1", "v1beta2", "v1alpha3"))
