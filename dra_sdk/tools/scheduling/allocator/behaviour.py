"""What kube-scheduler of one release does otherwise than that of another.

Feature gates are not enough to tell releases apart: 1.37 also mended slips of 1.36. Every difference is a flag here,
chosen once by the release, so that nobody else asks for a version.
Source: k8s.io/dynamic-resource-allocation 0.34.4, 0.36.3 and 0.37.1, package structured, cel and
resourceslice/tracker; kube-scheduler 1.36.3 and 1.37.1, plugin DynamicResources.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dra_sdk.wire.profile import OLDEST

_MENDED_IN: Final = 37


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One flag for each difference; as it stands, all off, the scheduler of 1.36 and in general those before it."""

    #: Counter sets lie in the slice of the devices that use them, and count for that; else in slices of their own.
    counters_with_devices: bool = False
    #: Fields that 1.37 brought are looked at: derivedAttributes, compatibilityGroups, skipNodeOperations.
    knows_newer_fields: bool = False
    #: Counters go by driver and pool; else by the name of the pool alone, and pools of two drivers are mixed up.
    counters_by_driver: bool = False
    #: Slices with counter sets concern the nodes they name; else every node, which then sees pools without devices.
    counter_sets_on_their_nodes: bool = False
    #: Constraints know all devices that stay and none that was taken back; else see `constraints`.
    constraints_remember: bool = False
    #: The gate DRAListTypeAttributes reaches the allocator; else only selectors know lists.
    lists_in_constraints: bool = False
    #: Selectors know lists even where the gate is off, as for objects of a time when it was on.
    lists_in_selectors: bool = False
    #: Expressions have the functions and prices of 1.37.
    newer_expressions: bool = False
    #: An entry of configuration is there once, without `requests` where it is for all; else once for each request.
    config_once: bool = False
    #: A request for all devices counts those whose capacity is taken, and so cannot be had; else it does without them.
    all_counts_the_full: bool = False
    #: An amount that cannot be told exactly is an error, a rounded one is written as the step is; else always binary.
    exact_amounts: bool = False
    #: Any share of a device keeps its counters; else only one that consumes capacity does, others pay again.
    every_share_keeps_counters: bool = False
    #: A DeviceTaintRule without `deviceSelector` is about no device; else about all.
    rules_need_selector: bool = False

    @classmethod
    def of(cls, minor: int) -> Behaviour:
        """That of a release, `36` for 1.36."""
        if minor == OLDEST:
            return OF_1_34
        return SINCE_1_37 if minor >= _MENDED_IN else UP_TO_1_36


OF_1_34: Final = Behaviour(counters_with_devices=True)
UP_TO_1_36: Final = Behaviour()
SINCE_1_37: Final = Behaviour(
    knows_newer_fields=True,
    counters_by_driver=True,
    counter_sets_on_their_nodes=True,
    constraints_remember=True,
    lists_in_constraints=True,
    lists_in_selectors=True,
    newer_expressions=True,
    config_once=True,
    all_counts_the_full=True,
    exact_amounts=True,
    every_share_keeps_counters=True,
    rules_need_selector=True,
)
