"""Which features of DRA the allocator works with: the feature gates of a cluster as the scheduler sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from dra_sdk import cel
from dra_sdk.wire.profile import ServerProfile

#: The scheduler of 1.36 evaluates list attributes in selectors, yet does not hand the gate to its allocator.
_LISTS_IN_CONSTRAINTS_SINCE: Final = 37


@dataclass(frozen=True, slots=True)
class Features:
    """Feature gates; all on by default.

    `binding_conditions` stands for DRADeviceBindingConditions together with DRAResourceClaimDeviceStatus.
    `list_attributes` (DRAListTypeAttributes) is about constraints, `list_attributes_in_selectors` about CEL.
    `taint_rules` and `extended_resources` change nothing here: callers ask them before they apply rules to slices
    (`Inventory` does) or make claims of their own for extended resources.
    """

    admin_access: bool = True
    prioritized_list: bool = True
    partitionable_devices: bool = True
    consumable_capacity: bool = True
    device_taints: bool = True
    taint_rules: bool = True
    binding_conditions: bool = True
    list_attributes: bool = True
    list_attributes_in_selectors: bool = True
    extended_resources: bool = True

    @classmethod
    def of(cls, profile: ServerProfile) -> Self:
        """What the scheduler of a cluster with this profile has on."""
        lists = profile.enabled("DRAListTypeAttributes")
        return cls(
            admin_access=profile.enabled("DRAAdminAccess"),
            prioritized_list=profile.enabled("DRAPrioritizedList"),
            partitionable_devices=profile.enabled("DRAPartitionableDevices"),
            consumable_capacity=profile.enabled("DRAConsumableCapacity"),
            device_taints=profile.enabled("DRADeviceTaints"),
            taint_rules=profile.enabled("DRADeviceTaints", "DRADeviceTaintRules"),
            binding_conditions=profile.enabled("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"),
            list_attributes=lists and profile.minor >= _LISTS_IN_CONSTRAINTS_SINCE,
            list_attributes_in_selectors=lists,
            extended_resources=profile.enabled("DRAExtendedResource"),
        )

    @property
    def cel(self) -> cel.Features:
        """The features that change what a selector may say."""
        return cel.Features(
            consumable_capacity=self.consumable_capacity, list_type_attributes=self.list_attributes_in_selectors
        )
