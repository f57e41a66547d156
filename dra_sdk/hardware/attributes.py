"""The standard device attributes `resource.kubernetes.io/…`. Claims use them to match devices of different drivers.

Source: KEP-4381 (`pcieRoot`, `pciBusID`), KEP-6072 (`numaNode`). Kubernetes reserves the prefix for names that it
defines. A driver publishes other facts under its own name.
"""

from __future__ import annotations

from collections.abc import Iterable

from dra_sdk.errors import HardwareError
from dra_sdk.hardware.cpu import CpuTopology
from dra_sdk.hardware.numa import MAX_NUMA_NODE, NumaNode
from dra_sdk.hardware.pci import PciDevice
from dra_sdk.model.device import AttributeValue

PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
"""Root complex, a string such as `pci0000:3a`."""

PCI_BUS_ID = "resource.kubernetes.io/pciBusID"
"""Extended BDF in lower case, a string such as `0000:3b:00.0`."""

NUMA_NODE = "resource.kubernetes.io/numaNode"
"""NUMA node, an integer. In a cluster with DRAListTypeAttributes also a list of integers."""


def pci_attributes(device: PciDevice) -> dict[str, AttributeValue]:
    """Return the standard attributes of a PCI function.

    `numaNode` is missing if the platform does not report the node: -1 would match every other device without a node.
    `pcieRoot` is missing if there is no root complex above the function.
    """
    attributes: dict[str, AttributeValue] = {PCI_BUS_ID: device.address}
    if device.root is not None:
        attributes = {PCIE_ROOT: device.root, **attributes}
    if device.numa_node is not None:
        attributes |= numa_attribute(device.numa_node)
    return attributes


def numa_attribute(node: int) -> dict[str, AttributeValue]:
    """Return `numaNode` as a plain integer, which every cluster understands. Raises HardwareError outside 0…1023."""
    if not 0 <= node <= MAX_NUMA_NODE:
        raise HardwareError(f"NUMA node {node}: {NUMA_NODE} must lie between 0 and {MAX_NUMA_NODE}")
    return {NUMA_NODE: node}


def numa_list_attribute(node: int, nodes: Iterable[NumaNode], topology: CpuTopology) -> dict[str, AttributeValue]:
    """Return `numaNode` as a list: `node`, then the nodes of its socket that have the smallest distance to it.

    This is for clusters with the feature gate DRAListTypeAttributes, which a driver cannot detect. A node whose socket
    is unknown (it has no online CPU) counts as one of the same socket. Raises HardwareError outside 0…1023.
    """
    numa_attribute(node)
    known = {candidate.id: candidate for candidate in nodes}
    others = {other: far for other, far in known[node].distances.items() if other != node} if node in known else {}
    nearest = [other for other, far in sorted(others.items()) if far == min(others.values())]
    return {NUMA_NODE: [node, *(other for other in nearest if _may_share_socket(node, other, topology))]}


def _may_share_socket(node: int, other: int, topology: CpuTopology) -> bool:
    sockets = [{topology.by_id[cpu].socket for cpu in topology.numa_nodes.get(n, ())} for n in (node, other)]
    return not all(sockets) or not sockets[0].isdisjoint(sockets[1])
