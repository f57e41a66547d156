"""The settings of the bridge on a node: environment variables `DRA_PLUGIN_…`, each with a default."""

from __future__ import annotations

import re
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from dra_sdk import DriverSettings
from dra_sdk.settings import CommaSeparated, HostPath, KubeletPath, Seconds

PLUGINS_DIRECTORY: Final = "/var/lib/kubelet/device-plugins"
"""Where plugins look for the kubelet's socket, wherever the kubelet's directory is."""


class PluginSettings(DriverSettings, prefix="DRA_PLUGIN_"):
    """The settings of one node."""

    driver_name: str = Field(default="plugin.dra.dev", description="the driver's name in ResourceSlices and claims")
    directory: HostPath = Field(
        default="/var/lib/dra-device-plugins",
        description="directory of the bridge's `kubelet.sock` and of the plugins' sockets; plugins have it at "
        f"`{PLUGINS_DIRECTORY}`",
    )
    kubelet_directory: KubeletPath = Field(
        default="device-plugins", description="where the kubelet's own socket lies, which cannot be `directory`"
    )
    resources: CommaSeparated = Field(
        default=(), description="resources that plugins may register, such as `vendor.com/thing`; none: all of them"
    )
    allowed_paths: CommaSeparated = Field(
        default=("/dev",),
        description="paths of the host, with all below them, that a plugin may give to containers as devices or mounts",
    )
    replica_pattern: str = Field(
        default="",
        description="regular expression with one group: the part of a device's id that all replicas of the same "
        "hardware have in common, such as `(.+)::[0-9]+`",
    )
    numa_lists: bool = Field(
        default=False,
        description="publish a list of NUMA nodes for a device with several; needs `DRAListTypeAttributes`",
    )
    allocate_seconds: Annotated[float, Seconds(40, "the kubelet waits 45 for a claim")] = Field(
        default=30.0, description="how long to wait for each answer of a plugin while a claim is prepared"
    )
    away_seconds: float = Field(
        default=10.0,
        ge=0,
        description="how long a plugin may be away, as in a restart, before its devices are unhealthy",
    )
    forget_seconds: float = Field(
        default=300.0, ge=0, description="how long a plugin may be away before its devices are no longer published"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.directory == self.kubelet_directory:
            raise ValueError(f"directory {self.directory} is the kubelet's own: its plugins would be lost to it")
        if wrong := [path for path in self.allowed_paths if not path.startswith("/") or ".." in path.split("/")]:
            raise ValueError(f"allowedPaths must be absolute paths without '..', has {', '.join(wrong)}")
        try:
            groups = re.compile(self.replica_pattern).groups
        except re.error as error:
            raise ValueError(f"replicaPattern {self.replica_pattern!r} is no regular expression: {error}") from error
        if self.replica_pattern and groups != 1:
            raise ValueError(f"replicaPattern {self.replica_pattern!r} must have one group, has {groups}")
        return self
