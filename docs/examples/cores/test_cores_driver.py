"""The tests of `cores_driver.py`: containers on a container runtime that speaks NRI."""

import pytest
from cores_driver import CoresDriver

from dra_sdk import PermanentError
from dra_sdk.testing import DriverFactory, DriverHarness, FakeNode, claim, request
from dra_sdk.testing.sysfs import regular_machine

pytest_plugins = ["dra_sdk.testing.plugin"]


@pytest.fixture
def driver(dra_node: FakeNode, dra_driver: DriverFactory) -> DriverHarness:
    dra_node.machine(regular_machine(cores=4, threads=1))
    return dra_driver(CoresDriver)


@pytest.mark.parametrize("version", ["0.3.0", "0.8.0", "0.12.0", "0.12.1"])
def test_nobody_else_runs_on_the_cpus_of_a_claim(driver: DriverHarness, version: str) -> None:
    with driver.nri(version) as runtime:
        other = runtime.create_container()
        prepared = driver.prepare(claim(request(count=2)))
        mine = runtime.create_container(prepared)
        assert (mine.cpus, other.cpus) == ({0, 1}, {2, 3})
        driver.restart()
        runtime.restart()
        assert (mine.cpus, other.cpus) == ({0, 1}, {2, 3})
        mine.stop()
        driver.unprepare(prepared)
        assert other.cpus == {0, 1, 2, 3}


def test_containers_of_a_pod_split_a_claim_by_request(driver: DriverHarness) -> None:
    with driver.nri() as runtime:
        both = claim(request("big", count=2), request("small"))
        pod = runtime.run_pod(driver.prepare(both, containers={"main": ["big"], "side": ["small"]}))
        assert pod.create_container(name="main").cpus == {0, 1}
        assert pod.create_container(name="side").cpus == {2}


def test_the_last_cpu_is_for_containers_without_claims(driver: DriverHarness) -> None:
    driver.prepare(claim(request(count=2)))
    with pytest.raises(PermanentError, match="1 CPU must stay free for containers without claims"):
        driver.prepare(claim(request(count=2)))
