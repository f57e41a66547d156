"""Real servers on unix sockets, and a node whose engine is behind one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node.prepare.world import World
from tests.rpc.conftest import Dial, Serve, begin, call, dial, serve

__all__ = ["Dial", "Serve", "begin", "call", "dial", "serve"]


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A node for tests that put the engine behind the socket."""
    return World(tmp_path)
