"""Sharing by the scheduler (KEP-5075): several claims, each with a part of a device's memory or a number of shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from dra_driver_gpu.describe.amounts import MEMORY, mebibytes
from dra_sdk import Capacity, Device, DraError, Quantity, RequestPolicy

_MIB: Final = 1 << 20
SHARES: Final = "shares"
_TOGETHER: Final = RequestPolicy(default=0, min=0)


@dataclass(frozen=True, slots=True)
class Sharing:
    """How claims share a device: not at all, by memory, without limit, or at most `number` of them."""

    kind: Literal["disabled", "memory", "unlimited", "shares"] = "disabled"
    number: int = 0

    @classmethod
    def parse(cls, text: str) -> Sharing:
        """`disabled`, `memory`, `unlimited` or a number of shares from 2; DraError for anything else."""
        if text in {"", "disabled"}:
            return cls()
        if text == "memory":
            return cls("memory")
        if text == "unlimited":
            return cls("unlimited")
        if text.isdecimal() and int(text) > 1:
            return cls("shares", int(text))
        raise DraError(f"sharing is {text!r}: must be disabled, memory, unlimited or a number of shares from 2")

    def applied(self, device: Device) -> Device:
        """The device as it is published with this way of sharing."""
        if self.kind == "disabled":
            return device
        return replace(device, capacity=self._capacity(device.capacity), allow_multiple_allocations=True)

    def _capacity(
        self, capacity: Mapping[str, Capacity | Quantity | int | str]
    ) -> dict[str, Capacity | Quantity | int | str]:
        """A claim takes all of a capacity that has no policy, and none would be left for a second: so each has one.

        Multiprocessors and engines are not divided, because claims take turns on all of them.
        """
        shared: dict[str, Capacity | Quantity | int | str] = {}
        for name, each in capacity.items():
            amount = Quantity(each.value if isinstance(each, Capacity) else each)
            shared[name] = self._memory(amount) if name == MEMORY else Capacity(amount, _TOGETHER)
        if self.kind == "shares":
            shared[SHARES] = Capacity(self.number, RequestPolicy(default=1, min=1, max=self.number, step=1))
        return shared

    def _memory(self, total: Quantity) -> Capacity:
        """Memory in steps of 1 MiB. A claim that names none gets all of it, or where memory is no limit, nothing."""
        rounded = mebibytes(int(total.value) // _MIB)
        if self.kind == "memory":
            return Capacity(rounded, RequestPolicy(default=rounded, min="1Mi", step="1Mi"))
        return Capacity(rounded, RequestPolicy(default=0, min=0, step="1Mi"))
