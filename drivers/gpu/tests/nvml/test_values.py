"""Values of NVML: labels, addresses, placements."""

from __future__ import annotations

import pytest
from dra_driver_gpu.nvml.values import AddressingMode, Architecture, Brand, PciInfo, Placement


def test_labels_are_those_that_are_published():
    assert Architecture.ADA.label == "Ada Lovelace"
    assert [one.label for one in (Architecture.AMPERE, Architecture.UNKNOWN)] == ["Ampere", "Unknown"]
    assert [one.label for one in (Brand.NVIDIA, Brand.GEFORCE_RTX, Brand.TESLA)] == ["Nvidia", "GeForceRTX", "Tesla"]
    assert [one.label for one in AddressingMode] == ["None", "HMM", "ATS"]


@pytest.mark.parametrize("brand", Brand)
def test_every_brand_has_a_label(brand):
    assert brand.label


def test_pci_address_is_spelled_as_in_sysfs():
    info = PciInfo("0001ABCD:0A:1F.0", 0x1ABCD, 0x0A, 0x1F, 0x20B010DE, 0)
    assert info.address == "1abcd:0a:1f.0"
    assert (info.product_id, info.vendor_id) == (0x20B0, 0x10DE)


@pytest.mark.parametrize(
    ("one", "other", "overlap"), [((0, 4), (4, 4), False), ((0, 4), (3, 1), True), ((2, 2), (0, 8), True)]
)
def test_placements_overlap(one, other, overlap):
    assert Placement(*one).overlaps(Placement(*other)) is overlap
    assert Placement(*other).overlaps(Placement(*one)) is overlap
