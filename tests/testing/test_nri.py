"""A driver with hooks about pods and containers in the harness, on every version of NRI."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dra_sdk import Claim, Condition, DeviceStatus, NetworkData, Node, PreparedDevice, RetriableError
from dra_sdk.nri import ContainerResources, PodSandbox
from dra_sdk.testing import DriverHarness, FakeNode, RefusedError, claim, request
from tests.testing.cores import ALL, NAME, CoreDriver
from tests.testing.lamps import SwitchedLamps

pytest_plugins = ["dra_sdk.testing.plugin"]

VERSIONS = ["0.3.0", "0.8.0", "0.10.0", "0.12.0", "0.12.1"]


@pytest.fixture
def driver(dra_node: FakeNode) -> DriverHarness:
    return DriverHarness(CoreDriver, dra_node)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_container_has_the_cpus_of_its_claim_and_all_others_the_rest(driver: DriverHarness, version: str) -> None:
    with driver.nri(version) as runtime:
        before = runtime.create_container(name="before")
        assert before.cpus == ALL
        prepared = driver.prepare(claim(request(count=2)))
        assert before.cpus == ALL - {0, 1}  # at once, not with the container
        pinned = runtime.create_container(prepared)
        assert pinned.cpus == {0, 1}
        assert pinned.env["CPUS"] == "2"
        after = runtime.create_container(name="after")
        assert after.cpus == ALL - {0, 1}
        pinned.stop()
        assert before.cpus == ALL - {0, 1}  # the claim holds them still
        driver.unprepare(prepared)
        assert before.cpus == after.cpus == ALL


def test_containers_of_a_pod_split_a_claim_by_request(driver: DriverHarness) -> None:
    with driver.nri() as runtime:
        both = claim(request("a"), request("b"))
        prepared = driver.prepare(both, containers={"init": ["a", "b"], "main": ["a"], "side": ["b"]})
        pod = runtime.run_pod(prepared)
        assert {name: pod.create_container(name=name).cpus for name in ("init", "main", "side")} == {
            "init": {0, 1},
            "main": {0},
            "side": {1},
        }


@pytest.mark.parametrize("version", VERSIONS)
def test_what_containers_have_survives_restarts(driver: DriverHarness, version: str) -> None:
    with driver.nri(version) as runtime:
        pinned = runtime.create_container(driver.prepare(claim()))
        other = runtime.create_container()
        driver.restart()
        runtime.restart()
        second = driver.prepare(claim())
        assert (pinned.cpus, other.cpus) == ({0}, ALL - {0, 1})
        assert runtime.create_container(second).cpus == {1}


def test_a_refused_container_does_not_start_and_errors_fail_claims_only(
    driver: DriverHarness,
) -> None:
    with driver.nri() as runtime:
        prepared = driver.prepare(claim())
        with pytest.raises(RefusedError, match="as the container asks"):
            runtime.create_container(env={"REFUSE": ""})
        with pytest.raises(RefusedError, match="as the container asks"):
            runtime.create_container(prepared, env={"FAIL": ""})
        other = runtime.create_container(env={"FAIL": ""})
        runtime.wait_applied()
        assert other.cpus == ALL - {0}  # dra_synchronize runs soon after
        assert "CPUS" not in other.env


def test_a_container_of_a_claim_that_is_not_held_is_refused(driver: DriverHarness) -> None:
    with driver.nri() as runtime:
        prepared = driver.prepare(claim())
        env = prepared.container().env
        driver.unprepare(prepared)
        with pytest.raises(RefusedError, match=f"which driver {NAME} does not hold"):
            runtime.create_container(env=env)


def test_a_container_of_another_namespace_cannot_name_a_claim(driver: DriverHarness) -> None:
    with driver.nri() as runtime:
        env = driver.prepare(claim()).container().env
        with pytest.raises(RefusedError, match="does not hold"):
            runtime.create_container(pod=runtime.run_pod(namespace="other"), env=env)


def test_a_resize_keeps_the_cpus(driver: DriverHarness) -> None:
    with driver.nri() as runtime:
        pinned = runtime.create_container(driver.prepare(claim()))
        pinned.update(ContainerResources(cpus=ALL, cpu_quota=5000))
        assert (pinned.cpus, pinned.cpu_quota) == ({0}, 5000)


def test_hooks_about_pods_are_called_for_pods_with_claims(driver: DriverHarness) -> None:
    with driver.nri() as runtime:
        runtime.run_pod()
        first, second = (driver.prepare(claim(), pod="web") for _ in range(2))
        pod = runtime.run_pod(first, second)
        pod.create_container().stop()
        pod.stop()
        pod.remove()
    assert driver.plugin.seen == ["run web with 2", "remove main", "stop web with 2"]


def test_a_reboot_ends_containers(driver: DriverHarness) -> None:
    with driver.nri() as runtime:
        prepared = driver.prepare(claim())
        runtime.create_container(prepared)
        driver.reboot()
        again = driver.prepare(prepared)
        assert runtime.create_container(again).cpus == {0}


def test_a_driver_without_such_hooks_needs_no_runtime(lamps: FakeNode) -> None:
    driver = DriverHarness(SwitchedLamps, lamps)
    with pytest.raises(TypeError, match="has no hook about pods and containers"), driver.nri():
        pass


class Plugging(CoreDriver):
    """Reports a plan in prepare, and what has become of it when the pod's sandbox starts; `bad` pods fail."""

    def dra_prepare(self, claim: Claim[None]) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            yield device.prepared(status=status(False, "Planned"))

    def dra_run_pod_sandbox(self, pod: PodSandbox, node: Node) -> None:
        for held in pod.claims:
            for device in held.devices:
                pod.report(held, device, status(pod.name != "bad", "Bad" if pod.name == "bad" else "Plugged"))
        if pod.name == "bad":
            raise RetriableError("as the pod asks")


def status(ready: bool, reason: str) -> DeviceStatus:
    network = NetworkData(interface_name="net1") if ready else None
    return DeviceStatus(conditions=[Condition(type="Ready", status=ready, reason=reason)], network=network)


def reported(driver: DriverHarness) -> list[tuple[str, str, Any]]:
    """The devices of all claims, with the reason of the condition and the network data."""
    return [
        (status["device"], status["conditions"][0]["reason"], status.get("networkData"))
        for obj in driver.cluster.claims.values()
        for status in obj["status"].get("devices", [])
    ]


def test_a_hook_about_a_pod_reports_what_became_of_its_devices(dra_node: FakeNode) -> None:
    driver = DriverHarness(Plugging, dra_node)
    with driver.nri() as runtime:
        asked = claim(request(count=2))
        failed = driver.prepare(asked, pod="bad")
        assert reported(driver) == [("core-0", "Planned", None), ("core-1", "Planned", None)]
        bad = runtime.run_pod(failed)
        with pytest.raises(RefusedError, match="as the pod asks"):
            bad.create_container()
        assert reported(driver) == [("core-0", "Bad", None), ("core-1", "Bad", None)]
        driver.unprepare(failed)
        assert reported(driver) == []
        prepared = driver.prepare(claim(request(count=2)), pod="good")
        runtime.run_pod(prepared)
        plugged = [(name, "Plugged", {"interfaceName": "net1"}) for name in ("core-0", "core-1")]
        assert reported(driver) == plugged
        driver.restart()
        driver.prepare(prepared)
        assert reported(driver) == plugged, "a restart and a repeated prepare keep it"
        driver.unprepare(prepared)
        assert reported(driver) == []
