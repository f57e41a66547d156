"""Trouble with the API server while slices are published: at the end it has exactly what the node has."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from dra_sdk.node.slices import controller
from dra_sdk.node.slices.backoff import Backoff
from dra_sdk.testing.waiting import wait
from dra_sdk.tools.simulator import CATALOG, Delay, FaultRule, Reject, Reset, statuses
from dra_sdk.tools.simulator.faults import Effect
from tests.faults.site import Inside
from tests.lamps import NAME

SLICES = CATALOG["resourceslices"]
FEW, MANY = 40, 200  # devices for one slice and for two
TROUBLE: dict[str, Effect] = {
    "409": Reject(statuses.conflict(SLICES, "x")),
    "410": Reject(statuses.expired("too old")),
    "429 with Retry-After": Reject(statuses.too_many_requests(1)),
    "500": Reject(statuses.internal_error("etcdserver: leader changed")),
    "503": Reject(statuses.unavailable()),
    "403": Reject(statuses.forbidden(SLICES, "x", "no rule")),
    "reset": Reset(),
    "reset after serving": Reset(after_serving=True),
    "slow": Delay(0.1),
}


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Controllers that wait no longer than they are asked to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(controller, "Backoff", partial(Backoff, debounce=0.01, retry=0.02, repair=0.02))
        yield


def publish(site: Inside, count: int) -> None:
    site.driver.count = count
    site.process.publisher.discovery.again()


def assert_published(site: Inside, count: int) -> None:
    wait(
        lambda: (
            published(site, count)
            and site.process.publisher.slices.synced
            and site.process.publisher.slices.errors == {}
        )
    )


def published(site: Inside, count: int) -> bool:
    """Whether these are the lamps of one whole pool: a slice that was made twice is gone again."""
    slices = [each["spec"] for each in site.cluster.api.list("resourceslices")]
    names = sorted(device["name"] for each in slices for device in each.get("devices", ()))
    pools = {(each["pool"]["generation"], each["pool"]["resourceSliceCount"]) for each in slices}
    return names == sorted(f"lamp-{number}" for number in range(count)) and [size for _, size in pools] == [len(slices)]


@pytest.mark.parametrize("trouble", TROUBLE)
def test_every_kind_of_request_fails_once(site: Inside, trouble: str) -> None:
    assert_published(site, FEW)
    verbs = ("create", "update", "delete")
    rules = {verb: FaultRule(TROUBLE[trouble], verb, "resourceslices", times=1) for verb in verbs}
    for rule in rules.values():
        site.cluster.server.faults.add(rule)
    publish(site, MANY)
    assert_published(site, MANY)
    publish(site, FEW)
    assert_published(site, FEW)
    assert {verb: rule.hits for verb, rule in rules.items()} == dict.fromkeys(verbs, 1)


@pytest.mark.parametrize("trouble", [each for each in TROUBLE if "Retry-After" not in each])
def test_a_watch_that_breaks_and_cannot_be_had_again_at_once(site: Inside, trouble: str) -> None:
    assert_published(site, FEW)
    watch = site.cluster.server.faults.add(FaultRule(TROUBLE[trouble], "watch", "resourceslices", times=1))
    relist = site.cluster.server.faults.add(FaultRule(TROUBLE[trouble], "list", "resourceslices", times=1))
    wait(lambda: site.cluster.server.open_watches == 1)
    assert site.cluster.server.close_watches(reset=True) == 1
    wait(lambda: watch.hits == 1 and site.cluster.server.open_watches == 1)
    publish(site, MANY)
    assert_published(site, MANY)
    publish(site, FEW)
    assert_published(site, FEW)
    assert relist.hits == (trouble.isdigit())


def test_a_watch_that_breaks_again_and_again_misses_nothing(fresh: Inside) -> None:
    with fresh.running():
        assert_published(fresh, FEW)
        for reset in (True, False, True):
            wait(lambda: fresh.cluster.server.open_watches == 1)
            fresh.cluster.server.close_watches(reset=reset)
        (ours,) = fresh.cluster.api.list("resourceslices")
        fresh.cluster.api.delete("resourceslices", ours["metadata"]["name"])
        assert_published(fresh, FEW)


def test_the_start_while_nothing_works(fresh: Inside, caplog: pytest.LogCaptureFixture) -> None:
    faults = fresh.cluster.server.faults
    for verb, effect in (("list", Reset()), ("watch", TROUBLE["410"]), ("create", TROUBLE["500"])):
        faults.add(FaultRule(effect, verb, "resourceslices", times=2))
    faults.add(FaultRule(TROUBLE["503"], "get", "nodes", times=2))
    with fresh.running():
        fresh.wait_registered()
        assert_published(fresh, FEW)
        assert "the API server answered 503 ServiceUnavailable" in caplog.text
        fresh.assert_sound()


def test_a_server_that_was_away_gets_what_changed_meanwhile(fresh: Inside) -> None:
    with fresh.running():
        fresh.wait_registered()
        assert_published(fresh, FEW)
        fresh.cluster.server.stop()
        publish(fresh, MANY)
        slices = fresh.process.publisher.slices
        wait(lambda: "no answer from http://127.0.0.1" in str(slices.errors) and not slices.synced)
        fresh.cluster.server.start()
        assert_published(fresh, MANY)
        fresh.assert_sound()


def test_what_others_do_to_our_slices_is_put_right(fresh: Inside) -> None:
    with fresh.running():
        assert_published(fresh, FEW)
        fresh.cluster.server.faults.add(FaultRule(TROUBLE["409"], "update", "resourceslices", times=3))
        (ours,) = fresh.cluster.api.list("resourceslices")
        ours["spec"]["devices"] = ours["spec"]["devices"][:3]
        ours["spec"]["pool"]["generation"] += 7
        fresh.cluster.api.update("resourceslices", ours)
        assert_published(fresh, FEW)
        foreign = {"driver": "other.example.com", "nodeName": fresh.cluster.node_name}
        pool = {"name": "other", "generation": 1, "resourceSliceCount": 1}
        fresh.cluster.api.create("resourceslices", {"metadata": {"name": "x"}, "spec": {**foreign, "pool": pool}})
        publish(fresh, 0)
        wait(lambda: not fresh.slices())
        wait(lambda: fresh.process.publisher.slices.synced)
        assert fresh.cluster.api.get("resourceslices", "x")["spec"]["driver"] != NAME
