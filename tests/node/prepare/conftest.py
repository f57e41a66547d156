"""A node for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node.prepare.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An empty node."""
    return World(tmp_path)
