"""Attributes of GPUs and MIG devices, with the names and spellings that claims in the field select by."""

from __future__ import annotations

from typing import Final

from dra_driver_gpu.describe.cards import Card
from dra_sdk import AttributeValue, Version
from dra_sdk.hardware import pci_attributes

_LONGEST: Final = 64  # characters of a string attribute


def cuda_version(number: int) -> Version:
    """What NVML tells as 1000 * major + 10 * minor: 13000 → `13.0.0`."""
    return Version.lenient(f"{number // 1000}.{number % 1000 // 10}")


def inherited(card: Card) -> dict[str, AttributeValue]:
    """What a GPU and every part of it have in common."""
    attributes: dict[str, AttributeValue] = {
        "productName": card.product[:_LONGEST],
        "brand": card.brand.label,
        "architecture": card.architecture.label,
        "cudaComputeCapability": Version.lenient(f"{card.compute_capability[0]}.{card.compute_capability[1]}"),
        "driverVersion": Version.lenient(card.driver_version),
    }
    if card.cuda_version is not None:
        attributes["cudaDriverVersion"] = cuda_version(card.cuda_version)
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
