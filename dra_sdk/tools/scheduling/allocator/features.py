"""Which features of DRA the allocator works with: the feature gates of a cluster as the scheduler sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

from dra_sdk import cel
from dra_sdk.tools.scheduling.allocator.behaviour import UP_TO_1_36, Behaviour
from dra_sdk.wire.profile import ServerProfile

Variant = Literal["stable", "incubating", "experimental"]


@dataclass(frozen=True, slots=True)
class Features:
    """Feature gates, and the `behaviour` of the release; by default 1.36 with all gates that it has on.

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
    fractional_ranges: bool = False
    derived_attributes: bool = False
    compatibility_groups: bool = False
    optional_node_operations: bool = False
    behaviour: Behaviour = UP_TO_1_36

    @classmethod
    def of(cls, profile: ServerProfile) -> Self:
        """What the scheduler of a cluster with this profile has on."""
        lists = profile.enabled("DRAListTypeAttributes")
        behaviour = Behaviour.of(profile.minor)
        newer = behaviour.knows_newer_fields
        return cls(
            admin_access=profile.enabled("DRAAdminAccess"),
            prioritized_list=profile.enabled("DRAPrioritizedList"),
            partitionable_devices=profile.enabled("DRAPartitionableDevices"),
            consumable_capacity=profile.enabled("DRAConsumableCapacity"),
            device_taints=profile.enabled("DRADeviceTaints"),
            taint_rules=profile.applies_taint_rules,
            binding_conditions=profile.enabled("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"),
            list_attributes=lists and behaviour.lists_in_constraints,
            list_attributes_in_selectors=lists or behaviour.lists_in_selectors,
            extended_resources=profile.enabled("DRAExtendedResource"),
            fractional_ranges=newer and profile.enabled("DRAFractionalCapacityRange", "DRAConsumableCapacity"),
            derived_attributes=newer and profile.enabled("DRADerivedAttributes"),
            compatibility_groups=newer and profile.enabled("DRADeviceCompatibilityGroups", "DRAPartitionableDevices"),
            optional_node_operations=newer and profile.enabled("DRAOptionalNodeOperations"),
            behaviour=behaviour,
        )

    @property
    def variant(self) -> Variant:
        """Which of its three allocators the scheduler takes: the oldest that knows all features which are on."""
        newest = (self.list_attributes, self.derived_attributes, self.compatibility_groups)
        if any(newest) or self.optional_node_operations:
            return "experimental"
        newer = (self.binding_conditions, self.consumable_capacity, self.fractional_ranges)
        return "incubating" if any(newer) else "stable"

    @property
    def counter_sets_everywhere(self) -> bool:
        """Whether slices with counter sets concern every node; the stable allocator of 1.37 was not mended."""
        if self.behaviour.counters_with_devices:
            return False
        return not self.behaviour.counter_sets_on_their_nodes or self.variant == "stable"

    @property
    def cel(self) -> cel.Features:
        """The features that change what a selector may say."""
        return cel.Features(
            consumable_capacity=self.consumable_capacity,
            list_type_attributes=self.list_attributes_in_selectors,
            since_1_37=self.behaviour.newer_expressions,
        )
