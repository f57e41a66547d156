"""A static busybox, from the files of the machine that `make test-lab` makes before it runs tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.harness.cache import Cache
from tests.cluster.harness.progress import Progress
from tests.lab.harness.layers import ensure_layers
from tests.lab.harness.outcome import ROOT


@pytest.fixture(scope="session")
def busybox() -> Path:
    return ensure_layers(Cache.from_env(), ROOT, Progress()).base / "usr/bin/busybox"
