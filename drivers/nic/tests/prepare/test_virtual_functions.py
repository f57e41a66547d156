"""Settings of virtual functions, on a network that remembers them: no kernel here has a card with VFs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from dra_driver_nic import NicConfig, NicDriver, NicSettings
from dra_driver_nic.config import VfConfig
from dra_driver_nic.network.files import FilesNetwork
from dra_driver_nic.network.links import Link, NetworkError, NetworkSnapshot, VfSettings
from dra_driver_nic.settings import CLASS_ONLY
from dra_driver_nic.testing import write_interface

from dra_sdk import PermanentError, RetriableError
from dra_sdk.hardware import Host
from dra_sdk.testing import DriverHarness, FakeNode, claim, request
from dra_sdk.testing.crashes import assert_survives_crashes
from dra_sdk.testing.sysfs import FakePci, regular_machine

pytest_plugins = ["dra_sdk.testing.plugin"]
T = TypeVar("T")
PF, VF = "0000:3b:00.0", "0000:3b:00.1"
BEFORE = VfSettings(
    number=0,
    mac="02:00:00:00:00:0a",
    vlan=0,
    qos=0,
    spoofchk=True,
    trust=False,
    min_tx_rate=0,
    max_tx_rate=0,
    link_state=0,
)


class PfNetwork(FilesNetwork):
    """The files of a node, whose PF keeps the settings of its VF 0 in a file, which outlives a process."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._file = host.root / "vf0.json"
        self.settings = BEFORE
        self.refuses = frozenset[str]()

    @property
    def settings(self) -> VfSettings:
        return VfSettings(**json.loads(self._file.read_text()))

    @settings.setter
    def settings(self, settings: VfSettings) -> None:
        self._file.write_text(json.dumps(asdict(settings)))

    def links(self) -> list[Link]:
        return [replace(link, vfs=(self.settings,)) if link.index == 2 else link for link in super().links()]

    def snapshot(self) -> NetworkSnapshot:
        return NetworkSnapshot(self.links())

    def set_vf(self, link: int, settings: VfSettings) -> None:
        assert link == 2
        given = {field.name: getattr(settings, field.name) for field in fields(settings)}
        for name in self.refuses:
            if given.get(name) is not None:
                raise NetworkError(f"the kernel refused to set {name} of virtual function 0 of interface 2")
        self.settings = replace(self.settings, **{name: value for name, value in given.items() if value is not None})


@dataclass
class PfNamespace:
    network: PfNetwork
    handle: int = -1
    identity: str = ""

    def run(self, work: Callable[[Any], T]) -> T:
        return work(self.network)

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def network(dra_node: FakeNode) -> PfNetwork:
    pf = FakePci(address=PF, driver="igb", total_vfs=7)
    dra_node.machine(replace(regular_machine(), pci=(pf, replace(pf, address=VF, total_vfs=0, physical_function=PF))))
    write_interface(dra_node, "pf0", 2, f"pci0000:00/{PF}")
    write_interface(dra_node, "vf0", 3, f"pci0000:00/{VF}")
    return PfNetwork(Host(dra_node.root))


@pytest.fixture
def driver(dra_node: FakeNode, dra_driver: Any, network: PfNetwork) -> DriverHarness:
    def opened(path: Path | None) -> PfNamespace:
        assert path is None
        return PfNamespace(network)

    def made(settings: NicSettings) -> NicDriver:
        return NicDriver(settings, effects=dra_node.effects, open_namespace=opened)

    harness: DriverHarness = dra_driver(made, settings=NicSettings(claim_fields=CLASS_ONLY))
    return harness


def configured(**settings: Any) -> Any:
    return claim(request(where='device.attributes["dra.net"].isSriovVf'), config=NicConfig(vf=VfConfig(**settings)))


def test_a_vf_has_its_settings_while_a_claim_has_it(driver: DriverHarness, network: PfNetwork) -> None:
    prepared = driver.prepare(configured(vlan=100, trust=True, spoofchk=False, max_tx_rate=500, link_state="enable"))
    assert network.settings == replace(BEFORE, vlan=100, trust=True, spoofchk=False, max_tx_rate=500, link_state=1)
    driver.restart()
    driver.unprepare(prepared)
    assert network.settings == BEFORE
    driver.assert_clean()


def test_a_kill_at_every_write_leaves_no_setting_changed(driver: DriverHarness) -> None:
    assert assert_survives_crashes(driver, configured(vlan=100, trust=True), lines=False) > 10


def test_a_setting_that_is_refused_is_undone(driver: DriverHarness, network: PfNetwork) -> None:
    network.refuses = frozenset({"trust"})
    with pytest.raises(RetriableError, match="the kernel refused to set trust of virtual function 0"):
        driver.prepare(configured(vlan=100, trust=True))
    network.refuses = frozenset()
    driver.restart()
    assert network.settings == BEFORE


def test_a_setting_that_the_card_does_not_have_is_refused(driver: DriverHarness, network: PfNetwork) -> None:
    network.settings = replace(BEFORE, trust=None)
    with pytest.raises(PermanentError, match=f"physical function {PF} has no setting trust for its VFs"):
        driver.prepare(configured(trust=True))


def test_a_card_that_was_unplugged_needs_no_undo(driver: DriverHarness, network: PfNetwork) -> None:
    prepared = driver.prepare(configured(vlan=100))
    for address in (PF, VF):
        driver.node.remove(f"/sys/bus/pci/devices/{address}")
    driver.unprepare(prepared)
    driver.assert_clean()


def test_settings_with_which_the_next_owner_is_safe_do_not_hold_the_claim(
    driver: DriverHarness, network: PfNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    prepared = driver.prepare(configured(vlan=100, max_tx_rate=500, link_state="disable"))
    network.refuses = frozenset({"max_tx_rate", "link_state"})
    driver.unprepare(prepared)
    driver.assert_clean()
    assert network.settings == replace(BEFORE, max_tx_rate=500, link_state=2)
    assert f"rates of virtual function 0 of {PF}: the kernel refused" in caplog.text
    assert f"link state of virtual function 0 of {PF}: the kernel refused" in caplog.text


@pytest.mark.parametrize("refused", ["vlan", "trust", "spoofchk"])
def test_settings_with_which_it_can_do_more_than_before_hold_the_claim(
    driver: DriverHarness, network: PfNetwork, refused: str
) -> None:
    settings = {"vlan": 100, "trust": True, "spoofchk": False}
    prepared = driver.prepare(configured(**settings))
    network.refuses = frozenset({refused})
    with pytest.raises(RetriableError, match=f"of virtual function 0 of {PF}: the kernel refused to set {refused}"):
        driver.unprepare(prepared)
    assert network.settings == replace(BEFORE, **{refused: settings[refused]}), "all others are restored"
    network.refuses = frozenset()
    driver.unprepare(prepared)
    assert network.settings == BEFORE
    driver.assert_clean()


def test_a_setting_that_is_as_before_is_left_alone(driver: DriverHarness, network: PfNetwork) -> None:
    """As after the operator has made the functions anew."""
    prepared = driver.prepare(configured(trust=True))
    network.settings, network.refuses = BEFORE, frozenset({"trust"})
    driver.unprepare(prepared)
    driver.assert_clean()


def test_a_function_that_no_longer_exists_needs_no_undo(driver: DriverHarness, network: PfNetwork) -> None:
    """As after the operator has changed the number of functions."""
    prepared = driver.prepare(configured(trust=True))
    network.refuses = frozenset({"trust"})
    function = driver.node.path(f"/sys/bus/pci/devices/{PF}")
    for link in function.glob("virtfn*"):
        link.unlink()
    assert (function / "sriov_numvfs").exists()
    driver.unprepare(prepared)
    driver.assert_clean()
