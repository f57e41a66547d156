"""What drivers need to know of a node's hardware, and to change there.

The names here are readers: CPUs, NUMA nodes, PCI functions. Each takes a `Host`: the `Node` of a hook, or `Host(root)`
with any directory. What acts on a node is in modules of its own, such as
`dra_sdk.hardware.pci_driver`, so that a driver that only reads does not load it.

Source: the kernel's /sys and /proc; KEP-4381 and KEP-6072 for the standard attributes.
"""

from dra_sdk.hardware.attributes import (
    NUMA_NODE,
    PCI_BUS_ID,
    PCIE_ROOT,
    numa_attribute,
    numa_list_attribute,
    pci_attributes,
)
from dra_sdk.hardware.cpu import CoreType, Cpu, CpuTopology, read_cpus
from dra_sdk.hardware.cpuset import CpuSet, format_cpuset, parse_cpuset
from dra_sdk.hardware.host import (
    device_file,
    entries,
    exists,
    file_status,
    is_directory,
    is_link,
    is_regular_file,
    link_target,
    link_target_name,
    numbered_paths,
    read_cpuset,
    read_hex,
    read_if_exists,
    read_int,
    read_key_values,
    read_large_text,
    read_optional,
    read_text,
    real_path,
)
from dra_sdk.hardware.numa import HugePages, NumaNode, read_numa_nodes
from dra_sdk.hardware.pci import (
    PciDevice,
    PciRoot,
    SriovPf,
    parse_pci_address,
    pci_address_of_node,
    pci_device_name,
    read_pci_device,
    read_pci_devices,
    read_pci_roots,
)
from dra_sdk.model.driver import Host
from dra_sdk.model.omissions import Omission, collecting_omissions, leave_out, leave_out_fact

__all__ = [
    "NUMA_NODE",
    "PCIE_ROOT",
    "PCI_BUS_ID",
    "CoreType",
    "Cpu",
    "CpuSet",
    "CpuTopology",
    "Host",
    "HugePages",
    "NumaNode",
    "Omission",
    "PciDevice",
    "PciRoot",
    "SriovPf",
    "collecting_omissions",
    "device_file",
    "entries",
    "exists",
    "file_status",
    "format_cpuset",
    "is_directory",
    "is_link",
    "is_regular_file",
    "leave_out",
    "leave_out_fact",
    "link_target",
    "link_target_name",
    "numa_attribute",
    "numa_list_attribute",
    "numbered_paths",
    "parse_cpuset",
    "parse_pci_address",
    "pci_address_of_node",
    "pci_attributes",
    "pci_device_name",
    "read_cpus",
    "read_cpuset",
    "read_hex",
    "read_if_exists",
    "read_int",
    "read_key_values",
    "read_large_text",
    "read_numa_nodes",
    "read_optional",
    "read_pci_device",
    "read_pci_devices",
    "read_pci_roots",
    "read_text",
    "real_path",
]
