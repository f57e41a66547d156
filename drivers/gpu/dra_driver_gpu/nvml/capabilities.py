"""MIG capabilities: the device nodes that open a GPU instance and a compute instance to a container.

Source: the MIG user guide, "Device Nodes and Capabilities". The driver tells minor number and mode of each node in
`/proc/driver/nvidia/capabilities/gpu<minor>/mig/gi<g>[/ci<c>]/access`; the numbers of all that can ever exist are in
`/proc/driver/nvidia-caps/mig-minors`. The major number is that of `nvidia-caps` in `/proc/devices`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dra_sdk.errors import HardwareError
from dra_sdk.hardware import Host, read_text

CAPS_DRIVER: Final = "nvidia-caps"


@dataclass(frozen=True)
class Capability:
    """One capability: `path` is the device node, `mode` its permissions (0o444: everybody who has it may use it)."""

    path: str
    major: int
    minor: int
    mode: int


def device_major(host: Host, driver: str) -> int:
    """The major number of a character device driver such as `nvidia-caps`. Raises HardwareError where it has none."""
    path = host.proc / "devices"
    for line in read_text(path).partition("Block devices:")[0].splitlines():
        number, _, name = line.strip().partition(" ")
        if name.strip() == driver and number.isdigit():
            return int(number)
    raise HardwareError(f"{path}: no character device {driver}; is the NVIDIA kernel module loaded?")


def mig_capability(host: Host, gpu_minor: int, gpu_instance: int, compute_instance: int | None = None) -> Capability:
    """What opens a GPU instance, or one compute instance of it.

    Raises HardwareError where the instance does not exist, or the driver tells something else than a minor and a mode.
    """
    access = host.proc / "driver/nvidia/capabilities" / f"gpu{gpu_minor}" / "mig" / f"gi{gpu_instance}"
    if compute_instance is not None:
        access /= f"ci{compute_instance}"
    return _read(host, access / "access")


def mig_capabilities(host: Host, gpu_minor: int, gpu_instance: int, compute_instance: int) -> list[Capability]:
    """Both capabilities that a process on a MIG device needs."""
    return [
        mig_capability(host, gpu_minor, gpu_instance),
        mig_capability(host, gpu_minor, gpu_instance, compute_instance),
    ]


def monitor_capability(host: Host) -> Capability:
    """What lets a process see all MIG devices, as monitoring does. Raises HardwareError where MIG is not offered."""
    return _read(host, host.proc / "driver/nvidia/capabilities/mig/monitor")


def mig_minors(host: Host) -> dict[str, int]:
    """Minor numbers by capability, such as `gpu0/gi1/ci0/access`; those of instances that do not exist as well."""
    path = host.proc / "driver" / CAPS_DRIVER / "mig-minors"
    minors = {}
    for line in read_text(path).splitlines():
        name, _, number = line.rpartition(" ")
        if not name or not number.isdigit():
            raise HardwareError(f"{path}: expected a capability and a number, found {line!r}")
        minors[name] = int(number)
    return minors


def _read(host: Host, path: Path) -> Capability:
    lines = read_text(path).splitlines()
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    try:
        minor, mode = int(fields["DeviceFileMinor"]), int(fields["DeviceFileMode"])
    except (KeyError, ValueError):
        raise HardwareError(f"{path}: expected DeviceFileMinor and DeviceFileMode, found {' '.join(lines)!r}") from None
    node = f"/dev/{CAPS_DRIVER}/nvidia-cap{minor}"
    return Capability(path=node, major=device_major(host, CAPS_DRIVER), minor=minor, mode=mode)
