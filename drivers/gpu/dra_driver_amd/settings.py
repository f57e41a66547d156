"""The settings of the driver on a node: environment variables `DRA_AMD_…`, each with a default."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dra_sdk import DriverSettings
from dra_sdk.settings import KubeletPath, Seconds


class AmdSettings(DriverSettings, prefix="DRA_AMD_"):
    """The settings of one node. All paths are those of the host, wherever its root is mounted."""

    state_dir: KubeletPath = Field(default="plugins/gpu.amd.com", description="where the driver records its changes")
    passthrough: bool = Field(default=False, description="publish VFIO devices as well: GPUs, and virtual functions")
    partitioning: bool = Field(default=False, description="let claims choose the compute partition mode of a whole GPU")
    busy_seconds: Annotated[float, Seconds(40, "the kubelet waits 45 for a claim")] = Field(
        default=30.0, description="how long to wait until nobody uses a GPU whose driver or mode changes"
    )
    settle_seconds: Annotated[float, Seconds(86400, "restart the driver to forget errors")] = Field(
        default=300.0,
        description="how long an uncorrectable error must not repeat until the GPU is healthy again",
    )
