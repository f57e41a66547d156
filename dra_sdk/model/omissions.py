"""What a discovery leaves out because the hardware does not let it be read: a fact of a device, or a device.

    try:
        card = read_card(path)
    except HardwareError as error:
        leave_out(f"card {path.name}", error)

A fact that only describes a device is left out by `read_optional` itself. Whoever calls a discovery collects what it
left out, and says it once: the driver's process in its log and metrics, `dra-sdk doctor` in a finding.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, order=True)
class Omission:
    """Something that is left out.

    subject: what could not be read: a file, or a device as `PCI function 0000:3b:00.0`.
    reason: why, as a sentence that names the file.
    is_device: whether a device is not published for it; else a device lacks what `subject` describes.
    """

    subject: str
    reason: str
    is_device: bool

    def __str__(self) -> str:
        return f"{self.subject} is left out: {self.reason}" if self.is_device else f"left out: {self.reason}"


_collected: ContextVar[set[Omission] | None] = ContextVar("omissions", default=None)


@contextmanager
def collecting_omissions() -> Iterator[set[Omission]]:
    """Collect what is left out within this `with`, in this thread."""
    omissions: set[Omission] = set()
    token = _collected.set(omissions)
    try:
        yield omissions
    finally:
        _collected.reset(token)


def leave_out(device: str, reason: Exception | str) -> None:
    """Say that a device is left out, because something without which it cannot be used cannot be read."""
    _add(Omission(device, str(reason), is_device=True))


def leave_out_fact(subject: str, reason: Exception | str) -> None:
    """Say that what only describes a device is left out."""
    _add(Omission(subject, str(reason), is_device=False))


def _add(omission: Omission) -> None:
    omissions = _collected.get()
    if omissions is None:  # outside of a discovery, as for health, the next discovery says it
        log.debug("%s", omission)
    else:
        omissions.add(omission)
