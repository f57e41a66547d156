"""Sharing policies (KEP-5075): several claims on one device, each with a part of its memory or a number of shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, TypeAlias

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema

from dra_sdk.errors import DraError
from dra_sdk.model.device import Capacity, Device, RequestPolicy
from dra_sdk.model.quantity import Quantity
from dra_sdk.model.settings import FromText

MEMORY: Final = "memory"
"""The capacity that claims divide."""
SHARES: Final = "shares"
"""The capacity that counts claims."""
Amounts: TypeAlias = Mapping[str, Capacity | Quantity | int | str]
_MIB: Final = 1 << 20
_UNDIVIDED: Final = RequestPolicy(default=0, min=0)


@dataclass(frozen=True, slots=True)
class Sharing:
    """How claims share a device. A field of a driver's settings may have this type; it is read with `parse`.

    kind: `disabled` for one claim, `memory` for as many as its memory allows, `unlimited`, or `shares` for `number`.
    number: with `shares`, how many claims.
    """

    kind: Literal["disabled", "memory", "unlimited", "shares"] = "disabled"
    number: int = 0
    accepts: ClassVar[str] = "disabled, memory, unlimited or a number of claims"

    @classmethod
    def parse(cls, text: str) -> Sharing:
        """Read `disabled`, `memory`, `unlimited` or a number of shares from 2. Raises DraError for anything else."""
        if text in {"", "disabled"}:
            return cls()
        if text == "memory":
            return cls("memory")
        if text == "unlimited":
            return cls("unlimited")
        if text.isdecimal() and int(text) > 1:
            return cls("shares", int(text))
        raise DraError(f"sharing is {text!r}: must be disabled, memory, unlimited or a number of shares from 2")

    def __str__(self) -> str:
        """The text that `parse` reads."""
        return str(self.number) if self.kind == "shares" else self.kind

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """As a setting, it is text."""
        return FromText(cls.parse).__get_pydantic_core_schema__(source, handler)

    def apply(self, device: Device) -> Device:
        """The device as it is published with this policy."""
        if self.kind == "disabled":
            return device
        return replace(device, capacity=self._capacity(device.capacity), allow_multiple_allocations=True)

    def _capacity(self, capacity: Amounts) -> dict[str, Capacity | Quantity | int | str]:
        """Without a policy the first claim takes all of a capacity, so every capacity gets one.

        Only memory is divided: claims take turns on multiprocessors and engines.
        """
        shared: dict[str, Capacity | Quantity | int | str] = {}
        for name, each in capacity.items():
            amount = Quantity(each.value if isinstance(each, Capacity) else each)
            shared[name] = self._memory(amount) if name == MEMORY else Capacity(amount, _UNDIVIDED)
        if self.kind == "shares":
            shared[SHARES] = Capacity(self.number, RequestPolicy(default=1, min=1, max=self.number, step=1))
        return shared

    def _memory(self, total: Quantity) -> Capacity:
        """Memory in steps of 1 MiB. A claim without an amount gets all of it with `memory`, else none."""
        rounded = Quantity(f"{int(total.value) // _MIB}Mi")
        if self.kind == "memory":
            return Capacity(rounded, RequestPolicy(default=rounded, min="1Mi", step="1Mi"))
        return Capacity(rounded, RequestPolicy(default=0, min=0, step="1Mi"))
