from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dra_sdk.errors import DraError, SettingsError
from dra_sdk.tools.conformance.check import Need, Status, run_checks
from dra_sdk.tools.conformance.checks import CHECKS
from dra_sdk.tools.conformance.environment import node_environment
from dra_sdk.tools.conformance.target import Target
from dra_sdk.tools.simulator import EmbeddedCluster
from tests.tools.conformance.conftest import TIMEOUTS
from tests.tools.conformance.mutants import NONE
from tests.tools.conformance.mutants.driver import MutantDriver

NAME = "running.example.com"


@pytest.fixture
def running() -> Iterator[EmbeddedCluster]:
    """A node with a running driver."""
    with EmbeddedCluster() as cluster:
        cluster.kubelet.stop()
        with node_environment(
            cluster.registry_dir, cluster.kubeconfig, cluster.node_name, (cluster.cdi_dir,)
        ) as environment:
            driver = MutantDriver(NAME, environment, NONE)
            driver.start()
            yield cluster
            driver.stop()


def target(cluster: EmbeddedCluster, **changes: object) -> Target:
    made = Target(
        registry=cluster.registry_dir, kubeconfig=cluster.kubeconfig, cdi_dir=cluster.cdi_dir, timeouts=TIMEOUTS
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def test_a_running_driver_is_neither_stopped_nor_disturbed(running: EmbeddedCluster) -> None:
    running.wait_slices(NAME, 2)
    before = running.api.list("resourceslices")
    with target(running).open() as run:
        assert run.environment.node_name == running.node_name
        results = run_checks(run, CHECKS)
        assert run.driver.name == NAME
    for result in results:
        not_run = result.status is Status.NOT_RUN
        assert not result.failed, (result.check.id, result.reason)
        assert not_run == bool(result.check.requirements), result.check.id
    assert running.api.list("resourceslices") == before
    assert not running.api.list("resourceclaims")


def test_a_running_driver_is_disturbed_if_that_is_allowed(running: EmbeddedCluster) -> None:
    checks = [check for check in CHECKS if check.requirements == {Need.DISRUPTION}]
    with target(running, disruptive=True).open() as run:
        results = run_checks(run, checks)
    assert {result.status for result in results} == {Status.PASSED}


def test_one_of_several_drivers_must_be_named(running: EmbeddedCluster, tmp_path: Path) -> None:
    with node_environment(running.registry_dir, running.kubeconfig, running.node_name, (tmp_path,)) as environment:
        other = MutantDriver("other.example.com", environment, NONE)
        other.start()
        try:
            with pytest.raises(SettingsError, match=f"drivers other.example.com, {NAME} answer in .*--driver-name"):
                _open(target(running))
            with target(running, driver_name="other.example.com").open() as run:
                assert run.instance.info.name == "other.example.com"
        finally:
            other.stop()


def test_the_node_is_read_from_the_slices(running: EmbeddedCluster) -> None:
    running.wait_slices(NAME, 2)
    foreign = running.api.list("resourceslices")[0]
    spec = {**foreign["spec"], "nodeName": "node-2"}
    running.api.create("resourceslices", {"metadata": {"name": "elsewhere"}, "spec": spec})
    with pytest.raises(SettingsError, match="publishes for 2 nodes, none of them is"):
        _open(target(running))
    with target(running, node_name="node-2").open() as run:
        assert run.environment.node_name == "node-2"


def test_a_registry_without_a_driver_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no driver answers in"):
        _open(Target(registry=tmp_path))


@pytest.mark.parametrize("given", [{}, {"driver": "cpu", "command": "x"}])
def test_exactly_one_driver_must_be_given(given: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="name the driver: --driver"):
        _open(Target(**given))  # type: ignore[arg-type]


def test_an_nri_plugin_must_be_started_by_the_kit() -> None:
    with pytest.raises(SettingsError, match="--nri needs --driver or --command"):
        _open(Target(registry=Path("/r"), nri=True))


def test_an_unknown_driver_of_the_sdk_is_an_error() -> None:
    with pytest.raises(DraError, match="absent"):
        _open(Target(driver="absent_module:Driver"))


def test_a_command_is_checked_on_an_existing_api_server() -> None:
    command = f"{sys.executable} -m tests.tools.conformance.mutants {NAME}"
    with EmbeddedCluster() as cluster:
        cluster.kubelet.stop()
        chosen = Target(command=command, kubeconfig=cluster.kubeconfig, timeouts=TIMEOUTS)
        assert chosen.description == command
        with chosen.open() as run:
            results = run_checks(run, [check for check in CHECKS if check.id in {"REG-001", "PREP-001", "SEC-006"}])
        assert [result.status for result in results] == [Status.PASSED, Status.PASSED, Status.NOT_RUN]
        assert not [node for node in cluster.api.list("nodes") if node["metadata"]["name"] != cluster.node_name]


def test_the_description_says_how_a_driver_is_reached() -> None:
    assert Target(driver="cpu").description == "dra-sdk run cpu"
    assert Target(registry=Path("/r")).description == "already running, registered in /r"


def _open(given: Target) -> None:
    with given.open():
        raise AssertionError("it opened")
