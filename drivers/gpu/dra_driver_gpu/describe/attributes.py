"""Attributes of GPUs and MIG devices, with the names and spellings that claims in the field select by."""

from __future__ import annotations

from typing import Final

from dra_driver_gpu.describe.cards import Card
from dra_sdk import AttributeValue, Version
from dra_sdk.hardware import pci_attributes

_LONGEST: Final = 64  # characters of a string attribute
_PARTS: Final = 3


def version(text: str) -> Version:
    """A driver's version as a semantic one: three parts without leading zeros, `580.95.05` → `580.95.5`."""
    numbers = [str(int(part)) for part in text.split(".") if part.isdecimal()][:_PARTS]
    return Version(".".join([*numbers, *["0"] * (_PARTS - len(numbers))]))


def cuda_version(number: int) -> Version:
    """What NVML tells as 1000 * major + 10 * minor: 13000 → `13.0.0`."""
    return version(f"{number // 1000}.{number % 1000 // 10}")


def inherited(card: Card) -> dict[str, AttributeValue]:
    """What a GPU and every part of it have in common."""
    attributes: dict[str, AttributeValue] = {
        "productName": card.product[:_LONGEST],
        "brand": card.brand.label,
        "architecture": card.architecture.label,
        "cudaComputeCapability": version(f"{card.compute_capability[0]}.{card.compute_capability[1]}"),
        "driverVersion": version(card.driver_version),
        "cudaDriverVersion": cuda_version(card.cuda_version),
    }
    if card.addressing_mode is not None:
        attributes["addressingMode"] = card.addressing_mode.label
    if card.pci is not None:
        attributes |= pci_attributes(card.pci)
    return attributes


def of_gpu(card: Card) -> dict[str, AttributeValue]:
    """A whole GPU's."""
    return {"type": "gpu", "uuid": card.uuid, **inherited(card)}


def of_mig(card: Card, profile: str, uuid: str | None = None) -> dict[str, AttributeValue]:
    """A MIG device's; one that is yet to be made has no UUID."""
    own: dict[str, AttributeValue] = {"type": "mig", "parentUUID": card.uuid, "profile": profile}
    return (own if uuid is None else {**own, "uuid": uuid}) | inherited(card)
