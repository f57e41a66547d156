"""What a user may configure per request, and an operator per node."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import Field

from dra_sdk import DraError, OpaqueConfig
from dra_sdk.hardware import CpuSet, parse_cpuset

RESERVED = "DRA_CPU_RESERVED_CPUS"


class CpuConfig(OpaqueConfig, api_version="dra.cpu/v1alpha1"):
    """How the CPUs of a request are picked."""

    full_cores: bool = Field(
        default=False,
        description="Only whole physical cores; refuse a number that is not a sum of them.",
    )


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Settings of one node. `reserved` CPUs are never given out; the kubelet calls them `reservedSystemCPUs`."""

    reserved: CpuSet = frozenset()

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> NodeSettings:
        """The settings in the environment; DraError names the variable that cannot be read."""
        text = environment.get(RESERVED, "")
        try:
            return cls(parse_cpuset(text))
        except ValueError as error:
            raise DraError(f"environment variable {RESERVED}: {error}") from error
