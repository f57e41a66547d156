"""A node for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.node.prepare.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """An empty node."""
    made = World(tmp_path)
    yield made
    made.close()


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A directory in memory, for a test that waits for its disk a thousand times: others may keep a real one busy."""
    with TemporaryDirectory(dir="/dev/shm") as directory:
        yield Path(directory)
