"""`dra-sdk claims` with the embedded API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_sdk.tools.simulator import AllocatedDevice, EmbeddedCluster
from tests.cli.commands import Run, runner


@pytest.fixture
def cluster(socket_dir: Path) -> Iterator[EmbeddedCluster]:
    """A cluster in which claim `web` has a CPU for a pod, `both` devices of two drivers, and `none` nothing."""
    with EmbeddedCluster("node-a", directory=socket_dir) as running:
        running.create_class("any")
        for name, drivers in {"web": ["dra.cpu"], "both": ["dra.cpu", "dra.net"], "none": []}.items():
            running.create_claim(name, {"request": "any"})
            if drivers:
                running.allocate(name, [device(driver) for driver in drivers])
        running.reserve("web", {"metadata": {"namespace": "default", "name": "web-0", "uid": "1"}})
        yield running


def device(driver: str) -> AllocatedDevice:
    return AllocatedDevice("request", driver, "node-a", f"d-{driver.partition('.')[2]}")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def test_claims_with_devices_of_a_driver_are_named_with_their_pods(cluster: EmbeddedCluster, run: Run) -> None:
    result = run("claims", "dra.cpu", "--kubeconfig", cluster.kubeconfig)
    assert sorted(result.out.splitlines()) == [
        "default/both for no pod: dra.cpu/node-a/d-cpu",
        "default/web for web-0: dra.cpu/node-a/d-cpu",
    ]
    assert result.err == "2 claims have devices of dra.cpu: end their pods before a driver is removed\n"
    assert result.status == 1


def test_several_drivers_and_all(cluster: EmbeddedCluster, run: Run) -> None:
    both = {"claim": "default/both", "devices": ["dra.cpu/node-a/d-cpu", "dra.net/node-a/d-net"], "users": []}
    for drivers in (["dra.cpu", "dra.net"], []):
        result = run("claims", *drivers, "-o", "json", "--kubeconfig", cluster.kubeconfig)
        assert result.status == 1
        assert both in json.loads(result.out)
    assert run("claims", "dra.net", "--kubeconfig", cluster.kubeconfig).err.startswith("1 claim has devices of dra.net")


def test_a_driver_without_claims_is_free_to_go_and_a_misspelt_one_shows(cluster: EmbeddedCluster, run: Run) -> None:
    result = run("claims", "dra.cup", "--kubeconfig", cluster.kubeconfig)
    assert (result.status, result.out) == (0, "")
    assert result.err == "no claim has devices of dra.cup; there are claims of dra.cpu, dra.net\n"
    for name in ("web", "both"):
        cluster.deallocate(name)
    assert run("claims", "--kubeconfig", cluster.kubeconfig).err == "no claim has devices of any driver\n"


def test_a_server_that_does_not_answer_is_no_answer(cluster: EmbeddedCluster, run: Run, tmp_path: Path) -> None:
    config = Path(cluster.kubeconfig).read_text().replace(cluster.server.url, "https://127.0.0.1:1")
    (tmp_path / "config").write_text(config)
    assert run("claims", "--kubeconfig", tmp_path / "config").status == 2
