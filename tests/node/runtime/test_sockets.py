"""Upstream kubelet-plugin specs that need no real kubelet; tests/cluster/README.md has the table of all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dra_sdk.loader import Driver
from dra_sdk.node.runtime import sockets
from dra_sdk.node.runtime.process import DriverProcess
from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.tools.simulator import AllocatedDevice, EmbeddedCluster
from tests.embedded import settings_for
from tests.lamps import NAME, LampDriver
from tests.node.runtime.conftest import ANY_PORT, Web


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        running.create_class("lamp")
        running.create_claim("one", {"lamp": "lamp"})
        running.allocate("one", [AllocatedDevice("lamp", NAME, running.node_name, "lamp-0")])
        yield running


def process(cluster: EmbeddedCluster, **changes: object) -> DriverProcess:
    return DriverProcess(Driver.of(LampDriver()), settings_for(cluster, **changes))


@pytest.mark.parametrize("lost", ["registration", "service"])
def test_a_lost_socket_is_told_and_made_again(
    cluster: EmbeddedCluster, lost: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sockets, "LOOK_SECONDS", 0.05)
    with process(cluster) as driver:
        cluster.kubelet.wait_for_driver(NAME)
        path = getattr(driver.paths, lost)
        driver.registration.registered.clear()
        path.unlink()
        wait(path.exists)
        assert f"{path} was removed or replaced" in caplog.text
        if lost == "registration":
            assert driver.registration.registered.wait(LONG)
        cluster.kubelet.wait_for_driver(NAME)
        # The kubelet's connection leads to the server that just ends, so its first call may be cut off.
        cluster.kubelet.retry(lambda: cluster.run_pod("lit", ["one"]))


def test_two_processes_share_the_work_and_each_answers_for_its_own(cluster: EmbeddedCluster, web: Web) -> None:
    def pages(number: int) -> list[int]:
        return [web.read(page, number)[0] for page in ("/healthz", "/readyz")]

    with process(cluster, serve="registration", http_address=ANY_PORT) as registrar:
        assert registrar.registration.registered.wait(LONG)
        assert not cluster.api.list("resourceslices")
        assert pages(0) == [200, 200]
        with process(cluster, serve="service", http_address=ANY_PORT) as service:
            cluster.wait_slices(NAME)
            cluster.kubelet.wait_for_driver(NAME)
            wait(lambda: pages(1) == [200, 200])
            cluster.run_pod("lit", ["one"])
            assert [held.name for held in service.preparer.held()] == ["one"]
        assert pages(0) == [200, 200]
