from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dra_sdk.testing.waiting import LONG
from dra_sdk.tools.simulator.kubelet.emulator import KubeletEmulator
from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming
from dra_sdk.tools.simulator.local import LocalClient
from dra_sdk.tools.simulator.objects import ObjectStore

NODE = "node-1"


@pytest.fixture
def api() -> LocalClient:
    client = LocalClient(ObjectStore())
    client.create("namespaces", {"metadata": {"name": "default"}})
    client.create("nodes", {"metadata": {"name": NODE}})
    return client


@pytest.fixture
def kubelet_dir() -> Iterator[Path]:
    # Not tmp_path: a unix socket's path may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="dra-t-", dir="/tmp") as directory:
        for name in ("plugins", "plugins_registry"):
            Path(directory, name).mkdir()
        yield Path(directory)


@pytest.fixture
def timing() -> KubeletTiming:
    """Quick pauses and long deadlines; tests that are about a deadline set it themselves."""
    pauses = KubeletTiming(poll=0.02, backoff_first=0.05, reconnect_first=0.05, reconnect_last=0.1, health_retry=0.05)
    return replace(pauses, dial=LONG, get_info=LONG, notify=LONG)


@pytest.fixture
def kubelet(api: LocalClient, kubelet_dir: Path, timing: KubeletTiming) -> Iterator[KubeletEmulator]:
    with KubeletEmulator(NODE, api, kubelet_dir, timing=timing) as running:
        yield running
