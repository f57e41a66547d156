"""Fixtures for every test."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def socket_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a short path: a socket's has at most 107 bytes, and `tmp_path` holds the name of the test."""
    return tmp_path_factory.mktemp("s")
