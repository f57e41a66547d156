"""The watch reports what the scheduler decided about pods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_sdk.tools.simulator import statuses
from dra_sdk.tools.simulator.faults import FaultRule, Reject
from dra_sdk.tools.simulator.local import LocalClient
from dra_sdk.tools.simulator.objects import ObjectStore
from dra_sdk.tools.simulator.server import ApiServer
from tests.cluster.differential.case import JSON
from tests.cluster.differential.pods import PodWatcher
from tests.cluster.harness.waiting import TIMEOUT


@pytest.fixture
def server() -> Iterator[ApiServer]:
    store = ObjectStore()
    LocalClient(store).create("namespaces", {"metadata": {"name": "default"}})
    with ApiServer(store) as running:
        yield running


def create(local: LocalClient, **spec: str) -> str:
    """Creates a pod; returns its UID."""
    pod: JSON = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lit"}, "spec": {"containers": [], **spec}}
    return str(local.create("pods", pod, "default")["metadata"]["uid"])


def test_an_earlier_pod_of_the_same_name_decides_nothing(server: ApiServer, tmp_path: Path) -> None:
    local = LocalClient(server.store)
    with PodWatcher(server.write_kubeconfig(tmp_path / "kubeconfig")).running() as watcher:
        first = create(local, nodeName="here")
        assert watcher.decided(first, TIMEOUT)
        local.delete("pods", "lit", "default")
        second = create(local)
        assert watcher.decided(second, 0.1) is None
        local.patch("pods", {"spec": {"nodeName": "there"}}, "lit", "default")
        found = watcher.decided(second, TIMEOUT)
        assert found is not None
        assert found["spec"]["nodeName"] == "there"


@pytest.mark.parametrize("verb", ["list", "watch"])
def test_a_server_that_is_too_busy_is_asked_again(server: ApiServer, tmp_path: Path, verb: str) -> None:
    server.faults.add(FaultRule(Reject(statuses.too_many_requests(0)), verb=verb, resource="pods", times=3))
    with PodWatcher(server.write_kubeconfig(tmp_path / "kubeconfig")).running() as watcher:
        assert watcher.decided(create(LocalClient(server.store), nodeName="here"), TIMEOUT)
