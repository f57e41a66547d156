"""The settings of the driver on a node: environment variables `DRA_CPU_…`, each with a default."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from dra_sdk import DriverSettings
from dra_sdk.hardware import CpuSet, parse_cpuset
from dra_sdk.settings import KubeletPath, Parsed

DeviceMode = Literal["grouped", "individual", "partitionable"]
"""What a device is: a group of CPUs that claims consume by number, one CPU, or a core, L3 cache or NUMA node."""
GroupBy = Literal["numanode", "socket", "l3cache", "machine"]
"""Which CPUs are one group."""


class CpuSettings(DriverSettings, prefix="DRA_CPU_"):
    """The settings of one node. All paths are those of the host, wherever its root is mounted."""

    device_mode: DeviceMode = Field(
        default="grouped",
        description="what a device is: a group of CPUs of which claims take a number, one CPU, or a core, L3 cache "
        "or NUMA node, which exclude each other",
    )
    group_by: GroupBy = Field(default="numanode", description="which CPUs are a group in the mode `grouped`")
    full_cores: bool = Field(
        default=False,
        description="give claims whole cores only: numbers of CPUs are rounded up to whole cores, and no core has "
        "CPUs of two claims or of a claim and others",
    )
    reserved_cpus: Annotated[CpuSet, Parsed(parse_cpuset, "CPU list, such as 0-1,8")] = Field(
        default=frozenset(), description="CPUs that no claim gets; must be the kubelet's `reservedSystemCPUs`"
    )
    shared_pool: Literal["required", "optional"] = Field(
        default="required",
        description="required: if no CPU is reserved, the lowest one is kept back, because containers without claims "
        "need one; optional: claims can have all CPUs, and then new containers without claims are refused",
    )
    isolated_cpus: Literal["include", "exclude", "only"] = Field(
        default="include",
        description="whether claims get CPUs that the kernel isolates (`isolcpus=`) like others, never, or only these",
    )
    expose_pcie_roots: bool = Field(
        default=False,
        description="publish the list attribute `resource.kubernetes.io/pcieRoot`; needs `DRAListTypeAttributes`",
    )
    node_allocatable: bool = Field(
        default=False,
        description="count CPUs of claims as CPU requests of their pod; needs `DRANodeAllocatableResources`",
    )
    kubelet_dir: KubeletPath = Field(
        default=".", description="where the kubelet says that it gives exclusive CPUs itself"
    )

    @model_validator(mode="after")
    def _refuse_unused(self) -> Self:
        if self.group_by != "numanode" and self.device_mode != "grouped":
            raise ValueError(f"groupBy {self.group_by} needs deviceMode grouped, which is {self.device_mode}")
        if self.full_cores and self.device_mode == "individual":
            raise ValueError("fullCores is not possible with deviceMode individual, where each thread is a device")
        return self
