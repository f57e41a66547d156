"""What a prepared device changes in a container: the author's view of CDI container edits.

Source: CNCF Container Device Interface specification 1.1, section "containerEdits". Turning these values into a
CDI spec, its version and its checks is `dra_sdk.wire.cdi`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

HookName = Literal["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"]


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device node to create in the container.

    `path` is the path in the container, `host_path` the one on the host where it differs. Type (`b`, `c`, `u`, `p`),
    major and minor are read from the host by the runtime where they are left out. `permissions` is a subset of `rwm`.
    """

    path: str
    host_path: str | None = None
    type: Literal["b", "c", "u", "p"] | None = None
    major: int | None = None
    minor: int | None = None
    file_mode: int | None = None
    permissions: str | None = None
    uid: int | None = None
    gid: int | None = None


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount into the container; a bind mount unless `type` says otherwise."""

    host_path: str
    container_path: str
    options: Sequence[str] = ("ro", "nosuid", "nodev", "bind")
    type: str | None = None


@dataclass(frozen=True, slots=True)
class Hook:
    """An OCI hook that the runtime runs; `timeout` in seconds."""

    hook_name: HookName
    path: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: int | None = None


@dataclass(frozen=True, slots=True)
class NetDevice:
    """A network interface of the host to move into the container as `name` (CDI 1.1)."""

    host_interface_name: str
    name: str


@dataclass(frozen=True, slots=True)
class IntelRdt:
    """Membership in an Intel RDT class of service (CDI 0.7; schemata and monitoring need 1.1)."""

    clos_id: str | None = None
    l3_cache_schema: str | None = None
    mem_bw_schema: str | None = None
    schemata: Sequence[str] = ()
    enable_monitoring: bool = False


@dataclass(frozen=True, slots=True)
class ContainerEdits:
    """Everything one device changes in a container that gets it."""

    env: Mapping[str, str] = field(default_factory=dict)
    device_nodes: Sequence[DeviceNode] = ()
    mounts: Sequence[Mount] = ()
    hooks: Sequence[Hook] = ()
    net_devices: Sequence[NetDevice] = ()
    additional_gids: Sequence[int] = ()
    intel_rdt: IntelRdt | None = None

    def __add__(self, other: ContainerEdits) -> ContainerEdits:
        """Both edits; where both set an environment variable or RDT class, the right one wins."""
        return ContainerEdits(
            env={**self.env, **other.env},
            device_nodes=(*self.device_nodes, *other.device_nodes),
            mounts=(*self.mounts, *other.mounts),
            hooks=(*self.hooks, *other.hooks),
            net_devices=(*self.net_devices, *other.net_devices),
            additional_gids=(*self.additional_gids, *other.additional_gids),
            intel_rdt=other.intel_rdt or self.intel_rdt,
        )
