"""No two prepared claims share hardware: whatever the pools, the release, its feature gates and the scheduler are.

Cards have four units; devices are parts of them, which counters keep apart. What a claim has of the hardware is known
here from the parts, not from the counters.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dra_sdk import (
    Claim,
    ContainerEdits,
    CounterConsumption,
    CounterSet,
    Device,
    DeviceTaint,
    DriverInfo,
    HeldClaim,
    Node,
    PreparedDevice,
    ResourcePool,
)
from dra_sdk.errors import DeviceHeldError
from dra_sdk.model import JSON
from dra_sdk.testing import DriverHarness, FakeNode, claim
from dra_sdk.testing.cluster import RELEASES
from dra_sdk.wire.counters import CounterBudget

NAME = "cards.example.com"
GATES = ("DRAPartitionableDevices", "DRADeviceTaints", "DRAConsumableCapacity")
UNITS = range(4)
SHARE = "5f2b9c1e-0000-4000-8000-{:012d}"
BOUNDED = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@dataclass
class Cards:
    """A driver whose devices the test changes."""

    devices: list[Device] = field(default_factory=list)
    without_counters: tuple[str, ...] = ()

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo(NAME)

    def dra_discover(self, node: Node) -> Iterator[ResourcePool]:
        sets = [CounterSet(f"card{card}", {f"unit{unit}": 1 for unit in UNITS}) for card in range(2)]
        yield ResourcePool(node.name, self.devices, sets, without_counters=self.without_counters)

    def dra_prepare(self, claim: Claim[Any]) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            yield device.prepared(ContainerEdits(env={"CARD": device.name}))


class CardsWithUndo(Cards):
    def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
        """Nothing is changed, but the SDK records what it begins."""


def part(number: int, card: int, units: frozenset[int], kind: str) -> Device:
    consumes = [CounterConsumption(f"card{card}", {f"unit{unit}": 1 for unit in sorted(units)})]
    device = Device(f"part-{number}", consumes=consumes, hardware={(card, unit) for unit in units})
    if kind == "tainted":
        return replace(device, taints=[DeviceTaint(key="x", effect="NoSchedule")])
    return replace(device, allow_multiple_allocations=kind == "shared")


PARTS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.frozensets(st.sampled_from(UNITS), min_size=1),
        st.sampled_from(["plain", "plain", "shared", "tainted"]),
    ),
    min_size=1,
    max_size=7,
).map(lambda parts: [part(number, *values) for number, values in enumerate(parts)])


@contextmanager
def harness(data: st.DataObject) -> Iterator[tuple[DriverHarness, Cards]]:
    """A driver with drawn devices on a drawn server."""
    devices = data.draw(PARTS)
    kind = data.draw(st.sampled_from([Cards, CardsWithUndo]))
    driver = kind(devices, tuple(data.draw(st.lists(st.sampled_from([one.name for one in devices]), unique=True))))
    gates = data.draw(st.dictionaries(st.sampled_from(GATES), st.booleans()))
    with tempfile.TemporaryDirectory() as directory:
        node = FakeNode(Path(directory))
        yield DriverHarness(driver, node, version=data.draw(st.sampled_from(RELEASES)), feature_gates=gates), driver


def allocated(number: int, names: list[str], shared: set[str], *, admin: bool = False) -> JSON:
    """A claim to which a scheduler has given these devices."""
    results: list[JSON] = [{"request": "r", "driver": NAME, "pool": "node-1", "device": name} for name in names]
    for place, result in enumerate(results):
        if admin:
            result["adminAccess"] = True
        elif result["device"] in shared:
            result["shareID"] = SHARE.format(100 * number + place)
    made = claim("r", name=f"claim-{number}").encoded(NAME, NAME)
    return {**made, "status": {"allocation": {"devices": {"results": results}}}}


def assert_disjoint(held: list[HeldClaim], parts: dict[str, Device]) -> None:
    """Assert that no unit of a card belongs to two devices that are held, and no device to two claims but as shares."""
    owners: dict[tuple[int, int], str] = {}
    claims: dict[str, str] = {}
    for holder in held:
        for device in (device for device in holder.devices if not device.admin_access):
            assert device.share_id or claims.setdefault(device.name, holder.uid) == holder.uid, device
            for unit in parts[device.name].hardware:
                assert owners.setdefault(unit, device.name) == device.name, (unit, owners[unit], device.name)


@BOUNDED
@given(st.data())
def test_whatever_a_scheduler_allocates(data: st.DataObject) -> None:
    """Even one that knows nothing of counters, while devices come and go and the driver is restarted."""
    with harness(data) as (driver, cards):
        parts = {device.name: device for device in cards.devices}
        shared = {name for name, device in parts.items() if device.allow_multiple_allocations}
        prepared: list[Any] = []
        for number in range(data.draw(st.integers(2, 8), label="steps")):
            step = data.draw(st.sampled_from(["prepare", "prepare", "prepare", "unprepare", "restart", "discover"]))
            if step == "prepare":
                names = data.draw(st.lists(st.sampled_from(sorted(parts)), min_size=1, max_size=2, unique=True))
                admin = data.draw(st.booleans()) and data.draw(st.booleans())
                if {device.name for device in cards.devices}.issuperset(names):
                    wanted = driver.cluster.adopt(allocated(number, names, shared, admin=admin))
                    try:
                        prepared.append(driver.prepare(wanted))
                    except DeviceHeldError:
                        assert not admin
            elif step == "unprepare" and prepared:
                driver.unprepare(prepared.pop(data.draw(st.integers(0, len(prepared) - 1))))
            elif step == "restart":
                driver.restart()
            elif step == "discover":
                cards.devices = data.draw(st.lists(st.sampled_from(list(parts.values())), unique_by=id))
                driver.discover()
            assert_disjoint(driver.held, parts)
        for one in prepared:
            assert driver.prepare(one).names == one.names  # a replay is answered


@BOUNDED
@given(st.data())
def test_what_a_scheduler_allocates_by_the_rules_is_prepared(data: st.DataObject) -> None:
    """It counts only what the API server stores; so where that drops counters, nothing that overlaps is published."""
    with harness(data) as (driver, cards):
        parts = {device.name: device for device in cards.devices}
        slices = [one["spec"] for one in driver.slices()]
        published = {device["name"]: device for spec in slices for device in spec.get("devices", ())}
        budget = CounterBudget(counters for spec in slices for counters in spec.get("sharedCounters", ()))
        taken: set[str] = set()
        names = st.lists(st.sampled_from(sorted(published)), max_size=8) if published else st.just([])
        for number, name in enumerate(data.draw(names)):
            device = published[name]
            is_shared = bool(device.get("allowMultipleAllocations"))
            if device.get("taints") or (name in taken and not is_shared):
                continue
            if name in taken or budget.take(device):
                taken.add(name)
                driver.prepare(driver.cluster.adopt(allocated(number, [name], {name} if is_shared else set())))
                assert_disjoint(driver.held, parts)


@pytest.mark.parametrize("version", RELEASES)
def test_a_card_that_is_had_whole_or_by_half(version: str, tmp_path: Path) -> None:
    """Through the simulated scheduler: two claims for devices that exclude each other."""
    whole, halves = frozenset(UNITS), (frozenset({0, 1}), frozenset({2, 3}))
    devices = [part(number, 0, units, "plain") for number, units in enumerate((whole, *halves))]
    driver = DriverHarness(Cards(devices, ("part-1", "part-2")), FakeNode(tmp_path), version=version)
    driver.assert_publishable()
    published = {device["name"] for one in driver.slices() for device in one["spec"].get("devices", ())}
    prepared = [driver.prepare(claim()) for _ in range(1 if "part-0" in published else 2)]
    assert_disjoint(driver.held, {device.name: device for device in devices})
    assert [one.names for one in prepared] == ([["part-0"]] if len(prepared) == 1 else [["part-1"], ["part-2"]])


def test_an_author_who_says_nothing_of_servers_without_counters_learns_what_overlaps_where(tmp_path: Path) -> None:
    whole, halves = frozenset(UNITS), (frozenset({0, 1}), frozenset({2, 3}))
    devices = [part(number, 0, units, "plain") for number, units in enumerate((whole, *halves))]
    driver = DriverHarness(Cards(devices), FakeNode(tmp_path))
    with pytest.raises(AssertionError) as caught:
        driver.assert_publishable()
    assert str(caught.value).splitlines() == [
        f"Kubernetes {release}: pool node-1: part-1, part-2 cannot be had beside part-0, and the server drops the "
        "counters that say so, because its feature gate DRAPartitionableDevices is off; "
        "ResourcePool.without_counters names what is published there"
        for release in ("1.34", "1.35")
    ]
    driver.assert_publishable("1.36", "1.37")
