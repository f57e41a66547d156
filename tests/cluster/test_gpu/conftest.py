"""The GPU driver on the cluster's node, with two GPUs: one with MIG and one without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from dra_driver_gpu.testing.node import GpuNode
from dra_driver_gpu.testing.nvml import MemoryNvml
from dra_driver_gpu.testing.nvml_stub import StubServer, build_stub

from tests.cluster.deployed import release
from tests.cluster.drivers import Drivers
from tests.cluster.harness import leftovers
from tests.cluster.harness.cluster import Cluster
from tests.cluster.test_gpu.gpus import NAME, Gpus
from tests.cluster.test_gpu.kernel import KernelAnswers
from tests.cluster.test_gpu.tree import GPUS, make_tree

SETTINGS = {"DRA_GPU_DYNAMIC_MIG": "true", "DRA_GPU_PASSTHROUGH": "true"}


@pytest.fixture(scope="session")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_stub(tmp_path_factory.mktemp("stub"))


@pytest.fixture(scope="session")
def classes(cluster: Cluster) -> Iterator[None]:
    made = release({"drivers": {"gpu": {"enabled": True}}})
    classes = [each for each in made if each["kind"] == "DeviceClass"]
    cluster.apply(*classes)
    yield
    cluster.kubectl("delete", "deviceclasses", *(each["metadata"]["name"] for each in classes))


@pytest.fixture
def node(tmp_path: Path, stub: Path) -> Iterator[GpuNode]:
    made = make_tree(tmp_path / "node", stub)
    yield made
    left = leftovers.mounts_below(made.root, leftovers.parse_mounts(leftovers.MOUNTINFO.read_text()))
    leftovers.unmount_all(made.root)
    assert not left


@pytest.fixture
def settings() -> dict[str, str]:
    """The variables of the environment that a test adds for the driver."""
    return {}


@pytest.fixture
def target() -> str:
    """The driver, as `dra-sdk run` takes it."""
    return "gpu"


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryNvml]:
    """The GPUs behind the stub library of each process that is started from now on."""
    found = MemoryNvml(GPUS)
    with StubServer(KernelAnswers(found)) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture
def gpus(
    nvml: MemoryNvml,
    node: GpuNode,
    drivers: Drivers,
    settings: dict[str, str],
    target: str,
    monkeypatch: pytest.MonkeyPatch,
    classes: None,
) -> Gpus:
    """The driver with these settings. `drivers` comes after `node`, so pods and claims are deleted before the tree."""
    root = str(node.root)
    paths = {"DRA_SDK_HOST_ROOT": root, "DRA_GPU_DRIVER_ROOT": root, "DRA_GPU_STATE_DIR": f"{root}/state"}
    for name, value in {**paths, **SETTINGS, **settings}.items():
        monkeypatch.setenv(name, value)
    return Gpus(drivers.start(target, NAME), nvml, node)
