"""A pool of devices that is published and replaced as a whole.

Source: resource.k8s.io/v1 ResourcePool, CounterSet. One pool becomes as many ResourceSlices as its limits ask for;
the author never counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dra_sdk.model.device import Amount, Device, NodeSelection


@dataclass(frozen=True, slots=True)
class CounterSet:
    """Counters that partitions of one piece of hardware share (KEP-4815); name: a DNS label, unique in the pool."""

    name: str
    counters: Mapping[str, Amount]


@dataclass(frozen=True, slots=True)
class ResourcePool:
    """The devices of one pool.

    `node` says who can reach them; None means the driver's own node, which is what a node driver wants. A device may
    carry its own `node` instead, then every device of the pool must. A pool without
    devices says "the driver is up and has none".
    """

    name: str
    devices: Sequence[Device] = ()
    counter_sets: Sequence[CounterSet] = ()
    node: NodeSelection | None = None
