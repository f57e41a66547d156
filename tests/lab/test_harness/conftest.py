"""A program that runs without any library, from the machine's files, which `make test-lab` has made before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.harness.cache import Cache
from tests.cluster.harness.progress import Progress
from tests.lab.collected import ROOT
from tests.lab.harness.layers import ensure_layers


@pytest.fixture(scope="session")
def busybox() -> Path:
    return ensure_layers(Cache.from_env(), ROOT, Progress()).base / "usr/bin/busybox"
