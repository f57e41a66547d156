"""The settings of the driver on a node: environment variables `DRA_NIC_…`, each with a default."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dra_sdk import DriverSettings
from dra_sdk.settings import CommaSeparated, HostPath, KubeletPath, Seconds

DeviceMode = Literal["individual", "partitionable"]
"""Whether a physical function that has virtual ones is a device too."""


class NicSettings(DriverSettings, prefix="DRA_NIC_"):
    """The settings of one node. All paths are those of the host, wherever its root is mounted."""

    state_dir: KubeletPath = Field(
        default="plugins/dra.net", description="where the driver records interfaces that claims have"
    )
    protect: CommaSeparated = Field(
        default=(),
        description="names of interfaces that are never published, with `*` for any characters; uplinks never are",
    )
    software: CommaSeparated = Field(
        default=("dummy", "ipvlan", "macvlan", "vlan"),
        description="kinds of software interfaces that are published, as `ip -d link` names them",
    )
    device_mode: DeviceMode = Field(
        default="individual",
        description="individual: a PF that has VFs is no device; partitionable: it is one too, and a claim has either "
        "the PF or VFs of it, which needs `DRAPartitionableDevices`",
    )
    shared: CommaSeparated = Field(
        default=(),
        description="names of interfaces that stay with the node, and on which claims get a macvlan each, with `*` for "
        "any characters; an uplink only by its full name; needs `DRAConsumableCapacity`",
    )
    settle_seconds: Annotated[float, Seconds(3600, "a link that flaps for longer is one that is down")] = Field(
        default=2.0, description="how long a carrier must stay as it is before it changes the health of a device"
    )
    cni_conf_dir: HostPath = Field(
        default="/etc/cni/net.d", description="where the CNI networks are that a claim may name"
    )
    cni_bin_dirs: CommaSeparated = Field(
        default=("/opt/cni/bin",), description="where the plugins of these networks are"
    )
    dhcp_seconds: Annotated[float, Seconds(30, "the kubelet waits 45 for a claim")] = Field(
        default=10.0, description="how long to wait for a DHCP server when a claim asks for an address"
    )
    return_seconds: Annotated[float, Seconds(40, "the kubelet waits 45 for a claim")] = Field(
        default=10.0, description="how long to wait for an interface that comes back from a namespace that ended"
    )
