"""Values of NVML: labels and addresses."""

from __future__ import annotations

import pytest
from dra_driver_gpu.nvml.values import AddressingMode, Architecture, Brand, PciInfo


def test_labels():
    assert Architecture.ADA.label == "Ada Lovelace"
    assert [architecture.label for architecture in (Architecture.AMPERE, Architecture.UNKNOWN)] == ["Ampere", "Unknown"]
    assert [brand.label for brand in (Brand.NVIDIA, Brand.GEFORCE_RTX, Brand.TESLA)] == [
        "Nvidia",
        "GeForceRTX",
        "Tesla",
    ]
    assert [mode.label for mode in AddressingMode] == ["None", "HMM", "ATS"]


@pytest.mark.parametrize("brand", Brand)
def test_every_brand_has_a_label(brand):
    assert brand.label


def test_pci_addresses_are_written_as_in_sysfs():
    info = PciInfo("0001ABCD:0A:1F.0", 0x1ABCD, 0x0A, 0x1F, 0x20B010DE, 0)
    assert info.address == "1abcd:0a:1f.0"
    assert info.product_id == 0x20B0
