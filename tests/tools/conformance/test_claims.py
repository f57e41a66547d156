from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from time import monotonic

import pytest

from dra_sdk.cel import compile  # noqa: A004 (the function's name in dra_sdk.cel)
from dra_sdk.errors import NotFoundError
from dra_sdk.kube import paths
from dra_sdk.testing.waiting import LONG
from dra_sdk.tools.conformance.check import Status, run_check
from dra_sdk.tools.conformance.checks import BY_ID
from dra_sdk.tools.conformance.claim_template import ClaimTemplate
from dra_sdk.tools.conformance.outcomes import NotApplicableError
from dra_sdk.tools.scheduling.allocator import AllocationError
from dra_sdk.tools.simulator import EmbeddedCluster
from tests.tools.conformance.conftest import TIMEOUTS, OpenRun
from tests.tools.conformance.mutants import faults


def test_devices_of_each_kind_are_picked(open_run: OpenRun) -> None:
    with open_run() as run:
        picked = [device.device for device in run.claims.pick(6)]
        assert picked == [*(f"dev-{number}" for number in range(4)), "shared-0", "part-0"]
        assert {device.device for device in run.claims.pick(4, shared=True)} == {"shared-0"}
        assert [device.device for device in run.claims.pick(2, shared=False)] == ["dev-0", "dev-1"]
        assert len(run.claims.pick_at_most(3)) == 3
        assert len(run.claims.pick_at_most(100)) == 9
        with pytest.raises(NotApplicableError, match=r"needs 10 device\(s\) .*, the slices have 9"):
            run.claims.pick(10)
        with pytest.raises(NotApplicableError, match=r"needs 5 share\(s\) of one device"):
            run.claims.pick(5, shared=True)


def test_a_claim_is_allocated_as_by_the_scheduler(open_run: OpenRun, cluster: EmbeddedCluster) -> None:
    with open_run() as run:
        first, second = run.claims.pick(2, shared=True)
        claim = run.claims.create([first, second], requests=["both", "both"])
        stored = run.api.client.get(paths.resource_claim(claim.ref.namespace, claim.ref.name))
        (request,) = stored["spec"]["devices"]["requests"]
        assert request["name"] == "both"
        assert request["exactly"]["count"] == 2
        results = stored["status"]["allocation"]["devices"]["results"]
        assert results == list(claim.results)
        assert len({result["shareID"] for result in results}) == 2
        assert results[0]["consumedCapacity"] == {"seats": "1"}
        assert claim.requests == {"both"}
        assert claim.devices == {(cluster.node_name, "shared-0")}


def test_a_claim_can_have_subrequests_and_another_device_name(open_run: OpenRun, cluster: EmbeddedCluster) -> None:
    with open_run() as run:
        claim = run.claims.create_one(requests=["either/first"], device_name="elsewhere")
        assert claim.requests == {"either"}
        assert claim.devices == {(cluster.node_name, "elsewhere")}
        stored = run.api.client.get(paths.resource_claim(claim.ref.namespace, claim.ref.name))
        assert stored["spec"]["devices"]["requests"][0]["firstAvailable"][0]["name"] == "first"


def test_clean_up_unprepares_and_deletes(open_run: OpenRun) -> None:
    with open_run() as run:
        claim = run.claims.create_one()
        run.prepare(claim)
        assert run.cdi.paths()
        run.claims.clean_up()
        assert not run.cdi.paths()
        with pytest.raises(NotFoundError):
            run.api.client.get(paths.resource_claim(claim.ref.namespace, claim.ref.name))
        run.claims.clean_up()


def test_the_kit_waits_only_once_for_a_driver_that_never_publishes(open_run: OpenRun) -> None:
    with open_run(faults("no-slices"), replace(TIMEOUTS, slices=0.2)) as run:
        assert run.claims.slices() == []
        run.driver.timeouts = TIMEOUTS
        began = monotonic()
        with pytest.raises(NotApplicableError, match="the slices have 0"):
            run.claims.pick_one()
        assert monotonic() - began < LONG / 2


@pytest.fixture
def hold(cluster: EmbeddedCluster) -> Iterator[Callable[[str, Iterable[str]], None]]:
    """Lets a claim that is not the kit's have some devices of a driver."""

    def take(driver: str, devices: Iterable[str]) -> None:
        results = [{"request": "r", "driver": driver, "pool": cluster.node_name, "device": each} for each in devices]
        cluster.create_claim("others", {"r": "any"})
        stored = cluster.api.get("resourceclaims", "others", "default")
        allocation = {"devices": {"results": results}}
        cluster.api.update_status("resourceclaims", {**stored, "status": {"allocation": allocation}})

    yield take
    cluster.api.delete("resourceclaims", "others", "default")


def test_devices_of_other_claims_are_left_alone(
    open_run: OpenRun, cluster: EmbeddedCluster, hold: Callable[[str, Iterable[str]], None]
) -> None:
    with open_run(shared_node=True) as run:
        hold(run.instance.info.name, ["dev-0"])
        assert run.claims.pick_one().device == "dev-1"
        assert run.claims.create_scheduled().devices == {(cluster.node_name, "dev-1")}


def test_that_others_have_all_devices_is_no_fault_of_the_driver(
    open_run: OpenRun, hold: Callable[[str, Iterable[str]], None]
) -> None:
    template = ClaimTemplate([compile("!device.allowMultipleAllocations")])
    with open_run(shared_node=True, template=template) as run:
        hold(run.instance.info.name, sorted({each.device for each in run.claims.free_devices()}))
        with pytest.raises(NotApplicableError, match="needs a device that no other claim has"):
            run.claims.create_scheduled()
        assert run_check(run, BY_ID["KEP-003"]).status is Status.NOT_APPLICABLE


def test_the_scheduler_chooses_a_device_that_the_template_fits(open_run: OpenRun, cluster: EmbeddedCluster) -> None:
    with open_run() as run:
        assert run.claims.create_scheduled().devices == {(cluster.node_name, "dev-0")}
    template = ClaimTemplate([compile("device.allowMultipleAllocations")])
    with open_run(template=template) as run:
        assert run.claims.create_scheduled().devices == {(cluster.node_name, "shared-0")}


def test_a_claim_that_cannot_be_scheduled_is_an_error(open_run: OpenRun) -> None:
    with (
        open_run(faults("no-slices"), replace(TIMEOUTS, slices=0.2)) as run,
        pytest.raises(AllocationError, match="no device in the driver's slices can be allocated"),
    ):
        run.claims.create_scheduled()
