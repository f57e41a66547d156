"""What a driver says about itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dra_sdk.model.config import OpaqueConfig


@dataclass(frozen=True, slots=True)
class DriverInfo:
    """The answer of `dra_driver_info`.

    `name` is the driver's name in ResourceSlices, claims and sockets: a DNS subdomain of at most 63 characters that
    belongs to its vendor. `configs` are the kinds of opaque configuration it accepts; the first is the default where a
    claim brings none. `cdi_kind` (`vendor/class`) names its CDI devices, by default `<name>/device`.
    `metadata` gives every container a read-only file with the attributes of its devices (KEP-5304).
    """

    name: str
    configs: Sequence[type[OpaqueConfig]] = ()
    cdi_kind: str = ""
    metadata: bool = False

    def __post_init__(self) -> None:
        """Fill in the default CDI kind."""
        if not self.cdi_kind:
            short = len(str(self.name)) == 1  # containerd 2.1 crashes on a vendor of one character
            vendor = f"dra.{self.name}" if short else self.name
            object.__setattr__(self, "cdi_kind", f"{vendor}/device")
