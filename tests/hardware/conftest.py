"""A node with PCI functions, for the tests of blocks that bind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dra_sdk.testing import FakeNode
from dra_sdk.testing.sysfs import FakePci, regular_machine

CARD = FakePci(address="0000:10:00.0", vendor=0x10DE, device=0x27B8, class_code=0x030200, driver="card", iommu_group=20)
"""A card at the address that the tests name."""


@pytest.fixture
def make_node(tmp_path: Path) -> Callable[..., FakeNode]:
    """Makes a node with these PCI functions, by default one card."""

    def make(*functions: FakePci) -> FakeNode:
        node = FakeNode(tmp_path)
        node.machine(replace(regular_machine(cores=1, threads=1), pci=functions or (CARD,)))
        return node

    return make
