"""What a driver cannot read of its hardware."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from dra_sdk.model.omissions import Omission
from dra_sdk.tools.doctor.diagnosis import Diagnosis, Status

_COSTS: Final = {True: "so the device is not published", False: "so devices lack what it describes"}


def hardware(driver: str, omissions: Collection[Omission]) -> Iterator[Diagnosis]:
    """Yield what a discovery of a driver left out: a device is missing, a fact of one is unknown."""
    if not omissions:
        yield Diagnosis("ok", f"hardware of {driver}", "all that it reads can be read")
    for omission in sorted(omissions, key=lambda omission: (not omission.is_device, omission)):
        remedy = f"read it as root on the node: the kernel or the card refuses it, {_COSTS[omission.is_device]}"
        status: Status = "missing" if omission.is_device else "unknown"
        yield Diagnosis(status, omission.subject, omission.reason, remedy)
