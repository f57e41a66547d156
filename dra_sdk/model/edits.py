"""What a prepared device changes in a container: the author's view of CDI container edits.

Source: CNCF Container Device Interface specification 1.1, section "containerEdits". `dra_sdk.wire.cdi` turns these
values into a CDI spec of the lowest version that can hold them, and checks them. No text may contain a NUL character.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from dra_sdk.errors import HookError

_T = TypeVar("_T")
HookName = Literal["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"]
"""When the runtime calls a hook (OCI runtime specification, "POSIX-platform Hooks")."""


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device node to create in the container (CDI `deviceNodes`).

    A node that several devices need, such as `/dev/vfio/vfio` or `/dev/kfd`, belongs into the edits of each: a request
    may be used by a container alone. In a container with several of these devices a runtime creates the node once, as
    the last of them says, and allows the access of all.

    path: absolute path in the container, such as `/dev/nvidia0`.
    host_path: absolute path on the host. None: the same as `path`.
    type: `c` character device, `b` block device, `u` unbuffered character device, `p` FIFO. None: the runtime reads it
        from the host.
    major: major number. None: the runtime reads it from the host.
    minor: minor number. None: the runtime reads it from the host.
    file_mode: permission bits of the node in the container, such as `0o660`. None: the runtime's default.
    permissions: what the container may do by its device cgroup: any of `r` (read), `w` (write) and `m` (create nodes),
        or `none`. None: the runtime's default, `rwm`.
    uid: owner of the node in the container, from 0 to 4294967295. None: the user of the container's process.
    gid: group of the node in the container, from 0 to 4294967295. None: the group of the container's process.
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
    """A mount into the container (CDI `mounts`).

    host_path: absolute path on the host.
    container_path: absolute path in the container.
    options: mount options. The default is a read-only bind mount without devices and set-user-ID programs.
    type: file system type, such as `tmpfs`. None: a bind mount.
    """

    host_path: str
    container_path: str
    options: Sequence[str] = ("ro", "nosuid", "nodev", "bind")
    type: str | None = None


@dataclass(frozen=True, slots=True)
class OciHook:
    """A program of the host that the runtime calls (CDI `hooks`, OCI runtime specification "Hooks").

    hook_name: when it is called.
    path: absolute path of the program on the host.
    args: all arguments. The first is the program's own name, as in `execv`: `("nvidia-ctk", "hook", "chmod")`.
    env: environment variables of the program.
    timeout: seconds, at least 1, after which the runtime stops it. None: no limit.
    """

    hook_name: HookName
    path: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: int | None = None


@dataclass(frozen=True, slots=True)
class NetDevice:
    """A network interface of the host to move into the container (CDI `netDevices`, CDI 1.1).

    host_interface_name: name of the interface on the host. Each interface can be moved once.
    name: name of the interface in the container, unique there.
    """

    host_interface_name: str
    name: str


@dataclass(frozen=True, slots=True)
class IntelRdt:
    """A class of service of Intel Resource Director Technology (CDI `intelRdt`, CDI 0.7).

    clos_id: name of the class: a directory below `/sys/fs/resctrl`, at most 4095 bytes, or `/` for the default class.
        None: the runtime makes a class for the container.
    l3_cache_schema: lines for L3 cache and code/data prioritization, such as `L3:0=f;1=f`. None: unchanged.
    mem_bw_schema: line for memory bandwidth, such as `MB:0=50;1=50`. None: unchanged.
    schemata: lines of the file `schemata`, such as `("L3:0=f", "MB:0=50")`. It needs CDI 1.1.
    enable_monitoring: True: make a monitoring group for the container. It needs CDI 1.1.
    """

    clos_id: str | None = None
    l3_cache_schema: str | None = None
    mem_bw_schema: str | None = None
    schemata: Sequence[str] = ()
    enable_monitoring: bool = False


@dataclass(frozen=True, slots=True)
class EnvList:
    """A variable that several devices fill together, such as `NVIDIA_VISIBLE_DEVICES=0,1` (`ContainerEdits.env_lists`).

    values: what one device adds: texts that are not empty and do not contain the separator. Each comes once.
    separator: what stands between two values, such as `,` or `:`. All devices must say the same.
    """

    values: Sequence[str]
    separator: str = ","

    def __post_init__(self) -> None:
        """Keep the values as a tuple; a plain string stays, and is refused."""
        if not isinstance(self.values, str):
            object.__setattr__(self, "values", tuple(dict.fromkeys(self.values)))

    def __str__(self) -> str:
        return self.separator.join(self.values)


@dataclass(frozen=True, slots=True)
class ContainerEdits:
    """Everything that one device changes in a container that gets it (CDI `containerEdits`).

    A container that gets several devices gets the edits of all. Where two set one variable, device node or mount, the
    last one is used: put the request (`device.base_request`) or the device into the name. What they set equally comes
    once; hooks run for each; a network interface that two devices move is an error of the runtime. `left + right` joins
    two edits of one device.

        ContainerEdits(env={"GPU": "0"}, device_nodes=[DeviceNode("/dev/gpu0")])

    env: environment variables. A name must not be empty or contain `=`.
    env_lists: what this device adds to variables that the devices of a container fill together: an `EnvList`, or its
        values if commas separate them. `{"NVIDIA_VISIBLE_DEVICES": ["0"]}` of two devices is
        `NVIDIA_VISIBLE_DEVICES=0,1` in the containers of their request, in the order of the allocation; of devices of
        several requests, claims or drivers in one container only if the drivers are plugins of the container runtime
        (`DriverInfo.nri`). A name must not be in `env` of a device of the claim as well.
    device_nodes: device nodes to create.
    mounts: mounts, in this order.
    hooks: programs of the host to call.
    net_devices: network interfaces to move into the container.
    additional_gids: supplementary groups of the container's process, from 0 to 4294967295. It needs CDI 0.7.
    intel_rdt: class of service. None: unchanged.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    env_lists: Mapping[str, EnvList | Sequence[str]] = field(default_factory=dict, kw_only=True)
    device_nodes: Sequence[DeviceNode] = ()
    mounts: Sequence[Mount] = ()
    hooks: Sequence[OciHook] = ()
    net_devices: Sequence[NetDevice] = ()
    additional_gids: Sequence[int] = ()
    intel_rdt: IntelRdt | None = None

    def __add__(self, other: ContainerEdits) -> ContainerEdits:
        """Join both edits. If both set a variable or a class of service, that of `other` wins.

        Lists of one variable are joined, HookError if their separators differ. Of equal device nodes, mounts, network
        interfaces and groups one stays; hooks may be there twice on purpose.
        """
        return ContainerEdits(
            env={**self.env, **other.env},
            env_lists=joined_env_lists((self.env_lists, other.env_lists)),
            device_nodes=_unique(self.device_nodes, other.device_nodes),
            mounts=_unique(self.mounts, other.mounts),
            hooks=(*self.hooks, *other.hooks),
            net_devices=_unique(self.net_devices, other.net_devices),
            additional_gids=_unique(self.additional_gids, other.additional_gids),
            intel_rdt=other.intel_rdt or self.intel_rdt,
        )


def joined_env_lists(parts: Iterable[Mapping[str, EnvList | Sequence[str]]]) -> dict[str, EnvList]:
    """Return the variables that `parts` fill together, in their order. HookError if separators of one differ."""
    joined: dict[str, EnvList] = {}
    for part in parts:
        for name, filled in part.items():
            more = filled if isinstance(filled, EnvList) else EnvList(filled)
            known = joined.get(name, more)
            if known.separator != more.separator:
                raise HookError(
                    f"env_lists: {name} is separated by {known.separator!r} and by {more.separator!r}; "
                    "all devices must say the same"
                )
            joined[name] = more if known is more else EnvList([*known.values, *more.values], more.separator)
    return joined


def _unique(left: Sequence[_T], right: Sequence[_T]) -> tuple[_T, ...]:
    """Return all of both, of equal ones the first. Mounts need not be hashable: options may be a list."""
    distinct: list[_T] = []
    for item in (*left, *right):
        if item not in distinct:
            distinct.append(item)
    return tuple(distinct)
