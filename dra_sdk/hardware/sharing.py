"""Sharing policies (KEP-5075): several claims on one device, each with a part of a capacity, or a number of shares.

Sharing("divided", capacity="bandwidth", step="1Gi").apply(device)  # each claim has a part of the bandwidth
Sharing("shares", 4).apply(device)  # four claims
Sharing.parse("unlimited").apply(device)  # as an operator writes it in a setting
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, TypeAlias

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema

from dra_sdk.errors import DraError
from dra_sdk.model.device import Amount, Capacity, Device, RequestPolicy
from dra_sdk.model.quantity import Quantity
from dra_sdk.model.settings import Parsed

MEMORY: Final = "memory"
"""The capacity that claims divide unless the driver names another."""
SHARES: Final = "shares"
"""The capacity that counts claims."""
_UNDIVIDED: Final = RequestPolicy(default=0, min=0)
_Amounts: TypeAlias = Mapping[str, Capacity | Amount]


@dataclass(frozen=True, slots=True)
class Sharing:
    """How claims share a device. A field of a driver's settings may have this type; it is read with `parse`.

    kind: `disabled`: one claim has the device. `divided`: as many as the divided capacity allows. `shares`: `number`
        claims. `unlimited`: any number.
    number: with `shares`, how many claims.
    capacity: name of the capacity of which each claim takes a part. With `shares` and `unlimited`, a claim that names
        no amount of it takes none.
    step: the parts are multiples of this amount; the capacity is rounded down to one.
    default: with `divided`, what a claim takes that names no amount. None: all of the capacity.
    """

    kind: Literal["disabled", "divided", "unlimited", "shares"] = "disabled"
    number: int = 0
    capacity: str = MEMORY
    step: Amount = "1Mi"
    default: Amount | None = None
    accepts: ClassVar[str] = "disabled, memory, unlimited or a number of claims"

    def __post_init__(self) -> None:
        """Raise DraError if the step is not an amount above 0."""
        if Quantity(self.step).value <= 0:
            raise DraError(f"sharing of capacity {self.capacity}: step must be greater than 0, is {self.step}")

    @classmethod
    def parse(cls, text: str, capacity: str = MEMORY, step: Amount = "1Mi") -> Sharing:
        """Read `disabled`, the name of `capacity`, `unlimited` or a number of shares from 2. DraError for others."""
        if text in {"", "disabled"}:
            return cls(capacity=capacity, step=step)
        if text == capacity:
            return cls("divided", capacity=capacity, step=step)
        if text == "unlimited":
            return cls("unlimited", capacity=capacity, step=step)
        if text.isdecimal() and int(text) > 1:
            return cls("shares", int(text), capacity, step)
        raise DraError(f"sharing is {text!r}: must be disabled, {capacity}, unlimited or a number of shares from 2")

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        return {"shares": str(self.number), "divided": self.capacity}.get(self.kind, self.kind)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """As a setting, it is text."""
        return Parsed(cls.parse).__get_pydantic_core_schema__(source, handler)

    def apply(self, device: Device) -> Device:
        """Return the device as this policy publishes it; one that lacks the capacity to divide stays undivided."""
        if self.kind == "disabled" or (self.kind == "divided" and self.capacity not in device.capacity):
            return device
        return replace(device, capacity=self._capacities(device.capacity), allow_multiple_allocations=True)

    def _capacities(self, capacities: _Amounts) -> dict[str, Capacity | Amount]:
        """Give every capacity a policy, because without one the first claim takes all of it.

        Only one is divided: on the others, such as multiprocessors and engines, claims take turns.
        """
        shared: dict[str, Capacity | Amount] = {}
        for name, capacity in capacities.items():
            amount = Quantity(capacity.value if isinstance(capacity, Capacity) else capacity)
            shared[name] = self._divided(amount) if name == self.capacity else Capacity(amount, _UNDIVIDED)
        if self.kind == "shares":
            shared[SHARES] = Capacity(self.number, RequestPolicy(default=1, min=1, max=self.number, step=1))
        return shared

    def _divided(self, total: Quantity) -> Capacity:
        step = Quantity(self.step)
        rounded = Quantity.of(total.value // step.value * step.value, binary=step.binary)
        if self.kind != "divided":
            return Capacity(rounded, RequestPolicy(default=0, min=0, step=step))
        default = rounded if self.default is None else self.default
        if rounded.value == step.value:  # the API server refuses a step that leads beyond the capacity
            return Capacity(rounded, RequestPolicy(default=default, valid_values=[step]))
        return Capacity(rounded, RequestPolicy(default=default, min=step, step=step))
