"""A variable that devices fill together, in a container that uses two requests, two claims and two drivers."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from dra_sdk import Claim, ContainerEdits, Device, DriverInfo, EnvList, Node, PreparedDevice
from dra_sdk.errors import DraError, HookError
from dra_sdk.nri import Container, ContainerAdjustment
from dra_sdk.testing import DriverHarness, FakeNode, claim, request

pytest_plugins = ["dra_sdk.testing.plugin"]
VARIABLE = "VISIBLE_DEVICES"


class Cards:
    """Eight cards; each adds its number to one variable."""

    name, nri = "cards.example.com", False

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo(self.name, nri=self.nri)

    def dra_discover(self, node: Node) -> Iterator[Device]:
        return (Device(f"card-{number}") for number in range(8))

    def dra_prepare(self, claim: Claim[Any]) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            yield device.prepared(self.edits(device.name.removeprefix("card-")))

    def edits(self, number: str) -> ContainerEdits:
        return ContainerEdits(env_lists={VARIABLE: [number]})


class JoinedCards(Cards):
    """The same as a plugin of the container runtime."""

    nri = True


class Chips(JoinedCards):
    """Another driver that fills the same variable, and one of its own."""

    name = "chips.example.com"

    def edits(self, number: str) -> ContainerEdits:
        return ContainerEdits(env_lists={VARIABLE: [f"chip{number}"], "CHIPS": EnvList([number], ":")})


class SilentChips(Chips):
    """Chips without NRI."""

    nri = False


def harness(driver: object, node: FakeNode) -> DriverHarness:
    return DriverHarness(driver, node)


def test_the_devices_of_a_request_fill_one_variable(dra_node: FakeNode) -> None:
    driver = harness(Cards, dra_node)
    container = driver.prepare(claim(request("a", count=3))).container()
    assert container.env == {VARIABLE: "0,1,2"}
    assert [name.partition("=")[2].rpartition("_")[2] for name in container.cdi_ids] == ["a"]  # one CDI device


def test_by_cdi_alone_each_request_has_its_own_and_the_last_of_a_container_is_seen(
    dra_node: FakeNode, caplog: pytest.LogCaptureFixture
) -> None:
    """Two requests of a claim, a second claim, and a claim of a second driver in one container."""
    cards, chips = harness(Cards, dra_node), harness(SilentChips, dra_node)
    used = {"main": ["a", "b"], "only-a": ["a"], "only-b": ["b"]}
    with caplog.at_level(logging.WARNING):
        both = cards.prepare(claim(request("a", count=2), request("b")), containers=used)
    assert "of requests a, b a container that uses several gets VISIBLE_DEVICES of the last one alone" in caplog.text
    second = cards.prepare(claim(request("c")))
    third = chips.prepare(claim(request("d", count=2)))
    assert {name: both.container(name).env for name in ("only-a", "only-b")} == {
        "only-a": {VARIABLE: "0,1"},
        "only-b": {VARIABLE: "2"},
    }
    with pytest.warns(UserWarning, match="VISIBLE_DEVICES is '0,1' by .* and '2' by"):
        assert both.container("main").env == {VARIABLE: "2"}
    with pytest.warns(UserWarning, match="the last is used"):
        assert both.container("main", second).env == {VARIABLE: "3"}
    with pytest.warns(UserWarning, match="the last is used"):
        assert both.container("main", second, third).env == {VARIABLE: "chip0,chip1", "CHIPS": "0:1"}


@pytest.mark.parametrize("version", ["0.3.0", "0.12.1"])
def test_by_nri_the_variable_has_the_devices_of_two_requests_two_claims_and_two_drivers(
    dra_node: FakeNode, version: str
) -> None:
    cards, chips = harness(JoinedCards, dra_node), harness(Chips, dra_node)
    with cards.nri(version) as runtime, chips.nri(runtime=runtime):
        used = {"main": ["a", "b"], "only-a": ["a"]}
        both = cards.prepare(claim(request("a", count=2), request("b")), containers=used, pod="p")
        second = cards.prepare(claim(request("c")), pod="p")
        third = chips.prepare(claim(request("d", count=2)), pod="p")
        pod = runtime.run_pod(both, second, third)
        alone = runtime.create_container(both, pod=pod, name="only-a")
        assert alone.env[VARIABLE] == "0,1"
        container = runtime.create_container(both, second, third, pod=pod)
        assert (container.env[VARIABLE], container.env["CHIPS"]) == ("0,1,2,3,chip0,chip1", "0:1")
        cards.restart()  # what claims add is read from their state files
        assert runtime.create_container(both, second, third, pod=pod).env[VARIABLE] == "0,1,2,3,chip0,chip1"
        assert VARIABLE not in runtime.create_container().env


def test_a_driver_with_nri_joins_with_what_one_without_has_set(dra_node: FakeNode) -> None:
    cards, chips = harness(JoinedCards, dra_node), harness(SilentChips, dra_node)
    with cards.nri() as runtime:
        mine, other = cards.prepare(claim(request(count=2)), pod="p"), chips.prepare(claim(), pod="p")
        assert runtime.create_container(mine, other).env[VARIABLE] == "chip0,0,1"
        assert runtime.create_container(other, mine).env[VARIABLE] == "0,1"  # by CDI the last one won before


class Hooked(JoinedCards):
    """Sets the variable itself."""

    def dra_create_container(self, container: Container) -> ContainerAdjustment:
        return ContainerAdjustment(env={VARIABLE: "all"} if "SET" in container.env else {})


def test_what_the_driver_sets_in_a_hook_comes_before_what_is_joined(dra_node: FakeNode) -> None:
    driver = harness(Hooked, dra_node)
    with driver.nri() as runtime:
        prepared = driver.prepare(claim(request("a"), request("b")))
        assert runtime.create_container(prepared).env[VARIABLE] == "0,1"
        assert runtime.create_container(prepared, env={"SET": ""}).env[VARIABLE] == "all"


def prepared_with(node: FakeNode, *edits: ContainerEdits) -> Mapping[str, str]:
    """The environment of a container whose claim has a device with each of these edits."""
    left = iter(edits)

    class Given(Cards):
        def edits(self, number: str) -> ContainerEdits:
            return next(left)

    return harness(Given, node).prepare(claim(request("a", count=len(edits)))).container().env


def lists(values: Any, separator: Any = ",", name: Any = "V") -> ContainerEdits:
    return ContainerEdits(env_lists={name: EnvList(values, separator)})


def test_values_come_once_in_the_order_of_the_allocation(dra_node: FakeNode) -> None:
    assert prepared_with(dra_node, lists(["b", "a"]), lists(["a", "c"]), ContainerEdits()) == {"V": "b,a,c"}


def test_other_edits_of_the_devices_stay_their_own(dra_node: FakeNode) -> None:
    edits = [ContainerEdits(env={f"E{number}": "1"}) + lists([number]) for number in "01"]
    assert prepared_with(dra_node, *edits) == {"E0": "1", "E1": "1", "V": "0,1"}


def test_edits_that_are_added_join_their_lists() -> None:
    assert (lists(["0"]) + lists(["1", "0"])).env_lists == {"V": EnvList(("0", "1"))}
    with pytest.raises(HookError, match="V is separated by ',' and by ':'; all devices must say the same"):
        _ = lists(["0"]) + lists(["1"], ":")


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ([lists(["0"]), ContainerEdits(env={"V": "1"})], "V is in env of device .*/card-1 and in env_lists"),
        ([lists(["0,1"])], "env_lists of device .*/card-0: V: '0,1' contains the separator ','"),
        ([lists(["0"]), lists(["1"], ":")], "V is separated by ',' and by ':'"),
        ([lists("01")], "V: must be a list of texts, is '01'"),
        ([lists([0])], "V: must be a list of texts that are not empty, has 0"),
        ([lists([""])], "V: must be a list of texts that are not empty, has ''"),
        ([lists(["0"], "")], "V: separator must be text that is not empty, is ''"),
        ([lists(["0"], name="A=B")], "the name of a variable must be text without '=', is 'A=B'"),
        ([ContainerEdits(env_lists=["V"])], r"must be a mapping of names to lists of texts, is \['V'\]"),
        ([ContainerEdits(env_lists={"V": "0"})], "V: must be a list of texts, is '0'"),
    ],
)
def test_lists_that_would_be_read_differently_are_refused(
    dra_node: FakeNode, edits: Sequence[ContainerEdits], message: str
) -> None:
    with pytest.raises(DraError, match=message):
        prepared_with(dra_node, *edits)


def test_a_driver_without_hooks_about_containers_must_say_that_it_uses_nri(dra_node: FakeNode) -> None:
    with pytest.raises(TypeError, match=r"nor DriverInfo\(nri=True\)"), harness(Cards, dra_node).nri():
        pass
