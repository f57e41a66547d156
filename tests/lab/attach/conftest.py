"""These tests change the network of the machine that they run on."""

from __future__ import annotations

import os

import pytest


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("DRA_SDK_LAB") != "inside" and not config.option.collectonly:
        raise pytest.UsageError(
            "these tests give network cards to pods: they run in the virtual machine (make bench-lab)"
        )
