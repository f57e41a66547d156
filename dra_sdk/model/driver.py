"""What a driver says about itself, and the node that it runs on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dra_sdk.model.config import OpaqueConfig


@dataclass(frozen=True, slots=True)
class DriverInfo:
    """The answer of `dra_driver_info`.

        DriverInfo("gpu.example.com", configs=[GpuConfig])

    name: name of the driver in ResourceSlices, claims and sockets: a DNS subdomain of at most 63 characters, in a
        domain of its vendor.
    configs: classes of opaque configuration that the driver accepts, each with its own `api_version` and `kind`. A
        claim without configuration gets the defaults of the first one.
    cdi_kind: kind of the driver's CDI devices, `vendor/class`. Empty: `<name>/device`.
    metadata: True: containers get a read-only file with the attributes of their devices (KEP-5304).
    capture: files and directories that `dra-sdk capture --driver NAME` records beyond those of every node, as absolute
        patterns: `/sys/class/fpga/*`.
    """

    name: str
    configs: Sequence[type[OpaqueConfig]] = ()
    cdi_kind: str = ""
    metadata: bool = False
    capture: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Fill in the default CDI kind."""
        if not self.cdi_kind:
            short = len(str(self.name)) == 1  # containerd 2.1 crashes on a vendor of one character
            vendor = f"dra.{self.name}" if short else self.name
            object.__setattr__(self, "cdi_kind", f"{vendor}/device")


@dataclass(frozen=True, slots=True)
class Node:
    """The node that a hook runs on.

        for device in read_pci_devices(Host(node.root)):  # both from dra_sdk.hardware
            ...

    name: name of the Node object in the API.
    root: directory with the host's `/sys`, `/proc` and `/dev`: `/` on the node itself, the mount of the host's root in
        a container, or a directory that a test filled.
    """

    name: str
    root: Path = Path("/")
