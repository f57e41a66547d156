from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.errors import ApiError, InvalidError, UnreachableError
from dra_sdk.kube.api import Params
from dra_sdk.kube.client import KubeClient
from dra_sdk.model.device import CounterConsumption, CounterSet, Device, NodeAllocatable, ResourcePool
from dra_sdk.node.slices.packing import depends_on_release, for_release, has_counters, pack_for_1_34, split_devices
from dra_sdk.node.slices.plan import plan
from dra_sdk.node.slices.writer import Stats
from dra_sdk.testing.waiting import wait
from dra_sdk.tools.simulator.local import LocalClient
from dra_sdk.tools.simulator.objects import ObjectStore
from dra_sdk.tools.simulator.resources import server_catalog
from dra_sdk.tools.simulator.server import ApiServer
from dra_sdk.tools.simulator.strategy import Strategy
from dra_sdk.wire.profile import ServerProfile
from tests.node.slices.conftest import NODE, Cluster

JSON = dict[str, Any]
Start = Callable[..., Cluster]
GATE = "DRAPartitionableDevices"


def counters(number: int) -> dict[str, int]:
    return {f"c{i}": 8 for i in range(number)}


def part(name: str, *sets: str, number: int = 1) -> Device:
    return Device(name, consumes=[CounterConsumption(each, counters(number)) for each in sets])


def planned(devices: list[Device], *sets: str, number: int = 1) -> list[JSON]:
    pool = ResourcePool(NODE, devices, [CounterSet(each, counters(number)) for each in sets])
    return list(plan([pool], driver="d", node_name=NODE)[NODE].slices)  # type: ignore[union-attr]


def shown(slices: list[JSON]) -> list[tuple[list[str], list[str]]]:
    """The counter sets and the devices of each slice."""
    kinds = ("sharedCounters", "devices")
    return [
        ([x["name"] for x in each.get(kinds[0], [])], [x["name"] for x in each.get(kinds[1], [])]) for each in slices
    ]


@pytest.mark.parametrize("minor", [35, 36, 37])
def test_newer_servers_take_slices_as_they_are_planned(minor: int):
    slices = planned([part("a", "s"), part("b", "s")], "s")
    assert pack_for_1_34(slices, minor) == slices
    assert shown(slices) == [(["s"], []), ([], ["a", "b"])]


@pytest.mark.parametrize(
    ("given", "mapping_of_1_36", "mapping_of_1_37"),
    [
        (
            NodeAllocatable(capacity_key="cores", multiplier=2),
            {"capacityKey": "cores", "allocationMultiplier": "2"},
            {"capacityKey": "cores", "capacityMultiplier": "2"},
        ),
        (NodeAllocatable(multiplier="2Gi"), {"allocationMultiplier": "2Gi"}, {"deviceMultiplier": "2Gi"}),
    ],
)
def test_node_allocatable_resources_have_the_form_of_the_release(given, mapping_of_1_36, mapping_of_1_37):
    slices = planned([Device("a", capacity={"cores": 4}, node_allocatable={"cpu": given}), part("b", "s")], "s")
    assert depends_on_release(slices)
    (_, older), (sets, newer) = for_release(slices, 36), for_release(slices, 37)
    assert older["devices"][0]["nodeAllocatableResourceMappings"] == {"cpu": mapping_of_1_36}
    assert newer["devices"][0]["nodeAllocatableResources"] == {"cpu": {"mapping": mapping_of_1_37}}
    assert "nodeAllocatableResourceMappings" not in newer["devices"][0]
    assert (sets, newer["devices"][1]) == (slices[0], slices[1]["devices"][1])


@pytest.mark.parametrize(("devices", "sets"), [([Device("a")], []), ([], [])])
def test_other_slices_are_the_same_for_each_release(devices: list[Device], sets: list[str]):
    slices = planned(devices, *sets)
    assert not depends_on_release(slices)
    assert for_release(slices, 34) == for_release(slices, 37) == slices


def test_without_counters_1_34_takes_them_too():
    slices = planned([Device(f"d{i}") for i in range(130)])
    assert not has_counters(slices)
    assert pack_for_1_34(slices, 34) == slices


def test_1_34_has_sets_and_their_devices_together():
    slices = planned([part("a", "s"), Device("plain"), part("b", "s")], "s")
    (found,) = pack_for_1_34(slices, 34)
    assert shown([found]) == [(["s"], ["a", "b", "plain"])]
    assert found["nodeName"] == NODE


def test_devices_that_use_two_sets_bring_both_along():
    devices = [part("a", "s"), part("b", "u"), part("c", "t", "u"), part("d", "s", "t"), part("e", "other")]
    found = pack_for_1_34(planned(devices, "s", "t", "u", "other", number=8), 34)
    assert shown(found) == [(["s", "t", "u", "other"], ["a", "b", "c", "d", "e"])]
    found = pack_for_1_34(planned(devices, "s", "t", "u", "other", number=9), 34)
    assert shown(found) == [(["s", "t", "u"], ["a", "b", "c", "d"]), (["other"], ["e"])]


def test_a_set_that_nobody_uses_is_published_all_the_same():
    assert shown(pack_for_1_34(planned([part("a", "s")], "s", "idle"), 34)) == [(["s", "idle"], ["a"])]


@pytest.mark.parametrize(
    ("devices", "number", "sizes"),
    [
        ([part(f"{s}{i}", s) for s in ("s", "t") for i in range(65)], 1, [65, 65]),  # 128 devices a slice
        ([part(f"{s}{i}", s, number=11) for s in ("s", "t") for i in range(50)], 11, [50, 50]),  # 1024 counters used
        ([part("s0", "s", number=17), part("t0", "t", number=17)], 17, [1, 1]),  # 32 counters
        ([part("s0", "s", number=16), part("t0", "t", number=16)], 16, [2]),
    ],
)
def test_what_does_not_fit_into_one_slice_gets_another(devices: list[Device], number: int, sizes: list[int]):
    found = pack_for_1_34(planned(devices, "s", "t", number=number), 34)
    assert [len(each["devices"]) for each in found] == sizes


@pytest.mark.parametrize(
    "slices",
    [
        planned([part(f"d{i}", "s") for i in range(129)], "s"),
        planned([part(f"d{i}", "s", number=17) for i in range(61)], "s", number=17),
        planned([part("d", "s", "t", number=17)], "s", "t", number=17),
    ],
    ids=["devices", "counters consumed", "counters"],
)
def test_what_can_never_fit_into_one_stays_as_planned(slices: list[JSON]):
    assert pack_for_1_34(slices, 34) == slices
    assert split_devices(slices) == [device["name"] for each in slices for device in each.get("devices", ())]


def test_which_devices_have_their_sets_in_another_slice():
    slices = planned([part("a", "s"), Device("plain"), part("b", "t")], "s", "t")
    assert split_devices(slices) == ["a", "b"]
    assert split_devices(pack_for_1_34(slices, 34)) == []
    assert split_devices([{"sharedCounters": slices[0]["sharedCounters"][:1], "devices": slices[1]["devices"]}]) == [
        "b"
    ]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts an API server of a release, with its rules."""
    with ExitStack() as stack:

        def go(minor: int, **gates: bool) -> Cluster:
            profile = ServerProfile.of(f"1.{minor}", gates)
            store = ObjectStore(server_catalog(profile))
            Strategy(store, profile).install()
            server = stack.enter_context(ApiServer(store, git_version=f"v1.{minor}.4"))
            made = Cluster(server, LocalClient(store), server.write_kubeconfig(tmp_path / "kubeconfig"), stack)
            made.node()
            return made

        yield go


POOL = ResourcePool(NODE, [part("a", "s"), part("b", "s")], [CounterSet("s", counters(1))])
BIGGER = ResourcePool(NODE, [*POOL.devices, part("c", "s")], POOL.counter_sets)
TOGETHER = [(["s"], ["a", "b"])]
APART = [(["s"], []), ([], ["a", "b"])]


@pytest.mark.parametrize(("minor", "expected"), [(34, TOGETHER), (35, APART), (36, APART), (37, APART)])
def test_each_release_gets_the_form_it_takes(start: Start, minor: int, expected: list[tuple[list[str], list[str]]]):
    cluster = start(minor, **{GATE: True})
    controller = cluster.running(POOL)
    assert shown(cluster.specs()) == expected
    assert controller.errors == {}
    assert controller.stats == Stats(creates=len(expected))


def test_a_restart_with_1_34_writes_nothing_and_a_change_one_slice(start: Start):
    cluster = start(34, **{GATE: True})
    cluster.running(POOL).stop()
    before = cluster.versions()
    again = cluster.running(POOL)
    assert (again.stats, cluster.versions()) == (Stats(), before)
    again.publish([BIGGER])
    wait(lambda: again.synced)
    assert again.stats == Stats(updates=1)
    assert shown(cluster.specs()) == [(["s"], ["a", "b", "c"])]


@pytest.mark.parametrize(("first", "published"), [((), "a"), (("b",), "b")])
@pytest.mark.parametrize(("minor", "slices"), [(34, 1), (35, 2)])
def test_without_counters_no_two_devices_are_published_that_exclude_each_other(
    start: Start, minor: int, slices: int, first: tuple[str, ...], published: str
):
    cluster = start(minor)
    controller = cluster.running(replace(POOL, without_counters=first))
    assert controller.stats == Stats(creates=slices)
    assert cluster.names() == [published]
    (withheld,) = {"a", "b"} - {published}
    assert controller.withheld == {NODE: {withheld: GATE}}
    problem = str(controller.errors[NODE])
    assert f"not published: {withheld}, because they share hardware with others" in problem
    assert f"probably these feature gates are disabled: {GATE}" in problem


def test_what_fits_together_is_published_without_counters(start: Start):
    cluster = start(35)
    sizes = {"half-0": 1, "half-1": 1, "whole": 2}
    parts = [Device(name, consumes=[CounterConsumption("s", {"units": size})]) for name, size in sizes.items()]
    cluster.running(ResourcePool(NODE, parts, [CounterSet("s", {"units": 2})]))
    assert cluster.names() == ["half-0", "half-1"]


def test_a_restart_of_a_driver_whose_devices_are_withheld_writes_nothing(start: Start):
    cluster = start(35)
    cluster.running(POOL).stop()
    before, problems = cluster.versions(), list(cluster.problems)
    again = cluster.running(POOL)
    assert (again.stats, cluster.versions()) == (Stats(), before)
    assert [str(error) for _, error in cluster.problems] == 2 * [str(error) for _, error in problems]


LARGE = ResourcePool(NODE, [part("d", "s", "t", number=17)], [CounterSet(each, counters(17)) for each in "st"])


def test_too_much_for_1_34_works_without_the_feature(start: Start):
    cluster = start(34)
    cluster.running(LARGE)
    assert shown(cluster.specs()) == [([], []), ([], ["d"])]


def test_too_much_for_1_34_is_refused_with_the_feature(start: Start, eventually):
    cluster = start(34, **{GATE: True})
    controller = cluster.controller()
    controller.start()
    controller.publish([LARGE])
    (name, error), *_ = eventually(lambda: cluster.problems)
    assert (name, type(error)) == (NODE, InvalidError)
    assert "sharedCounters: must have at most 32 counters in all, has 34" in str(error)


class Client:
    """A client that is told another version of the server, or that it may not know it."""

    def __init__(self, client: KubeClient, answer: Callable[[], JSON]) -> None:
        self._client, self._answer = client, answer

    def get(self, path: str, params: Params | None = None) -> JSON:
        return self._answer() if path == "/version" else self._client.get(path, params)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def test_a_server_that_is_upgraded_from_1_34_gets_the_new_form(start: Start, eventually):
    cluster, versions = start(36), ["v1.34.8"]
    controller = cluster.controller(connect=lambda: Client(cluster.client(), lambda: {"gitVersion": versions[-1]}))
    controller.start()
    controller.publish([POOL])
    eventually(lambda: controller.errors.get(NODE))  # refused, by a server that is newer than it says
    versions.append("v1.36.3")
    wait(lambda: controller.synced)
    assert shown(cluster.specs()) == APART


def refuse() -> JSON:
    raise ApiError("you may not know", status=403, reason="Forbidden")


def be_away() -> JSON:
    raise UnreachableError("nobody there")


def test_a_server_that_keeps_its_version_to_itself_is_taken_for_a_new_one(start: Start):
    cluster = start(36)
    cluster.running(POOL, connect=lambda: Client(cluster.client(), refuse))
    assert shown(cluster.specs()) == APART


def test_no_version_for_another_reason_is_an_error_as_any_other(start: Start, eventually):
    cluster = start(36)
    controller = cluster.controller(connect=lambda: Client(cluster.client(), be_away))
    controller.start()
    controller.publish([POOL])
    (name, error), *_ = eventually(lambda: cluster.problems)
    assert (name, str(error)) == (NODE, "nobody there")
    assert cluster.specs() == []
