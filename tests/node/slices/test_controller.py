from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from time import monotonic
from typing import Any

import pytest

from dra_sdk.errors import ApiError, ConflictError, InvalidError, InvalidObjectError, SettingsError, UnreachableError
from dra_sdk.kube.api import EventStream
from dra_sdk.kube.client import KubeClient
from dra_sdk.kube.login import log_in
from dra_sdk.kube.source import find_source
from dra_sdk.model.device import (
    CounterConsumption,
    CounterSet,
    Device,
    DeviceTaint,
    NodeAllocatable,
    NodeSelection,
    ResourcePool,
)
from dra_sdk.node.slices.backoff import Backoff
from dra_sdk.node.slices.writer import DroppedFieldsError, Stats
from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.tools.simulator import statuses
from dra_sdk.tools.simulator.faults import FaultRule, Reject, Reset
from dra_sdk.tools.simulator.objects import Write
from tests.node.slices.conftest import DRIVER, FAST, NODE, Cluster, pool


def test_publish_creates_slices_of_the_node(cluster: Cluster):
    controller = cluster.running(pool(NODE, "gpu-0", "gpu-1"))
    (item,) = cluster.slices()
    assert item["metadata"]["name"].startswith("00000-gpu.example.com-node-1-")
    (owner,) = item["metadata"]["ownerReferences"]
    uid = cluster.local.get("nodes", NODE)["metadata"]["uid"]
    assert owner == {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": uid, "controller": True}
    assert item["spec"] == {
        "driver": DRIVER,
        "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
        "nodeName": NODE,
        "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
    }
    assert controller.stats == Stats(creates=1)
    assert controller.errors == {}


def test_nothing_happens_before_the_first_publish(cluster: Cluster, eventually):
    cluster.running(pool(NODE), pool("second")).stop()
    before = cluster.versions()
    controller = cluster.controller()
    controller.start()
    eventually(lambda: cluster.server.open_watches)
    assert not controller.synced
    assert cluster.versions() == before


def test_a_restart_with_equal_devices_writes_nothing(cluster: Cluster):
    pools = [
        ResourcePool(NODE, [Device(f"gpu-{i}", {"index": i}, {"memory": "1024Mi"}) for i in range(200)]),
        ResourcePool(
            "partitions",
            [Device("part-0", consumes=[CounterConsumption("gpu", {"memory": "1024Mi"})])],
            [CounterSet("gpu", {"memory": "2048Mi"})],
        ),
        ResourcePool("tainted", [Device("bad", taints=[DeviceTaint(key="broken", effect="NoSchedule")])]),
    ]
    cluster.server.store.admit.append(stamp_taints)
    cluster.running(*pools).stop()
    assert len(cluster.slices()) == 5
    before = cluster.versions()
    again = cluster.running(*pools)
    assert again.stats == Stats()
    assert cluster.versions() == before


def stamp_taints(write: Write) -> None:
    for device in write.object.get("spec", {}).get("devices", []):
        for taint in device.get("taints", []):
            taint.setdefault("timeAdded", "2026-01-01T00:00:00Z")


def test_one_changed_slice_is_updated_in_place(cluster: Cluster, eventually):
    controller = cluster.running(pool(NODE, "gpu-0"))
    (before,) = cluster.slices()
    controller.publish([pool(NODE, "gpu-0", "gpu-1")])
    wait(lambda: controller.synced)
    (after,) = cluster.slices()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"]["pool"]["generation"] == 1
    assert controller.stats == Stats(creates=1, updates=1)


def test_a_pool_that_grows_gets_a_new_generation_everywhere(cluster: Cluster):
    controller = cluster.running(pool(NODE, *(f"d{i}" for i in range(128))))
    controller.publish([pool(NODE, *(f"d{i}" for i in range(129)))])
    wait(lambda: controller.synced)
    assert [spec["pool"] for spec in cluster.specs()] == [
        {"name": NODE, "generation": 2, "resourceSliceCount": 2},
        {"name": NODE, "generation": 2, "resourceSliceCount": 2},
    ]
    assert controller.stats == Stats(creates=2, updates=1)


def test_pools_left_out_are_deleted_and_an_empty_one_is_not(cluster: Cluster):
    controller = cluster.running(pool("a"), pool("b"))
    controller.publish([ResourcePool("a")])
    wait(lambda: controller.synced)
    assert cluster.specs() == [
        {"driver": DRIVER, "pool": {"name": "a", "generation": 1, "resourceSliceCount": 1}, "nodeName": NODE}
    ]
    controller.publish([])
    wait(lambda: controller.synced)
    assert cluster.slices() == []


def test_what_an_earlier_run_left_is_deleted(cluster: Cluster):
    cluster.running(pool("old")).stop()
    controller = cluster.running(pool("new"))
    cluster_pools = [spec["pool"]["name"] for spec in cluster.specs()]
    assert (cluster_pools, controller.stats) == (["new"], Stats(creates=1, deletes=1))


def test_the_latest_publish_wins(cluster: Cluster):
    controller = cluster.controller()
    for count in range(1, 30):
        controller.publish([pool(NODE, *(f"d{i}" for i in range(count)))])
    controller.start()
    wait(lambda: controller.synced)
    assert controller.stats == Stats(creates=1)
    assert len(cluster.names()) == 29


def test_other_drivers_and_nodes_are_left_alone(cluster: Cluster):
    cluster.node("node-2")
    cluster.running(pool("node-2"), node="node-2")
    cluster.running(pool("other"), driver="other.example.com")
    before = cluster.slices()
    controller = cluster.running(pool(NODE))
    controller.publish([])
    wait(lambda: controller.synced)
    assert cluster.slices() == before


def test_slices_stay_when_the_driver_stops(cluster: Cluster):
    controller = cluster.running(pool(NODE))
    assert controller.stop(LONG)
    assert len(cluster.slices()) == 1
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("slices")]


def test_nothing_is_asked_when_nothing_happens(cluster: Cluster, eventually):
    controller = cluster.running(pool(NODE))
    eventually(lambda: cluster.server.open_watches == 1)
    eventually(lambda: controller.synced)
    mark = time.monotonic()
    controller.publish([pool(NODE)])
    assert not threading.Event().wait(0.3)
    assert cluster.server.log.records(since=mark) == []


class HeldStream:
    """A watch whose events wait until `release` is set; `processed` has the resourceVersions that were dealt with."""

    def __init__(self, stream: EventStream, release: threading.Event, processed: list[str]) -> None:
        self.stream, self.release, self.processed = stream, release, processed

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for event in self.stream:
            assert self.release.wait(LONG)
            yield event
            self.processed.append(event["object"]["metadata"]["resourceVersion"])

    def close(self) -> None:
        self.stream.close()


def test_what_the_watch_tells_of_our_own_writes_does_not_make_us_unready(cluster: Cluster, eventually):
    release, processed = threading.Event(), list[str]()

    class Client(KubeClient):
        def watch(self, *args: Any, **options: Any) -> Any:
            return HeldStream(super().watch(*args, **options), release, processed)

    source = find_source(cluster.kubeconfig)
    client = Client(lambda: log_in(source), source=str(source))
    cluster.stack.callback(client.close)
    cluster.stack.callback(release.set)
    controller = cluster.running(pool(NODE), connect=lambda: client, backoff=Backoff(debounce=3600))
    (item,) = cluster.slices()
    assert processed == []
    release.set()
    eventually(lambda: item["metadata"]["resourceVersion"] in processed)
    assert controller.synced


def test_deleted_slices_come_back(cluster: Cluster, eventually):
    cluster.running(pool(NODE, *(f"d{i}" for i in range(200))))
    eventually(lambda: cluster.server.open_watches)
    for item in cluster.slices():  # as the kubelet does when it starts
        cluster.delete(item)
    assert eventually(lambda: len(cluster.names()) == 200)


def test_a_changed_slice_is_put_right(cluster: Cluster, eventually):
    cluster.running(pool(NODE))
    eventually(lambda: cluster.server.open_watches)
    (item,) = cluster.slices()
    item["spec"]["devices"] = [{"name": "stranger"}]
    cluster.local.update("resourceslices", item)
    assert eventually(lambda: cluster.names() == ["gpu-0"])


def test_a_kubelet_that_restarts_again_and_again_is_no_reason_for_a_delay(cluster: Cluster, eventually):
    once = Backoff(debounce=0.01, repair=3600, repair_limit=3600, calm=3600)
    cluster.running(pool(NODE), backoff=once, kubelet_restarted=lambda: True)
    eventually(lambda: cluster.server.open_watches)
    for _ in range(4):
        (item,) = cluster.slices()
        cluster.delete(item)
        assert eventually(lambda item=item: cluster.names() and cluster.slices() != [item])


def test_slices_that_are_not_missing_were_not_deleted_by_the_kubelet(cluster: Cluster, eventually):
    asked: list[bool] = []

    def restarted() -> bool:
        asked.append(True)
        return False

    cluster.running(pool(NODE), kubelet_restarted=restarted)
    eventually(lambda: cluster.server.open_watches)
    (item,) = cluster.slices()
    item["spec"]["devices"] = [{"name": "stranger"}]
    cluster.local.update("resourceslices", item)
    eventually(lambda: cluster.names() == ["gpu-0"])
    assert asked == []
    (item,) = cluster.slices()
    cluster.delete(item)
    eventually(lambda: cluster.names() == ["gpu-0"])
    assert asked == [True]


def test_somebody_who_keeps_deleting_is_not_fought_without_end(cluster: Cluster, eventually):
    timing = Backoff(debounce=0.01, repair=0.05, repair_limit=60, calm=60)
    controller = cluster.running(pool(NODE), backoff=timing)
    stop, begun = threading.Event(), monotonic()

    def destroy() -> None:
        while not stop.wait(0.005):
            for item in cluster.slices():
                cluster.delete(item)

    enemy = threading.Thread(target=destroy)
    enemy.start()
    eventually(lambda: controller.stats.creates >= 6)
    stop.set()
    enemy.join()
    assert monotonic() - begun >= 0.05 + 0.1 + 0.2 + 0.4  # the pauses before the second repair and the next ones


def test_a_stranger_with_our_names_is_not_fought_without_end(cluster: Cluster):
    timing = Backoff(debounce=0.01, repair=0.05, repair_limit=60, calm=60)
    ours = cluster.running(pool("ours"), backoff=timing)
    theirs = cluster.controller(backoff=timing)
    theirs.start()
    theirs.publish([pool("theirs")])
    assert not threading.Event().wait(1.0)
    assert ours.stats.deletes + theirs.stats.deletes <= 20


def test_a_node_made_anew_becomes_the_owner(cluster: Cluster, eventually):
    cluster.running(pool(NODE))
    eventually(lambda: cluster.server.open_watches)
    cluster.local.delete("nodes", NODE)
    uid = cluster.node()
    for item in cluster.slices():  # as the garbage collector does
        cluster.delete(item)
    assert eventually(lambda: [each["metadata"]["ownerReferences"][0]["uid"] for each in cluster.slices()] == [uid])


def test_slices_do_not_come_back_for_a_node_that_is_gone(cluster: Cluster, eventually):
    controller = cluster.running(pool(NODE), pool("b"))
    eventually(lambda: cluster.server.open_watches)
    old = cluster.slices()
    cluster.local.delete("nodes", NODE)
    for item in old:
        cluster.delete(item)
    eventually(lambda: len([each for each in cluster.server.log.records("get", "nodes") if each.code == 404]) >= 5)
    assert cluster.slices() == []
    uid = cluster.node()
    wait(lambda: controller.synced)
    assert [each["metadata"]["ownerReferences"][0]["uid"] for each in cluster.slices()] == [uid, uid]
    assert controller.stats.creates == 4


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("counters", [False, True])
def test_taints_keep_their_time_when_slices_come_back(cluster: Cluster, eventually, restarted: bool, counters: bool):
    """A kubelet that starts deletes all slices; pods that tolerate a taint for some time must not get more of it."""
    times = iter(range(100))

    def stamp(write: Write) -> None:
        for device in write.object.get("spec", {}).get("devices", []):
            for taint in device.get("taints", []):
                taint.setdefault("timeAdded", f"2026-01-01T00:00:{next(times):02}Z")

    cluster.server.store.admit.append(stamp)
    consumes = [CounterConsumption("gpu", {"memory": "1"})] if counters else []
    sets = [CounterSet("gpu", {"memory": "1"})] if counters else []
    device = Device("bad", taints=[DeviceTaint(key="broken", effect="NoExecute")], consumes=consumes)
    published = ResourcePool(NODE, [device], sets)
    controller = cluster.running(published)
    before = cluster.specs()
    if restarted:
        controller.stop()
        controller = cluster.running(published)
    eventually(lambda: cluster.server.open_watches == 1)
    for item in cluster.slices():
        cluster.delete(item)
    eventually(lambda: controller.stats.creates >= len(before) * (1 if restarted else 2))
    assert [each.get("devices") for each in cluster.specs()] == [each.get("devices") for each in before]


def test_the_server_is_down_at_first(cluster: Cluster, eventually):
    cluster.server.stop()
    controller = cluster.controller()
    controller.start()
    controller.publish([pool(NODE)])
    error = eventually(lambda: controller.errors.get(""))
    assert isinstance(error, UnreachableError)
    assert "get nodes node-1: no answer from" in str(error)
    assert not controller.synced
    cluster.server.start()
    wait(lambda: controller.synced)
    assert controller.errors == {}
    assert cluster.names() == ["gpu-0"]


def test_the_server_goes_and_comes_back(cluster: Cluster, eventually):
    controller = cluster.running(pool(NODE))
    cluster.server.stop()
    eventually(lambda: controller.errors.get(""))
    controller.publish([pool(NODE, "new")])
    eventually(lambda: isinstance(controller.errors.get(NODE), UnreachableError))
    for item in cluster.slices():
        cluster.delete(item)
    cluster.server.start()
    eventually(lambda: cluster.names() == ["new"])
    wait(lambda: controller.synced)
    eventually(lambda: controller.errors == {})  # the watch may be back later than the pool


def test_no_kubeconfig_is_told_and_tried_again(cluster: Cluster, eventually):
    content = cluster.kubeconfig.read_text()
    cluster.kubeconfig.unlink()
    controller = cluster.controller()
    controller.start()
    controller.publish([pool(NODE)])
    assert isinstance(eventually(lambda: controller.errors.get("")), SettingsError)
    cluster.kubeconfig.write_text(content)
    wait(lambda: controller.synced)


def test_the_node_is_not_there_yet(cluster: Cluster, eventually):
    controller = cluster.controller("late")
    controller.start()
    controller.publish([pool("late")])
    assert "nodes late" in str(eventually(lambda: controller.errors.get("")))
    cluster.node("late")
    wait(lambda: controller.synced)


@pytest.mark.parametrize("reset", [True, False])
def test_a_broken_watch_misses_nothing(cluster: Cluster, eventually, reset: bool):
    controller = cluster.running(pool(NODE))
    for _ in range(3):
        eventually(lambda: cluster.server.open_watches == 1)
        assert cluster.server.close_watches(reset=reset) == 1
        for item in cluster.slices():
            cluster.delete(item)
        eventually(lambda: cluster.names() == ["gpu-0"])
    eventually(lambda: controller.synced)
    lists = cluster.server.log.records("list", "resourceslices")
    assert len(lists) == 2  # one at the start for each scope: a watch goes on where it broke off


def test_a_watch_that_is_too_old_lists_again(cluster: Cluster, eventually):
    controller = cluster.running(pool(NODE))
    eventually(lambda: cluster.server.open_watches == 1)
    cluster.server.stop()
    eventually(lambda: controller.errors.get(""))
    for item in cluster.slices():
        cluster.delete(item)
    cluster.local.create("resourceslices", stray())
    cluster.server.store.expire_history()
    cluster.server.start()
    assert eventually(lambda: cluster.names() == ["gpu-0"])


def stray() -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "stray"},
        "spec": {
            "driver": DRIVER,
            "nodeName": NODE,
            "pool": {"name": "stray", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "stray"}],
        },
    }


def test_slices_of_pools_that_we_do_not_have_are_deleted(cluster: Cluster, eventually):
    cluster.running(pool(NODE))
    eventually(lambda: cluster.server.open_watches)
    cluster.local.create("resourceslices", stray())
    assert eventually(lambda: cluster.names() == ["gpu-0"])


def test_a_conflict_is_solved_with_what_the_server_has(cluster: Cluster):
    controller = cluster.running(pool(NODE))
    conflict = FaultRule(
        Reject(statuses.conflict(cluster.server.store.catalog["resourceslices"], "x")), verb="update", times=1
    )
    cluster.server.faults.add(conflict)
    controller.publish([pool(NODE, "new")])
    wait(lambda: controller.synced)
    assert conflict.hits == 1
    assert cluster.names() == ["new"]
    assert cluster.problems == []  # it happens, and nobody needs to hear of it


def test_a_conflict_that_stays_is_told(cluster: Cluster, eventually):
    controller = cluster.running(pool(NODE))
    cluster.server.faults.add(
        FaultRule(Reject(statuses.conflict(cluster.server.store.catalog["resourceslices"], "x")), verb="update")
    )
    controller.publish([pool(NODE, "new")])
    name, error = eventually(lambda: cluster.problems)[0]
    assert (name, type(error)) == (NODE, ConflictError)


def test_an_update_of_a_slice_that_is_gone_becomes_a_create(cluster: Cluster, eventually):
    controller = cluster.running(pool(NODE), backoff=Backoff(debounce=3600))  # so that it is not put right before
    gone = FaultRule(
        Reject(statuses.not_found(cluster.server.store.catalog["resourceslices"], "x")), verb="update", times=1
    )
    cluster.server.faults.add(gone)
    for item in cluster.slices():
        cluster.delete(item)
    controller.publish([pool(NODE, "new")])
    assert eventually(lambda: cluster.names() == ["new"])


def test_one_refused_pool_does_not_hold_up_the_others(cluster: Cluster, eventually):
    def refuse(write: Write) -> None:
        if write.object["spec"]["pool"]["name"] == "bad":
            raise statuses.invalid(write.resource, "", [("spec.devices", "FieldValueInvalid", "looks odd")])

    cluster.server.store.admit.append(refuse)
    controller = cluster.controller()
    controller.start()
    controller.publish([pool("a", "a"), pool("bad", "b"), pool("c", "c")])
    eventually(lambda: cluster.names() == ["a", "c"])
    error = eventually(lambda: controller.errors.get("bad"))
    assert isinstance(error, InvalidError)
    assert "looks odd" in str(error)
    assert set(controller.errors) == {"bad"}
    assert not controller.synced
    cluster.server.store.admit.clear()
    wait(lambda: controller.synced)  # it is tried again, for the server may change


def test_a_pool_that_breaks_a_rule_stays_as_it_was(cluster: Cluster, eventually):
    controller = cluster.running(pool("a", "one"), pool("b", "two"))
    controller.publish([pool("a", "twice", "twice"), pool("b", "three")])
    eventually(lambda: cluster.names() == ["one", "three"])
    assert isinstance(controller.errors.get("a"), InvalidObjectError)
    assert "device twice: there are 2 of this name" in str(controller.errors.get("a"))
    assert [name for name, _ in cluster.problems] == ["a"]
    controller.publish([pool("a", "twice", "twice"), pool("b", "three")])
    assert len(cluster.problems) == 1  # the same mistake is told once
    controller.publish([pool("a", "four"), pool("b", "three")])
    wait(lambda: controller.synced)
    assert cluster.names() == ["four", "three"]
    assert controller.errors == {}


def test_a_pool_that_is_wrong_from_the_start_deletes_nothing(cluster: Cluster, eventually):
    cluster.running(pool("a", "one")).stop()
    controller = cluster.controller()
    controller.start()
    controller.publish([pool("a", "twice", "twice"), pool("b", "two")])
    eventually(lambda: cluster.names() == ["one", "two"])
    assert not controller.synced
    assert cluster.names() == ["one", "two"]


def test_retry_after_is_honoured(cluster: Cluster):
    slow = FaultRule(Reject(statuses.too_many_requests(1)), verb="create", times=1)
    cluster.server.faults.add(slow)
    controller = cluster.controller()
    controller.start()
    controller.publish([pool(NODE)])
    wait(lambda: controller.synced)
    refused, created = cluster.server.log.records("create", "resourceslices")
    assert (refused.code, created.code) == (429, 201)
    assert created.started - refused.started >= 1.0
    assert [error.status for _, error in cluster.problems if isinstance(error, ApiError)] == [429]


@pytest.mark.parametrize("after", [False, True])
def test_an_answer_that_is_lost(cluster: Cluster, eventually, after: bool):
    """Where the create happened but its answer was lost, the second slice of the same index goes again."""
    cluster.server.faults.add(FaultRule(Reset(after_serving=after), verb="create", times=1))
    controller = cluster.controller()
    controller.start()
    controller.publish([pool(NODE)])
    eventually(lambda: controller.synced and len(cluster.slices()) == 1)
    assert cluster.names() == ["gpu-0"]


def test_5xx_is_tried_again_in_all_verbs(cluster: Cluster, eventually):
    faults = [
        FaultRule(Reject(statuses.unavailable()), verb=verb, times=2) for verb in ("get", "list", "watch", "create")
    ]
    for fault in faults:
        cluster.server.faults.add(fault)
    cluster.running(pool(NODE))
    assert eventually(lambda: [fault.hits for fault in faults] == [2, 2, 2, 2])
    eventually(lambda: cluster.server.open_watches)


def test_no_right_to_list(cluster: Cluster, eventually):
    forbidden = statuses.forbidden(cluster.server.store.catalog["resourceslices"], "", "no RBAC rule")
    rule = cluster.server.faults.add(FaultRule(Reject(forbidden), verb="list"))
    controller = cluster.controller()
    controller.start()
    controller.publish([pool(NODE)])
    assert "no RBAC rule" in str(eventually(lambda: controller.errors.get("")))
    assert not controller.synced
    eventually(lambda: rule.hits >= 6)
    started = [each.started for each in cluster.server.log.records("list", "resourceslices")]
    pauses = [after - before for before, after in pairwise(started)]
    assert all(pause >= 0.8 * wanted for pause, wanted in zip(pauses, (0.02, 0.04, 0.08, 0.1, 0.1), strict=False))
    cluster.server.faults.remove(rule)
    wait(lambda: controller.synced)


def test_dropped_fields_are_told_once_and_not_sent_again(cluster: Cluster, eventually):
    def drop(write: Write) -> None:
        for device in write.object.get("spec", {}).get("devices", []):
            device.pop("taints", None)

    cluster.server.store.admit.append(drop)
    tainted = ResourcePool(NODE, [Device("gpu-0", taints=[DeviceTaint(key="broken", effect="NoSchedule")])])
    controller = cluster.running(tainted)
    error = controller.errors.get(NODE)
    assert isinstance(error, DroppedFieldsError)
    assert (error.pool, error.slices, error.gates) == (NODE, [0], ["DRADeviceTaints"])
    assert "slice 0: the API server dropped device gpu-0: taints" in str(error)
    controller.publish([tainted])
    for item in cluster.slices():
        cluster.delete(item)
    eventually(lambda: controller.stats.creates == 2)
    eventually(lambda: controller.synced)
    assert controller.stats == Stats(creates=2)
    assert cluster.problems == [(NODE, error)]


@pytest.mark.parametrize(
    ("device", "field"),
    [
        (Device("odd", taints=[DeviceTaint(key="broken", effect="NoSchedule")]), "taints"),
        (Device("odd", taints=[DeviceTaint(key="broken", effect="NoExecute")]), "taints"),
        (Device("odd", binding_conditions=["Ready"], binding_failure_conditions=["Failed"]), "bindingConditions"),
    ],
)
def test_a_device_that_pods_must_not_have_yet_is_withheld_if_the_server_would_give_it(
    cluster: Cluster, device: Device, field: str
):
    cluster.server.store.admit.append(partial(drop_fields, {field, "bindingFailureConditions"}))
    controller = cluster.running(ResourcePool(NODE, [Device("plain"), device]))
    assert cluster.names() == ["plain"]
    assert list(controller.withheld[NODE]) == ["odd"]


@pytest.mark.parametrize(
    "device",
    [
        Device("odd", taints=[DeviceTaint(key="broken", effect="None")]),
        Device("odd", binding_conditions=["Ready"], binding_failure_conditions=["Failed"], waits_in_prepare=True),
        Device("odd", allow_multiple_allocations=True),
    ],
)
def test_a_device_that_harms_nobody_without_the_dropped_field_is_published(cluster: Cluster, device: Device):
    gone = {"taints", "bindingConditions", "bindingFailureConditions", "allowMultipleAllocations"}
    cluster.server.store.admit.append(partial(drop_fields, gone))
    controller = cluster.running(ResourcePool(NODE, [Device("plain"), device]))
    assert cluster.names() == ["odd", "plain"]
    assert controller.withheld == {NODE: {}}


TWO_HALVES = ResourcePool(
    NODE,
    [Device(name, consumes=[CounterConsumption("card", {"units": 2})]) for name in ("whole", "other")],
    [CounterSet("card", {"units": 2})],
)


def drop_fields(fields: set[str], write: Write) -> None:
    """What a server does without a feature."""
    spec = write.object.get("spec", {})
    for owner in (spec, *spec.get("devices", ())):
        for field in fields & owner.keys():
            del owner[field]


def test_what_would_be_dropped_is_known_before_anything_is_visible(cluster: Cluster):
    cluster.server.store.admit.append(partial(drop_fields, {"sharedCounters", "consumesCounters"}))
    controller = cluster.running(TWO_HALVES)
    assert cluster.names() == ["whole"]
    assert controller.stats == Stats(creates=2)  # so no slice has ever had more


@pytest.mark.parametrize("kept", [1, 2])
def test_a_server_that_drops_more_than_the_one_that_was_asked(cluster: Cluster, kept: int):
    """Two API servers of different releases: the dry run and perhaps a write go to the newer one, the rest does not."""
    asked: list[Write] = []

    def drop_later(write: Write) -> None:
        asked.append(write)
        if len(asked) > kept:
            drop_fields({"sharedCounters", "consumesCounters"}, write)

    cluster.server.store.admit.append(drop_later)
    controller = cluster.running(TWO_HALVES)
    assert cluster.names() == ["whole"]
    assert controller.withheld == {NODE: {"other": "DRAPartitionableDevices"}}


def test_a_feature_that_is_turned_on_brings_the_devices_with_the_next_repair(cluster: Cluster, eventually):
    dropping = partial(drop_fields, {"sharedCounters", "consumesCounters"})
    cluster.server.store.admit.append(dropping)
    controller = cluster.running(TWO_HALVES)
    cluster.server.store.admit.remove(dropping)
    for item in cluster.slices():
        cluster.delete(item)
    eventually(lambda: cluster.names() == ["other", "whole"] and controller.synced)
    assert controller.errors == {}


def drop_mappings(write: Write) -> None:
    """What a server does without the feature DRANodeAllocatableResources."""
    for device in write.object.get("spec", {}).get("devices", []):
        device.pop("nodeAllocatableResourceMappings", None)


@pytest.mark.parametrize("count", [1, 200], ids=["one slice", "two slices"])
def test_a_restart_writes_nothing_if_the_server_drops_the_same_fields_again(cluster: Cluster, count: int):
    mapped = [Device(f"cpu-{i}", node_allocatable={"cpu": NodeAllocatable(multiplier=1)}) for i in range(count)]
    cluster.server.store.admit.append(drop_mappings)
    cluster.running(ResourcePool(NODE, mapped)).stop()
    before, problems = cluster.versions(), list(cluster.problems)
    again = cluster.running(ResourcePool(NODE, mapped))
    assert again.stats == Stats()
    assert cluster.versions() == before
    assert [str(error) for _, error in cluster.problems] == 2 * [str(error) for _, error in problems]
    assert "DRANodeAllocatableResources" in str(again.errors.get(NODE))


@pytest.mark.parametrize("renamed", [False, True])
def test_a_restart_writes_if_the_server_stores_more_than_before(cluster: Cluster, renamed: bool):
    mapping = {"cpu": NodeAllocatable(multiplier=1)}
    cluster.server.store.admit.append(drop_mappings)
    cluster.running(ResourcePool(NODE, [Device("cpu-0", node_allocatable=mapping)])).stop()
    if not renamed:
        cluster.server.store.admit.remove(drop_mappings)
    again = cluster.running(ResourcePool(NODE, [Device("cpu-1" if renamed else "cpu-0", node_allocatable=mapping)]))
    assert again.stats == Stats(updates=1)
    (spec,) = cluster.specs()
    assert [each["name"] for each in spec["devices"]] == ["cpu-1" if renamed else "cpu-0"]
    assert ("nodeAllocatableResourceMappings" in spec["devices"][0]) is not renamed


def test_pools_for_several_nodes(cluster: Cluster, eventually):
    cluster.node("node-2")
    shared = pool("fabric", "f", node=NodeSelection(all_nodes=True))
    theirs = cluster.running(pool("theirs", "t", node=NodeSelection(all_nodes=True)), node="node-2")
    ours = cluster.running(shared, pool(NODE, "gpu-0"))
    assert cluster.names() == ["f", "gpu-0", "t"]
    (fabric,) = [each for each in cluster.slices() if each["spec"]["pool"]["name"] == "fabric"]
    assert fabric["spec"]["allNodes"] is True
    assert "nodeName" not in fabric["spec"]
    assert fabric["metadata"]["ownerReferences"][0]["name"] == NODE
    cluster.delete(fabric)
    eventually(lambda: cluster.names() == ["f", "gpu-0", "t"])
    ours.stop()
    before = cluster.versions()
    again = cluster.running(shared, pool(NODE, "gpu-0"))
    assert cluster.versions() == before
    again.publish([pool("fabric", "f")])  # from many nodes to one: the field is immutable
    wait(lambda: again.synced)
    assert cluster.names() == ["f", "t"]
    assert [spec.get("nodeName") for spec in cluster.specs() if spec["pool"]["name"] == "fabric"] == [NODE]
    assert theirs.stats == Stats(creates=1)


def test_what_an_earlier_run_left_for_several_nodes(cluster: Cluster):
    cluster.running(pool("fabric", "f", node=NodeSelection(all_nodes=True))).stop()
    cluster.running(pool("fabric", "f"))
    assert [spec.get("nodeName") for spec in cluster.specs()] == [NODE]


def test_a_driver_of_the_whole_cluster(cluster: Cluster, eventually):
    selector = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}]}
    controller = cluster.running(pool("rack-1", "a", node=NodeSelection(node_selector=selector)), node=None)
    (item,) = cluster.slices()
    assert item["metadata"]["name"].startswith("00000-gpu.example.com-")
    assert "ownerReferences" not in item["metadata"]
    assert item["spec"]["nodeSelector"] == selector
    assert len(cluster.server.log.records("get", "nodes")) == 0
    cluster.delete(item)
    eventually(lambda: cluster.names() == ["a"])
    controller.publish([pool("rack-1", "b")])
    assert "must say which nodes reach it" in str(controller.errors.get("rack-1"))


def test_an_error_handler_that_fails_harms_nothing(cluster: Cluster, eventually, caplog: pytest.LogCaptureFixture):
    def fail(name: str, error: Exception) -> None:
        raise RuntimeError("handler")

    controller = cluster.running(pool("a"), on_error=fail)
    controller.publish([pool("a", "x", "x"), pool("b", "y")])
    eventually(lambda: "y" in cluster.names())
    assert not controller.synced
    assert "the error handler of the slice controller failed" in caplog.text


def test_a_bug_is_told_and_survived(cluster: Cluster, eventually, monkeypatch: pytest.MonkeyPatch):
    calls = []

    def broken(*args: object) -> None:
        calls.append(args)
        raise KeyError("bug")

    controller = cluster.controller()
    with monkeypatch.context() as patch:
        patch.setattr("dra_sdk.node.slices.controller.diff", broken)
        controller.start()
        controller.publish([pool(NODE)])
        assert isinstance(eventually(lambda: controller.errors.get(NODE)), KeyError)
    wait(lambda: controller.synced)


def test_stop_is_prompt_in_every_state(cluster: Cluster, eventually):
    idle = cluster.controller()
    assert idle.stop(LONG)  # never started
    running = cluster.running(pool(NODE))
    eventually(lambda: cluster.server.open_watches)
    assert running.stop(LONG)
    cluster.server.stop()
    lost = cluster.controller(backoff=Backoff(retry=60))
    lost.start()
    eventually(lambda: lost.errors.get(""))
    assert lost.stop(LONG)


def test_equal_plans_do_not_shorten_the_back_off(cluster: Cluster, eventually):
    cluster.server.faults.add(FaultRule(Reject(statuses.unavailable()), verb="create"))
    controller = cluster.controller(backoff=Backoff(retry=60))
    controller.start()
    controller.publish([pool(NODE)])
    eventually(lambda: controller.errors.get(NODE))
    for _ in range(5):
        controller.publish([pool(NODE)])
    assert not controller.synced
    assert len(cluster.server.log.records("create", "resourceslices")) == 1
    assert controller.stats == Stats(errors=1)
    assert FAST.retry < 60


def test_the_pauses_before_connecting_grow_however_long_it_takes(cluster: Cluster, eventually):
    attempts = []

    def refuse() -> None:
        attempts.append(monotonic())
        raise SettingsError("no credentials")

    timing = Backoff(retry=0.01, retry_limit=60, calm=0.05)
    controller = cluster.controller(connect=refuse, backoff=timing)
    controller.start()
    eventually(lambda: len(attempts) >= 6)
    assert not controller.synced
    pauses = [after - before for before, after in pairwise(attempts)]
    assert all(pause >= 0.008 * 2**number for number, pause in enumerate(pauses))
