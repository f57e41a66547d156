"""Interfaces of the real kernel come back whatever happened in the meantime, and the claim ends if they are back."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from dra_driver_nic import NicConfig, NicDriver, NicSettings
from dra_driver_nic.config import InterfaceConfig
from dra_driver_nic.network.kernel import KernelNamespace
from dra_driver_nic.network.links import Network, NetworkError, NetworkNamespace
from dra_driver_nic.testing import EVERY_FIELD, PrivateNetworks, run_sandbox, stop_sandbox, wait_for_state

from dra_sdk import DraError, RetriableError
from dra_sdk.testing import DriverHarness, FakeClaim, FakeNode, claim, request

pytest_plugins = ["dra_sdk.testing.plugin"]
T = TypeVar("T")
CONFIG = NicConfig(interface=InterfaceConfig(name="net1"))
IF_NAME = 'device.attributes["dra.net"].ifName'
ONE = request("nic", where=f'{IF_NAME} == "nic0"')


def altnames(networks: PrivateNetworks, name: str) -> list[str]:
    (link,) = json.loads(networks.node.ip(f"-j link show {name}"))
    return sorted(link.get("altnames", ()))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno == logging.WARNING]


# --- names


def test_the_name_in_the_pod_may_be_an_alternative_name_of_the_interface(
    nic_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    networks.node.ip("link property add dev nic0 altname lab-uplink altname net1")  # left behind by another tool
    before = networks.node.state()
    pod = networks.add_pod("pod1")
    prepared = nic_driver.prepare(claim(ONE, config=CONFIG))
    made = run_sandbox(nic_driver, "pod1")
    assert pod.names() == {"lo", "net1"}
    stop_sandbox(nic_driver, made)
    nic_driver.unprepare(prepared)
    assert altnames(networks, "nic0") == ["lab-uplink", "net1"]
    wait_for_state(networks.node, before)


def test_an_alternative_name_that_the_pod_has_stays_behind(
    nic_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    networks.node.ip("link property add dev nic0 altname eth0")
    pod = networks.add_pod("pod1")
    pod.ip("link add eth0 type veth peer name eth1")
    prepared = nic_driver.prepare(claim(ONE, config=CONFIG))
    run_sandbox(nic_driver, "pod1")
    assert "net1" in pod.names()
    nic_driver.unprepare(prepared)
    assert altnames(networks, "nic0") == ["eth0"]
    nic_driver.assert_clean()


def test_its_name_on_the_node_may_have_become_an_alternative_name_of_the_interface(
    nic_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    """As udev gives it to an interface that comes back under another name."""
    before = networks.node.state()
    pod = networks.add_pod("pod1")
    prepared = nic_driver.prepare(claim(ONE, config=CONFIG))
    run_sandbox(nic_driver, "pod1")
    pod.ip("link property add dev net1 altname nic0")
    nic_driver.unprepare(prepared)
    wait_for_state(networks.node, before)


@pytest.mark.parametrize("stopped", [True, False], ids=["at the sandbox's stop", "by unprepare"])
@pytest.mark.parametrize("taken", ["name nic0", "property add dev wire1 altname nic0"])
def test_an_interface_whose_name_was_given_away_comes_back_under_another(
    nic_driver: DriverHarness, networks: PrivateNetworks, caplog: pytest.LogCaptureFixture, taken: str, stopped: bool
) -> None:
    networks.add_pod("pod1")
    prepared = nic_driver.prepare(claim(ONE, config=CONFIG))
    made = run_sandbox(nic_driver, "pod1")
    networks.node.ip("link set wire1 down", f"link {'set wire1 ' if 'dev' not in taken else ''}{taken}")
    owner = json.loads(networks.node.ip("-d -j addr show nic0"))
    if stopped:
        stop_sandbox(nic_driver, made)
    nic_driver.unprepare(prepared)
    nic_driver.assert_clean()
    (message,) = warnings(caplog)
    (name,) = [name for name in networks.node.names() if name.startswith("dra")]
    assert f"is back as {name} and cannot be renamed: the node has another interface nic0; rename it" in message
    (link,) = json.loads(networks.node.ip(f"-j addr show {name}"))
    assert ("altnames" in link, link["mtu"]) == (False, 4000)
    assert "10.9.0.1" in [address["local"] for address in link["addr_info"]]
    assert json.loads(networks.node.ip("-d -j addr show nic0")) == owner, "the other interface is left alone"


def test_an_alternative_name_that_was_given_away_is_lost(
    nic_driver: DriverHarness, networks: PrivateNetworks, caplog: pytest.LogCaptureFixture
) -> None:
    networks.node.ip("link property add dev nic0 altname lab-uplink")
    networks.add_pod("pod1")
    prepared = nic_driver.prepare(claim(ONE, config=CONFIG))
    run_sandbox(nic_driver, "pod1")
    networks.node.ip("link property add dev wire1 altname lab-uplink")
    nic_driver.unprepare(prepared)
    assert (altnames(networks, "nic0"), altnames(networks, "wire1")) == ([], ["lab-uplink"])
    assert "alternative name lab-uplink of device" in warnings(caplog)[0]
    nic_driver.assert_clean()


# --- the namespace at the path


def test_a_file_that_is_left_of_a_namespace_is_none(tmp_path: Path) -> None:
    path = tmp_path / "netns"
    path.touch()
    with pytest.raises(OSError, match="is no network namespace"):
        KernelNamespace(path)


class Netns:
    """What is at the path of a pod's network namespace."""

    def __init__(self, networks: PrivateNetworks) -> None:
        self.networks = networks
        self.fails_with: OSError | None = None

    def open(self, path: Path | None) -> KernelNamespace:
        if path is not None and self.fails_with is not None:
            raise self.fails_with
        return self.networks.open(path)


@pytest.fixture
def netns(networks: PrivateNetworks) -> Netns:
    return Netns(networks)


@pytest.fixture
def driver(dra_node: FakeNode, dra_driver: Any, netns: Netns) -> DriverHarness:
    settings = NicSettings(software=("veth", "macvlan"), protect=("wire*",), settle_seconds=0.01)
    made = partial(NicDriver, effects=dra_node.effects, open_namespace=netns.open, interval=0.05)
    harness: DriverHarness = dra_driver(made, settings=settings)
    return harness


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EINVAL, errno.ESRCH, errno.ENOTDIR])
def test_a_namespace_that_is_missing_or_only_a_file_has_ended(
    driver: DriverHarness, networks: PrivateNetworks, netns: Netns, number: int
) -> None:
    networks.add_pod("pod1")
    prepared = driver.prepare(claim(ONE))
    run_sandbox(driver, "pod1")
    networks.end_pod("pod1")
    netns.fails_with = OSError(number, "injected")
    driver.unprepare(prepared)
    driver.assert_clean()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE, errno.EIO, errno.EPERM])
def test_a_namespace_that_cannot_be_opened_now_may_still_have_the_interface(
    driver: DriverHarness, networks: PrivateNetworks, netns: Netns, number: int
) -> None:
    networks.add_pod("pod1")
    before = networks.node.state()
    prepared = driver.prepare(claim(ONE))
    run_sandbox(driver, "pod1")
    netns.fails_with = OSError(number, "injected")
    with pytest.raises(RetriableError, match="network namespace /run/netns/pod1 cannot be opened: injected"):
        driver.unprepare(prepared)
    netns.fails_with = None
    driver.unprepare(prepared)
    wait_for_state(networks.node, before)


def test_another_namespace_at_the_path_is_left_alone(driver: DriverHarness, networks: PrivateNetworks) -> None:
    networks.add_pod("pod1")
    prepared = driver.prepare(claim(ONE, config=CONFIG))
    run_sandbox(driver, "pod1")
    old = networks.remove_path("pod1")
    (link,) = json.loads(old.ip("-j link show net1"))
    other = networks.add_pod("pod1")
    other.ip("link add net1 type veth peer name net2", f"link property add dev net1 altname {link['altnames'][0]}")
    old.close()
    driver.unprepare(prepared)
    assert other.names() == {"lo", "net1", "net2"}
    driver.assert_clean()


def test_an_empty_namespace_at_the_path_has_nothing_to_give_back(
    driver: DriverHarness, networks: PrivateNetworks
) -> None:
    pod = networks.add_pod("pod1")
    prepared = driver.prepare(claim(ONE, config=CONFIG))
    run_sandbox(driver, "pod1")
    pod.ip("link del net1")
    driver.unprepare(prepared)
    driver.assert_clean()


# --- refusals at every step


class Refusals:
    """Refuses one call of a network, the `nth`, with an error number; counts all."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.nth, self.number = 0, 0

    def call(self, name: str, method: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        self.calls.append(name)
        if len(self.calls) == self.nth:
            raise NetworkError(f"the kernel refused to {name}: injected", self.number)
        return method(*arguments, **named)


class RefusingNetwork:
    def __init__(self, network: Network, refusals: Refusals) -> None:
        self._network, self._refusals = network, refusals

    def __getattr__(self, name: str) -> Any:
        return partial(self._refusals.call, name, getattr(self._network, name))


class RefusingNamespace:
    def __init__(self, namespace: NetworkNamespace, refusals: Refusals) -> None:
        self._namespace, self._refusals = namespace, refusals
        self.handle, self.identity, self.close = namespace.handle, namespace.identity, namespace.close

    def run(self, work: Callable[[Any], T]) -> T:
        return self._namespace.run(lambda network: work(RefusingNetwork(network, self._refusals)))


NUMBERS: Final = (errno.EBUSY, errno.EINVAL, errno.EIO, errno.EPERM, errno.ENODEV, errno.EEXIST)


class Refused:
    """A claim for both interfaces in a pod, whose undo is refused at one call."""

    def __init__(self, node: FakeNode, make_networks: Callable[[], PrivateNetworks], dra_driver: Any) -> None:
        self.refusals = Refusals()
        self.make_networks = make_networks
        self.networks = make_networks()
        settings = NicSettings(
            software=("veth",), protect=("wire*",), settle_seconds=0.01, state_dir="/run/nic", return_seconds=0.1
        )
        made = partial(NicDriver, effects=node.effects, open_namespace=self.open, interval=0.05)
        self.driver: DriverHarness = dra_driver(made, settings=settings)

    def open(self, path: Path | None) -> RefusingNamespace:
        return RefusingNamespace(self.networks.open(path), self.refusals)

    def attempt(self, nth: int, number: int) -> tuple[int, str]:
        """How many calls an undo made, and why it failed, if it did."""
        self.networks = self.make_networks()
        before = self.networks.node.state()
        self.networks.add_pod("pod1")
        self.refusals.nth = 0
        prepared = self.driver.prepare(both())
        run_sandbox(self.driver, "pod1")
        self.refusals.calls, self.refusals.nth, self.refusals.number = [], nth, number
        problem = ""
        try:
            self.driver.unprepare(prepared)
        except DraError as error:
            problem = str(error)
        calls, self.refusals.nth = len(self.refusals.calls), 0
        assert len({"nic0", "nic1"} & self.networks.node.names()) >= 1, "the other interface is back in any case"
        if problem:
            assert [held.uid for held in self.driver.held] == [prepared.ref.uid]
            self.driver.unprepare(prepared)
        if problem or not nth:
            wait_for_state(self.networks.node, before)
        self.driver.assert_clean()
        left = self.networks.node.names()
        assert len([name for name in left if name.startswith(("nic", "dra"))]) == 2, left
        assert "dra-" not in self.networks.node.ip("link"), "no tag is left"
        return calls, problem


def both() -> FakeClaim:
    other = NicConfig(interface=InterfaceConfig(name="net2", addresses=("10.5.0.1/24",), mtu=1600), routes=())
    two = claim(ONE, request("other", where=f'{IF_NAME} == "nic1"'))
    return two.configured(EVERY_FIELD, "nic").configured(other, "other")


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_after_a_refusal_at_any_call_the_other_interface_is_back_and_the_next_undo_succeeds(
    dra_node: FakeNode,
    make_networks: Callable[[], PrivateNetworks],
    dra_driver: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = Refused(dra_node, make_networks, dra_driver)
    calls, _ = made.attempt(0, 0)
    held: dict[str, str] = {}
    numbers: Iterator[int] = cycle(NUMBERS)
    for nth in range(1, calls + 1):
        number = next(numbers)
        _, problem = made.attempt(nth, number)
        if problem:
            held[made.refusals.calls[nth - 1]] = problem
            assert "device nic" in problem or "cannot be read" in problem, problem
    with capsys.disabled():
        print(f"\n{calls} calls of an undo refused, one after the other; the claim was held by {sorted(held)}")
    assert not {"set_channels", "set_rings", "set_features", "set_sysctl", "sysctls", "ethtool"} & held.keys()
    assert not {"add_address", "add_route", "add_neighbour", "remove_rule"} & held.keys()
