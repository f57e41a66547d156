"""Runs the tests of the harness on this machine. Those in `inside` and `rebooted` run in the virtual machine only."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.harness.progress import Progress
from tests.cluster.manifests import device_class
from tests.lab.harness.node import LIMIT, Node

collect_ignore = [] if os.environ.get("DRA_SDK_LAB") else ["inside", "rebooted"]


@pytest.fixture(scope="session")
def node(pytestconfig: pytest.Config) -> Iterator[Node]:
    """The virtual machine, joined to the control plane on the host. Containers run on afterwards."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print()
        joined = Node.join(Progress(interval=10))
    yield joined
    joined.leave()


@pytest.fixture(scope="session")
def cpus(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriverUnderTest]:
    """The CPU driver under the drivers' own account, registered with the kubelet."""
    classes = "/apis/resource.k8s.io/v1/deviceclasses"
    if node.api.get(f"{classes}/dra.cpu") is None:
        node.api.create(classes, device_class("dra.cpu", "dra.cpu"))
    driver = DriverUnderTest(node, "cpu", "dra.cpu", tmp_path_factory.mktemp("driver"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRA_CPU_SHARED_POOL", "optional")  # two claims of two CPUs have all four
        driver.start()
    try:
        driver.wait(driver.ready, LIMIT)
        yield driver
        assert driver.stop(LIMIT) == 0, driver.log_text()
    finally:
        if driver.running():
            driver.kill()
        print(driver.log_text())
