"""The settings of the driver on a node: environment variables `DRA_NIC_…`, each with a default."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from dra_sdk import DriverSettings
from dra_sdk.settings import CommaSeparated, HostPath, KubeletPath, Seconds

CLASS_ONLY: Final = ("cni", "vf.vlan", "vf.qos", "vf.trust", "vf.spoofchk")
"""What decides in which network a pod is, and as whom it may speak there: a matter of administrators."""
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
    claim_fields: CommaSeparated = Field(
        default=(),
        description="fields that claims may set too, and not DeviceClasses alone, of `cni`, `vf.vlan`, `vf.qos`, "
        "`vf.trust`, `vf.spoofchk`: each lets users choose their network",
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

    @property
    def class_only(self) -> list[str]:
        """The fields of a configuration that claims may not set."""
        return [field for field in CLASS_ONLY if field not in self.claim_fields]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if wrong := [field for field in self.claim_fields if field not in CLASS_ONLY]:
            raise ValueError(f"claimFields may have {', '.join(CLASS_ONLY)}, has {', '.join(wrong)}")
        return self
