"""A mode that siblings share: QAT services of a card, and a mode like MIG that changes which devices there are."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest

from dra_sdk import Claim, Device, DriverInfo, HeldClaim, Node, OpaqueConfig, PreparedDevice, RetriableError
from dra_sdk.hardware import records, shared_mode
from dra_sdk.hardware.node_access import NodeAccess, WriteError
from dra_sdk.hardware.shared_mode import ModeRecord, SharedModes
from dra_sdk.testing import DriverFactory, DriverHarness, FakeNode, claim, request
from dra_sdk.testing.claims import FakeClaim
from dra_sdk.testing.crashes import assert_survives_crashes

pytest_plugins = ["dra_sdk.testing.plugin"]
CARDS = ("0000:6b:00.0", "0000:70:00.0")
STATE = "/var/lib/qat"


class QatConfig(OpaqueConfig, api_version="qat.example.com/v1"):
    """What the services of the card must be."""

    services: str = "sym"


class QatDriver:
    """Two virtual functions of each card. The services of a card can be changed only while it is down."""

    def __init__(self, effects: Any = None) -> None:
        self.effects = effects

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo("qat.example.com", configs=[QatConfig])

    def dra_discover(self, node: Node) -> Iterator[Device]:
        for index, card in enumerate(CARDS):
            for number in range(2):
                yield Device(f"card{index}-vf{number}", {"card": card}, hardware=card)

    def dra_prepare(self, claim: Claim[QatConfig]) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            self.modes(claim.node).hold(device.hardware, device.config.services, claim)
            yield device.prepared()

    def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
        self.modes(node).release(claim)

    def modes(self, node: Node) -> SharedModes:
        access = NodeAccess(node.root, self.effects)

        def read(card: str) -> str:
            return (qat(node, card) / "cfg_services").read_text().strip()

        def write(card: str, services: str) -> None:
            for name, text in (("state", "down"), ("cfg_services", services), ("state", "up")):
                access.write(qat(node, card) / name, text)

        return SharedModes(access, STATE, read, write)


def qat(node: Node, card: str) -> Path:
    return node.sys / "bus/pci/devices" / card / "qat"


def only_while_down(path: Path, text: str) -> None:
    """Refuse other services as the kernel does."""
    if (path.parent / "state").read_text() == "up\n":
        raise OSError(errno.EBUSY, "Device or resource busy")
    path.write_text(f"{text.strip()}\n")


@pytest.fixture
def driver(dra_node: FakeNode) -> DriverHarness:
    for card in CARDS:
        dra_node.file(f"/sys/bus/pci/devices/{card}/qat/cfg_services", "asym\n")
        dra_node.file(f"/sys/bus/pci/devices/{card}/qat/state", "up\n")
    dra_node.effects.on_write("/sys/bus/pci/devices/*/qat/cfg_services", only_while_down)
    return DriverHarness(lambda: QatDriver(dra_node.effects), dra_node)


def shown(driver: DriverHarness, card: str = CARDS[0]) -> tuple[str, str]:
    """Services and state of a card."""
    files = qat(driver.node.node, card)
    return (files / "cfg_services").read_text(), (files / "state").read_text()


def of_card(index: int, services: str) -> FakeClaim:
    where = f'device.attributes["qat.example.com"].card == "{CARDS[index]}"'
    return claim(request("vf", where=where), config=QatConfig(services=services))


def kept(driver: DriverHarness) -> dict[str, ModeRecord]:
    known = records.Records(driver.node.path(STATE), ModeRecord, driver.node.boot_id, driver.node.access.clock)
    return {device: known.read(device) for device in known.devices()}


def test_the_first_claim_sets_the_mode_and_the_last_restores_it(driver: DriverHarness) -> None:
    first = driver.prepare(of_card(0, "sym"))
    assert shown(driver) == ("sym\n", "up\n")
    assert shown(driver, CARDS[1]) == ("asym\n", "up\n")
    writes = len(driver.node.effects.calls)
    second = driver.prepare(of_card(0, "sym"))
    assert len(driver.node.effects.calls) == writes, "a claim that agrees changes nothing"
    driver.unprepare(first)
    assert shown(driver) == ("sym\n", "up\n")
    driver.unprepare(second)
    assert (shown(driver), kept(driver)) == (("asym\n", "up\n"), {})
    driver.unprepare(second)  # repeatable
    driver.assert_clean()


def test_a_claim_that_needs_another_mode_is_refused_with_the_holder_and_gets_it_later(driver: DriverHarness) -> None:
    holder = driver.prepare(of_card(0, "sym"))
    other = driver.cluster.claims[driver.allocate(of_card(0, "dc"))["metadata"]["uid"]]
    with pytest.raises(RetriableError) as refused:
        driver.prepare(other)
    assert f"{CARDS[0]} is in mode 'sym', which {holder.ref} holds; claim " in str(refused.value)
    assert "needs 'dc', and gets it when no other claim holds a mode of" in str(refused.value)
    assert shown(driver) == ("sym\n", "up\n")
    driver.prepare(of_card(1, "dc"))  # the other card has a mode of its own
    driver.unprepare(holder)
    driver.prepare(other)
    assert shown(driver) == ("dc\n", "up\n")


def test_a_mode_that_the_hardware_has_already_is_held_without_a_write(driver: DriverHarness) -> None:
    prepared = driver.prepare(of_card(0, "asym"))
    with pytest.raises(RetriableError, match="is in mode 'asym'"):
        driver.prepare(of_card(0, "sym"))
    driver.unprepare(prepared)
    assert driver.node.effects.calls == []


def test_a_kill_at_any_line_of_the_block_leaves_the_mode_of_before(driver: DriverHarness) -> None:
    crashes = assert_survives_crashes(driver, of_card(0, "sym"), modules=[shared_mode, records])
    assert crashes > 100
    assert shown(driver) == ("asym\n", "up\n")


@pytest.mark.parametrize("point", [1, 2, 3])
@pytest.mark.parametrize("after", [False, True])
def test_a_failure_beside_another_holder_leaves_the_mode_to_it(driver: DriverHarness, point: int, after: bool) -> None:
    """The second claim finds another mode than the first one has set, and fails to set it again."""
    holder, asked = driver.prepare(of_card(0, "sym")), of_card(0, "sym")
    driver.node.file(f"/sys/bus/pci/devices/{CARDS[0]}/qat/cfg_services", "dc\n")
    driver.node.effects.fail_call(point, after=after)
    with pytest.raises(WriteError, match="injected"):
        driver.prepare(asked)
    assert [set(record.claims) for record in kept(driver).values()] == [{holder.ref.uid}]
    second = driver.prepare(asked)
    assert shown(driver) == ("sym\n", "up\n")
    driver.unprepare(holder)
    assert shown(driver) == ("sym\n", "up\n")
    driver.unprepare(second)
    assert shown(driver) == ("asym\n", "up\n")


def test_a_restore_that_fails_is_tried_again_and_other_cards_have_their_turn(driver: DriverHarness) -> None:
    prepared = driver.prepare(claim(request("vf", count=3), config=QatConfig(services="sym")))
    assert [shown(driver, card) for card in CARDS] == [("sym\n", "up\n")] * 2
    driver.node.effects.fail_call(2)
    with pytest.raises(WriteError, match="injected"):
        driver.unprepare(prepared)
    assert [shown(driver, card) for card in CARDS] == [("sym\n", "down\n"), ("asym\n", "up\n")]
    driver.unprepare(prepared)
    assert shown(driver) == ("asym\n", "up\n")


def test_a_holder_that_no_longer_has_a_device_does_not_count(driver: DriverHarness) -> None:
    """An operator has forgotten its state file, so its unprepare will never come."""
    forgotten = driver.prepare(of_card(0, "sym"))
    (file,) = driver.data.rglob("*.json")
    file.unlink()
    driver.restart()
    driver.cluster.claims.pop(forgotten.ref.uid)
    prepared = driver.prepare(of_card(0, "dc"))
    assert shown(driver) == ("dc\n", "up\n")
    driver.unprepare(prepared)
    assert shown(driver) == ("asym\n", "up\n")


def test_after_a_reboot_the_mode_of_before_is_that_of_the_new_boot(driver: DriverHarness) -> None:
    prepared = driver.prepare(of_card(0, "sym"))
    driver.reboot()
    driver.node.file(f"/sys/bus/pci/devices/{CARDS[0]}/qat/cfg_services", "dc\n")
    driver.prepare(prepared)
    driver.unprepare(prepared)
    assert shown(driver) == ("dc\n", "up\n")


@pytest.mark.parametrize(("persistent", "mode"), [(True, "off"), (False, "on")])
def test_a_mode_that_outlives_a_reboot_is_restored_after_it(tmp_path: Path, persistent: bool, mode: str) -> None:
    node, hardware = FakeNode(tmp_path), {"gpu": "off"}
    make = lambda: SharedModes(  # noqa: E731
        node.access, "/var/lib/gpus", hardware.__getitem__, hardware.__setitem__, persistent=persistent
    )
    make().hold("gpu", "on", Claim("ns", "c", "uid-1", node.node, ()))
    node.reboot()
    make().release(HeldClaim("ns", "c", "uid-1", rebooted=True))
    assert hardware["gpu"] == mode


def test_two_claims_at_once_agree_or_one_is_refused(tmp_path: Path) -> None:
    node, hardware, start = FakeNode(tmp_path), {"card": "a"}, Barrier(2)
    refused: list[Exception] = []
    held = [HeldClaim("ns", "one", "uid-b"), HeldClaim("ns", "two", "uid-c")]

    def hold(mode: str) -> None:
        modes = SharedModes(node.access, STATE, hardware.__getitem__, hardware.__setitem__)
        start.wait()
        try:
            modes.hold("card", mode, Claim("ns", mode, f"uid-{mode}", node.node, (), held=lambda: held))
        except RetriableError as error:
            refused.append(error)

    threads = [Thread(target=hold, args=(mode,)) for mode in "bc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(refused) == 1
    assert hardware["card"] in str(refused[0])


class MigDriver:
    """A GPU that is either whole or two slices; a claim for the whole one with `slices` switches it, as MIG does."""

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo("mig.example.com")

    def dra_discover(self, node: Node) -> Iterator[Device]:
        yield Device("switch", allow_multiple_allocations=True)
        if mode_file(node).read_text() == "1":
            yield from (Device(f"slice-{number}") for number in range(2))

    def dra_prepare(self, claim: Claim[None]) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            if self.modes(claim.node).hold("gpu-0", "1", claim):
                claim.node.discover_again()
            yield device.prepared()

    def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
        if self.modes(node).release(claim):
            node.discover_again()

    def modes(self, node: Node) -> SharedModes:
        def write(_gpu: str, mode: str) -> None:
            mode_file(node).write_text(mode)

        return SharedModes(
            NodeAccess(node.root, None), "/var/lib/gpus", lambda _gpu: mode_file(node).read_text(), write
        )  # type: ignore[arg-type]


def mode_file(node: Node) -> Path:
    return node.root / "mig_mode"


def test_a_hook_that_has_changed_the_devices_says_discover_again(dra_node: FakeNode, dra_driver: DriverFactory) -> None:
    dra_node.file("/mig_mode", "0")
    driver = dra_driver(MigDriver)
    assert list(driver.devices) == ["switch"]
    prepared = driver.prepare(claim())
    assert list(driver.devices) == ["switch", "slice-0", "slice-1"]
    driver.unprepare(prepared)
    assert list(driver.devices) == ["switch"]
