"""A node for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.prepare.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """An empty node."""
    made = World(tmp_path)
    yield made
    made.close()
