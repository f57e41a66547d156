"""The opaque configuration of a claim: how its CPUs are picked, and what its containers get beyond them."""

from __future__ import annotations

from typing import Final, Literal, Self

from pydantic import Field, model_validator

from dra_driver_cpu.pick import PickPolicy
from dra_driver_cpu.settings import CpuSettings
from dra_sdk import CelRule, OpaqueConfig
from dra_sdk.hardware import CpuSet, format_cpuset

Placement = Literal["packed", "spread"]
"""`packed` uses the threads of as few cores as possible, `spread` one thread of as many cores as possible."""
CfsQuota = Literal["keep", "remove"]
"""Whether containers keep the limit of CPU time that their `limits.cpu` sets (CFS quota)."""
MemoryPolicy = Literal["local", "none"]
"""`local`: containers get memory of the NUMA nodes of their CPUs only (`cpuset.mems`). `none`: of all nodes."""

CPUS: Final = "cpus"
CPU_VARIABLE: Final = "DRA_CPUSET_"
"""What the variables of the driver `dra.cpu` begin with."""
QUOTA: Final = "quota"
MEMORY: Final = "memory"
_CORES_OR_THREADS: Final = "fullCores takes all threads of each core, placement spread one: use one of both"
_ONE_NODE: Final = "l3Cache require puts all CPUs into one NUMA node: do not set numa to distributed"


class CpuConfig(OpaqueConfig, api_version="dra.cpu/v1alpha1"):
    """How the CPUs of a request are picked, and what its containers get beyond them.

    A claim without configuration gets the defaults. Each device of a request is picked for itself.
    """

    full_cores: bool = Field(
        default=False,
        description="Only whole physical cores; refuse a number that is not a sum of them.",
    )
    placement: Placement = Field(
        default="packed",
        description="Whether to use all threads of few cores (packed), or one thread of each of many (spread).",
    )
    l3_cache: Literal["prefer", "require"] = Field(
        default="prefer",
        description="Whether all CPUs should be in one L3 cache, or must be.",
    )
    numa: Literal["packed", "distributed"] = Field(
        default="packed",
        description="If no NUMA node has enough CPUs: use as few nodes as possible (packed), or the same number of "
        "CPUs of each of them (distributed).",
    )
    core_type: Literal["any", "p-core", "e-core"] = Field(
        default="any",
        description="The kind of core of a hybrid machine; any prefers the performance cores.",
    )
    memory_policy: MemoryPolicy = Field(
        default="local",
        description="Whether containers get memory only of the NUMA nodes of their CPUs.",
    )
    cfs_quota: CfsQuota = Field(
        default="remove",
        description="Whether containers keep the CFS quota of their CPU limit, which slows exclusive CPUs down.",
    )

    cel_rules = (
        CelRule('!(self.fullCores && self.placement == "spread")', _CORES_OR_THREADS),
        CelRule('!(self.l3Cache == "require" && self.numa == "distributed")', _ONE_NODE),
    )

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        if self.full_cores and self.placement == "spread":
            raise ValueError(_CORES_OR_THREADS)
        if self.l3_cache == "require" and self.numa == "distributed":
            raise ValueError(_ONE_NODE)
        return self

    def policy_of(self, settings: CpuSettings) -> PickPolicy:
        """Return how to pick: by this configuration, and in whole cores if the node's settings say so."""
        return PickPolicy(
            full_cores=self.full_cores or settings.full_cores,
            spread=self.placement == "spread",
            one_l3=self.l3_cache == "require",
            distribute=self.numa == "distributed",
            core_type=None if self.core_type == "any" else self.core_type,
        )

    def data(self, cpus: CpuSet) -> dict[str, str]:
        """Return what is remembered of a prepared device: its CPUs, and what of this configuration is not the default.

        The keys are `cpus` (a CPU list), `quota` (`keep`) and `memory` (`none`).
        """
        data = {CPUS: format_cpuset(cpus)}
        if self.cfs_quota == "keep":
            data[QUOTA] = "keep"
        if self.memory_policy == "none":
            data[MEMORY] = "none"
        return data
