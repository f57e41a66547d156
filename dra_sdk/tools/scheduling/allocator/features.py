"""What the scheduler of a cluster can do: its feature gates, and the behaviour of its release.

Feature gates alone do not tell releases apart, because 1.37 also fixed bugs of 1.36. `ReleaseBehaviour` has a flag for
each such difference, so that no other module asks for a version.
Source: k8s.io/dynamic-resource-allocation 0.34.4, 0.36.3 and 0.37.1, packages structured, cel and
resourceslice/tracker; kube-scheduler 1.36.3 and 1.37.1, plugin DynamicResources.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, Self

from dra_sdk import cel
from dra_sdk.wire.profile import OLDEST, ServerProfile

_MINOR_1_37: Final = 37


@dataclass(frozen=True, slots=True)
class ReleaseBehaviour:
    """One flag for each difference between releases; with all flags off, it is the scheduler of 1.35 and 1.36."""

    #: Counter sets are in the same slice as the devices that use them; else in slices of their own.
    counters_with_devices: bool = False
    #: The new fields of 1.37 are read: derivedAttributes, compatibilityGroups, skipNodeOperations.
    knows_1_37_fields: bool = False
    #: Extended resources are as at first: each container has a request of its own, a class with a resource has no
    #: implicit one, and a device plugin counts even if it offers none.
    extended_resources_of_1_34: bool = False
    #: Counters are kept per driver and pool; else per pool name, which mixes up pools of different drivers.
    counters_per_driver: bool = False
    #: Slices with counter sets apply to the nodes they select; else to every node.
    counter_sets_on_their_nodes: bool = False
    #: Constraints consider exactly the devices that are chosen now; else they have the bugs in `constraints`.
    constraints_keep_all_devices: bool = False
    #: The gate DRAListTypeAttributes applies to constraints too; else only to selectors.
    lists_in_constraints: bool = False
    #: Selectors may use lists even if the gate is off, because stored objects may.
    lists_in_selectors: bool = False
    #: CEL has the functions and the cost estimates of 1.37.
    cel_of_1_37: bool = False
    #: A config entry is written once, without `requests` if it is for all of them; else once for each request.
    config_once: bool = False
    #: Mode All includes devices whose capacity is used up, so that it fails; else it skips them.
    all_mode_counts_full_devices: bool = False
    #: An amount that cannot be calculated exactly is an error, and a rounded one keeps the suffix of the step; else
    #: rounded amounts have binary suffixes.
    exact_capacity: bool = False
    #: Any share of a device counts for its counters; else only shares that consume capacity do.
    every_share_keeps_counters: bool = False
    #: A DeviceTaintRule without `deviceSelector` selects no device; else all devices.
    rules_need_selector: bool = False

    @classmethod
    def of(cls, minor: int) -> ReleaseBehaviour:
        """Return the behaviour of a minor release, `36` for 1.36."""
        if minor == OLDEST:
            return OF_1_34
        return SINCE_1_37 if minor >= _MINOR_1_37 else UP_TO_1_36


OF_1_34: Final = ReleaseBehaviour(counters_with_devices=True, extended_resources_of_1_34=True)
UP_TO_1_36: Final = ReleaseBehaviour()


SINCE_1_37: Final = ReleaseBehaviour(
    knows_1_37_fields=True,
    counters_per_driver=True,
    counter_sets_on_their_nodes=True,
    constraints_keep_all_devices=True,
    lists_in_constraints=True,
    lists_in_selectors=True,
    cel_of_1_37=True,
    config_once=True,
    all_mode_counts_full_devices=True,
    exact_capacity=True,
    every_share_keeps_counters=True,
    rules_need_selector=True,
)


AllocatorVariant = Literal["stable", "incubating", "experimental"]


@dataclass(frozen=True, slots=True)
class SchedulerFeatures:
    """The feature gates that the scheduler works with; by default those of 1.36, all on.

    admin_access: DRAAdminAccess.
    prioritized_list: DRAPrioritizedList.
    partitionable_devices: DRAPartitionableDevices.
    consumable_capacity: DRAConsumableCapacity.
    device_taints: DRADeviceTaints.
    taint_rules: whether DeviceTaintRules apply; `Inventory` reads it when it adds their taints to slices.
    binding_conditions: DRADeviceBindingConditions together with DRAResourceClaimDeviceStatus.
    list_attributes: DRAListTypeAttributes in constraints.
    list_attributes_in_selectors: DRAListTypeAttributes in CEL.
    extended_resources: DRAExtendedResource; only read by callers, which make claims for extended resources.
    fractional_ranges: DRAFractionalCapacityRange together with DRAConsumableCapacity.
    derived_attributes: DRADerivedAttributes.
    compatibility_groups: DRADeviceCompatibilityGroups together with DRAPartitionableDevices.
    optional_node_operations: DRAOptionalNodeOperations.
    behaviour: the other differences between releases.
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
    behaviour: ReleaseBehaviour = UP_TO_1_36

    @classmethod
    def of(cls, profile: ServerProfile) -> Self:
        """Return the features of the scheduler in a cluster with this profile."""
        lists = profile.enabled("DRAListTypeAttributes")
        behaviour = ReleaseBehaviour.of(profile.minor)
        newer = behaviour.knows_1_37_fields
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
    def variant(self) -> AllocatorVariant:
        """Which of its three allocators the scheduler uses: the oldest that supports all features that are on."""
        newest = (self.list_attributes, self.derived_attributes, self.compatibility_groups)
        if any(newest) or self.optional_node_operations:
            return "experimental"
        newer = (self.binding_conditions, self.consumable_capacity, self.fractional_ranges)
        return "incubating" if any(newer) else "stable"

    @property
    def counter_sets_everywhere(self) -> bool:
        """Whether slices with counter sets apply to every node, as they still do in the stable allocator of 1.37."""
        if self.behaviour.counters_with_devices:
            return False
        return not self.behaviour.counter_sets_on_their_nodes or self.variant == "stable"

    @property
    def cel(self) -> cel.Features:
        """The features that change what a selector may use."""
        return cel.Features(
            consumable_capacity=self.consumable_capacity,
            list_type_attributes=self.list_attributes_in_selectors,
            since_1_37=self.behaviour.cel_of_1_37,
        )
