"""Runs the tests of the harness on this machine. Those in `attach`, `inside`, `rebooted` run in the virtual machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.harness.progress import Progress
from tests.cluster.manifests import device_class
from tests.lab.harness.node import DAEMONS, LIMIT, PAUSE, Node

collect_ignore = [] if os.environ.get("DRA_SDK_LAB") else ["attach", "inside", "rebooted"]


@pytest.fixture(scope="session")
def node(pytestconfig: pytest.Config) -> Iterator[Node]:
    """The virtual machine, joined to the control plane on the host. Containers run on afterwards."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print()
        joined = Node.join(Progress(interval=10))
    yield joined
    joined.leave()


@pytest.fixture(autouse=True)
def node_runs(request: pytest.FixtureRequest) -> None:
    """Fails a test of the node at once if a test before has left it without kubelet or containerd."""
    if "node" in request.fixturenames:
        states = request.getfixturevalue("node").component_states()
        gone = [name for name in DAEMONS if not states[name]]
        assert not gone, f"{', '.join(gone)} does not run: a test before has failed"


class NodeDriver(DriverUnderTest):
    """A driver on the node."""

    def wait(self, check: Callable[[], object], timeout: float = LIMIT) -> None:
        """Does what `DriverUnderTest.wait` does, at longer intervals: see `PAUSE`."""

        def check_after_pause() -> object:
            time.sleep(PAUSE)
            return check()

        super().wait(check_after_pause, timeout)


@contextmanager
def running(node: Node, target: str, name: str, directory: Path, **variables: str) -> Iterator[NodeDriver]:
    """Runs a driver under the drivers' own account; the kubelet and containerd know it. `variables` are its settings.

    There is a DeviceClass of its name for all its devices.
    """
    add_class(node, name, name)
    driver = NodeDriver(node, target, name, directory)
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in variables.items():
            patch.setenv(variable, value)
        driver.start("--nri-socket", str(node.nri_socket))
    try:
        driver.wait(lambda: connections(driver) and driver.ready())
        yield driver
        assert driver.stop(LIMIT) == 0, driver.log_text()
    finally:
        if driver.running():
            driver.kill()
        print(driver.log_text())


def add_class(node: Node, name: str, driver: str, condition: str = "true") -> None:
    """Creates a DeviceClass for devices of a driver, unless the boot before has created it."""
    path = "/apis/resource.k8s.io/v1/deviceclasses"
    if node.api.get(f"{path}/{name}") is None:
        node.api.create(path, device_class(name, driver, condition))


def connections(driver: NodeDriver) -> int:
    """Returns how often a driver has connected to containerd since its start."""
    return driver.log_since_start().count("connected to containerd")


@pytest.fixture(scope="session")
def cpus(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeDriver]:
    """The CPU driver."""
    with running(node, "cpu", "dra.cpu", tmp_path_factory.mktemp("cpus")) as driver:
        yield driver
