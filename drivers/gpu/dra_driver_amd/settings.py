"""The settings of the driver on a node: environment variables `DRA_AMD_…`, each with a default."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dra_sdk.hardware.settings import Setting, SettingsTable, parse_path, parse_seconds, parse_switch

STATE_DIR: Final = "/var/lib/kubelet/plugins/gpu.amd.com"
_A_DAY: Final = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdSettings:
    """The settings of one node. All paths are those of the host, wherever its root is mounted.

    state_dir: where the driver keeps its records.
    passthrough: publish VFIO devices as well: GPUs, and virtual functions.
    partitioning: claims may choose the compute partition mode of a whole GPU.
    busy_seconds: how long to wait until nobody uses a GPU whose driver or mode changes.
    settle_seconds: how long an uncorrectable error must not repeat until the GPU is healthy again.
    """

    state_dir: str = STATE_DIR
    passthrough: bool = False
    partitioning: bool = False
    busy_seconds: float = 30.0
    settle_seconds: float = 300.0

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> AmdSettings:
        """The settings in the environment. Raises SettingsError with the variable and what it must be."""
        return cls(**SETTINGS.read(environment))


SETTINGS: Final = SettingsTable(
    "DRA_AMD_",
    (
        Setting("state_dir", parse_path, STATE_DIR, "where the driver records its changes"),
        Setting("passthrough", parse_switch, "false", "publish VFIO devices as well: GPUs, and virtual functions"),
        Setting("partitioning", parse_switch, "false", "let claims choose the compute partition mode of a whole GPU"),
        Setting(
            "busy_seconds",
            parse_seconds(40.0, "the kubelet waits 45 for a claim"),
            "30",
            "how long to wait until nobody uses a GPU whose driver or mode changes",
        ),
        Setting(
            "settle_seconds",
            parse_seconds(_A_DAY, "restart the driver to forget errors"),
            "300",
            "how long an uncorrectable error must not repeat until the GPU is healthy again",
        ),
    ),
)
