from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dra_sdk.errors import DraError, SettingsError
from dra_sdk.tools.conformance.catalog import CHECKS
from dra_sdk.tools.conformance.check import Need, Status
from dra_sdk.tools.conformance.runner import run_checks
from dra_sdk.tools.conformance.site import existing_site
from dra_sdk.tools.conformance.target import Target
from dra_sdk.tools.simulator import EmbeddedCluster
from tests.tools.conformance.conftest import QUICK
from tests.tools.conformance.mutants.driver import MutantDriver
from tests.tools.conformance.mutants.faults import NONE

NAME = "running.example.com"


@pytest.fixture
def running() -> Iterator[EmbeddedCluster]:
    """A node with a kubelet of its own and a driver."""
    with EmbeddedCluster() as cluster:
        cluster.kubelet.stop()
        with existing_site(cluster.registry_dir, cluster.kubeconfig, cluster.node_name, (cluster.cdi_dir,)) as site:
            driver = MutantDriver(NAME, site, NONE)
            driver.start()
            yield cluster
            driver.stop()


def target(cluster: EmbeddedCluster, **changes: object) -> Target:
    made = Target(registry=cluster.registry_dir, kubeconfig=cluster.kubeconfig, cdi_dir=cluster.cdi_dir, patience=QUICK)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_a_driver_that_runs_is_checked_but_neither_ended_nor_disturbed(running: EmbeddedCluster) -> None:
    running.wait_slices(NAME, 2)
    before = running.api.list("resourceslices")
    with target(running).open() as run:
        assert run.site.node == running.node_name
        results = run_checks(run, CHECKS)
        assert run.subject.name == NAME
    for result in results:
        not_run = result.status is Status.NOT_RUN
        assert not result.failed, (result.check.id, result.reason)
        assert not_run == bool(result.check.needs), result.check.id
    assert running.api.list("resourceslices") == before
    assert not running.api.list("resourceclaims")


def test_disturbing_it_must_be_allowed(running: EmbeddedCluster) -> None:
    checks = [check for check in CHECKS if check.needs == {Need.ALONE}]
    with target(running, disruptive=True).open() as run:
        results = run_checks(run, checks)
    assert {each.status for each in results} == {Status.PASSED}


def test_several_drivers_must_be_told_apart(running: EmbeddedCluster, tmp_path: Path) -> None:
    with existing_site(running.registry_dir, running.kubeconfig, running.node_name, (tmp_path,)) as site:
        other = MutantDriver("other.example.com", site, NONE)
        other.start()
        try:
            with pytest.raises(SettingsError, match=f"drivers other.example.com, {NAME} answer in .*--driver-name"):
                _open(target(running))
            with target(running, driver_name="other.example.com").open() as run:
                assert run.driver.info.name == "other.example.com"
        finally:
            other.stop()


def test_the_node_is_known_from_the_slices(running: EmbeddedCluster) -> None:
    running.wait_slices(NAME, 2)
    foreign = running.api.list("resourceslices")[0]
    spec = {**foreign["spec"], "nodeName": "node-2"}
    running.api.create("resourceslices", {"metadata": {"name": "elsewhere"}, "spec": spec})
    with pytest.raises(SettingsError, match="publishes for 2 nodes, none of them"):
        _open(target(running))
    with target(running, node_name="node-2").open() as run:
        assert run.site.node == "node-2"


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no driver answers in"):
        _open(Target(registry=tmp_path))


@pytest.mark.parametrize("given", [{}, {"driver": "cpu", "command": "x"}])
def test_exactly_one_driver(given: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="want exactly one of"):
        _open(Target(**given))  # type: ignore[arg-type]


def test_an_unknown_driver_of_the_sdk() -> None:
    with pytest.raises(DraError, match="absent"):
        _open(Target(driver="absent_module:Driver"))


def test_a_command_on_an_api_server_that_exists() -> None:
    command = f"{sys.executable} -m tests.tools.conformance.mutants {NAME}"
    with EmbeddedCluster() as cluster:
        cluster.kubelet.stop()
        chosen = Target(command=command, kubeconfig=cluster.kubeconfig, patience=replace(QUICK, start=20))
        assert chosen.described == command
        with chosen.open() as run:
            results = run_checks(run, [check for check in CHECKS if check.id in {"REG-001", "PREP-001", "SEC-006"}])
        assert [each.status for each in results] == [Status.PASSED, Status.PASSED, Status.NOT_RUN]
        assert not [each for each in cluster.api.list("nodes") if each["metadata"]["name"] != cluster.node_name]


def test_how_a_driver_is_reached() -> None:
    assert Target(driver="cpu").described == "dra-sdk run cpu"
    assert Target(registry=Path("/r")).described == "running already, registered in /r"


def _open(given: Target) -> None:
    with given.open():
        raise AssertionError("it opened")
