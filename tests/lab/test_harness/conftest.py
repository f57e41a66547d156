"""The files of the machine, which `make test-lab` makes before it runs tests, and a static busybox from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.harness.cache import Cache
from tests.cluster.harness.progress import Progress
from tests.lab.harness.layers import Layers, ensure_layers
from tests.lab.harness.outcome import ROOT


@pytest.fixture(scope="session")
def machine_layers() -> Layers:
    return ensure_layers(Cache.from_env(), ROOT, Progress())


@pytest.fixture(scope="session")
def busybox(machine_layers: Layers) -> Path:
    return machine_layers.base / "usr/bin/busybox"
