"""Allow-lists and hide-lists."""

from __future__ import annotations

import pytest
from dra_driver_gpu.selection import GpuName, Selection

GPU = GpuName(3, "GPU-2fa81118-0000-4000-8000-000000000001", "0000:65:00.0", "NVIDIA A100-SXM4-40GB")


@pytest.mark.parametrize(
    ("word", "means_it"),
    [
        ("3", True),
        ("03", True),
        ("33", False),
        ("gpu-2FA81118-0000-4000-8000-000000000001", True),
        ("GPU-2fa81118", False),
        ("65:00.0", True),
        ("0000:65:00.0", True),
        ("0000:66:00.0", False),
        ("*A100*", True),
        ("nvidia a100-sxm4-40gb", True),
        ("A100", False),
        ("*H100*", False),
    ],
)
def test_a_word_means_a_gpu(word, means_it):
    assert GPU.matches(word) is means_it


def test_an_empty_allow_list_allows_all_and_hiding_wins():
    assert Selection().wants(GPU)
    assert not Selection(allow=["0"]).wants(GPU)
    assert Selection(allow=["0", "*A100*"]).wants(GPU)
    assert not Selection(allow=["3"], hide=["65:00.0"]).wants(GPU)


def test_a_gpu_of_which_only_the_address_is_known():
    hidden = GpuName(pci_address="0000:65:00.0")
    assert Selection(hide=["*", "0"]).wants(hidden)
    assert not Selection(hide=["65:00.0"]).wants(hidden)


def test_lists_are_separated_by_commas():
    assert Selection.parse(" 0, *A100* ,,65:00.0") == ("0", "*A100*", "65:00.0")


@pytest.mark.parametrize(
    ("text", "why"), [("MIG-1", "MIG device"), ("65:00", "not a PCI address"), ("gpu-0", "say its minor number, 0")]
)
def test_a_word_that_can_mean_no_gpu(text, why):
    with pytest.raises(ValueError, match=why):
        Selection.parse(text)
