"""State of the release 5134cc5 is continued: `samples/state-5134cc5` is what it kept for a driver of lamps.

Beside claims that are prepared there is one whose driver was killed in its hook, and one whose driver was killed while
it wrote a state file. The drivers have such samples of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import ClassVar

import pytest

from dra_sdk import (
    Claim,
    Condition,
    ContainerEdits,
    Device,
    DeviceHealth,
    DeviceStatus,
    DriverInfo,
    HealthStatus,
    HeldClaim,
    Node,
    PreparedDevice,
)
from dra_sdk.errors import DeviceHeldError
from dra_sdk.loader import Driver
from dra_sdk.node.files import safe_id
from dra_sdk.node.runtime.process import DriverProcess
from dra_sdk.testing import DriverFactory, DriverHarness, FakeNode, claim, request
from dra_sdk.testing.node_state import NodeState
from dra_sdk.tools.simulator import EmbeddedCluster
from tests.embedded import settings_for
from tests.lamps import NAME, LampConfig, LampDriver

pytest_plugins = ["dra_sdk.testing.plugin"]
SAMPLES = Path(__file__).parent / "samples/state-5134cc5"
PREPARED, KILLED_IN_HOOK, KILLED_IN_WRITE = (f"5134cc50-0000-4000-8000-{number:012d}" for number in (1, 2, 3))
UNDOING = 0o400
"""The mode of a state file whose claim is undone, where the disk is full. Git does not keep it."""


class FullLamps(LampDriver):
    """Uses everything that a state file can have. `all_undone` are the claims that any of them has undone."""

    all_undone: ClassVar[list[HeldClaim]] = []

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo(NAME, metadata=True)

    def dra_discover(self, node: Node) -> Iterator[Device]:
        yield from (Device(f"lamp-{number}", {"number": number}) for number in range(6))

    def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            claim.journal({"lamp": device.name})
            ready = Condition(type="Ready", status=True, reason="Shines", message="at once")
            yield device.prepared(
                ContainerEdits(env={"LAMP": device.base_request}),
                data={"lamp": device.name, "hours": 5},
                status=DeviceStatus(conditions=[ready], data={"watts": 9}),
                metadata={"example.com/watts": 9},
            )

    def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
        self.all_undone.append(claim)

    def dra_device_health(self, node: Node, stop: Event) -> Iterator[Sequence[DeviceHealth]]:
        """Reports nothing, so that what is known of health comes from the file."""
        stop.wait()
        yield [DeviceHealth("lamp-0", HealthStatus.HEALTHY)]


@pytest.fixture
def state(dra_node: FakeNode) -> NodeState:
    """The state of claims, restored."""
    found = NodeState(SAMPLES / "claims")
    found.restore(dra_node)
    FullLamps.all_undone.clear()
    return found


def state_file(driver: DriverHarness | FakeNode, uid: str) -> Path:
    folder = driver.data if isinstance(driver, DriverHarness) else driver.kubelet_dir / "plugins" / NAME
    return folder / f"claims/{safe_id(uid)}.json"


def test_prepared_claims_are_answered_and_interrupted_ones_done_again(
    state: NodeState, dra_driver: DriverFactory
) -> None:
    state.assert_continued(dra_driver(FullLamps))
    undone = [(each.uid, [dict(entry) for entry in each.journal]) for each in FullLamps.all_undone]
    assert (KILLED_IN_HOOK, [{"lamp": "lamp-2"}]) in undone
    held = next(each for each in FullLamps.all_undone if each.uid == PREPARED)
    assert [dict(device.data) for device in held.devices] == [{"lamp": f"lamp-{each}", "hours": 5} for each in (0, 1)]
    assert not held.rebooted


def test_a_state_file_that_was_written_half_is_removed(
    state: NodeState, dra_node: FakeNode, dra_driver: DriverFactory
) -> None:
    written = state_file(dra_node, KILLED_IN_WRITE)
    (half,) = written.parent.glob(".tmp-*~")
    assert half.name == f".tmp-{written.name}~"
    dra_driver(FullLamps)
    assert not half.exists()


def test_a_claim_that_was_being_undone_on_a_full_disk_is_undone(
    state: NodeState, dra_node: FakeNode, dra_driver: DriverFactory
) -> None:
    state_file(dra_node, PREPARED).chmod(UNDOING)
    driver = dra_driver(FullLamps)
    assert not next(each for each in driver.held if each.uid == PREPARED).complete


def test_a_state_file_that_lost_its_end_holds_its_devices(
    state: NodeState, dra_node: FakeNode, dra_driver: DriverFactory
) -> None:
    path = state_file(dra_node, PREPARED)
    path.write_bytes(path.read_bytes()[:-100])
    driver = dra_driver(FullLamps)
    taken = 'device.attributes["lamps.example.com"].number == 0'
    with pytest.raises(DeviceHeldError, match=r"lamp-0 is held by claim default/claim-1 .* is damaged"):
        driver.prepare(claim(request("lamp", where=taken)))


def test_a_reboot_makes_every_claim_void(state: NodeState, dra_node: FakeNode, dra_driver: DriverFactory) -> None:
    driver = dra_driver(FullLamps)
    driver.reboot()
    assert {each.rebooted for each in driver.held} == {True}
    for each in json.loads((SAMPLES / "claims/release.json").read_bytes())["claims"]:
        driver.unprepare(each)
    driver.assert_clean()


def test_taints_of_unhealthy_devices_and_the_overlay_are_published() -> None:
    with EmbeddedCluster() as cluster:
        settings = settings_for(cluster, overlay_file=SAMPLES / "overlay.yaml", unhealthy_taint="NoSchedule")
        data = settings.plugin_data(NAME)
        data.mkdir(parents=True, mode=0o750)
        kept = (SAMPLES / "unhealthy.json").read_text().replace("node-1", cluster.node_name)
        (data / "unhealthy.json").write_text(kept)
        with DriverProcess(Driver.of(FullLamps()), settings):
            slices = cluster.wait_slices(NAME)
    devices = {device["name"]: device for each in slices for device in each["spec"]["devices"]}
    taints = {name: device["taints"] for name, device in devices.items() if "taints" in device}
    since = {each.pop("timeAdded") for name in ("lamp-1", "lamp-2") for each in taints[name]}
    assert since == {each["since"] for each in json.loads(kept)["unhealthy"]}
    assert {name: [(each["key"], each.get("value")) for each in found] for name, found in taints.items()} == {
        "lamp-1": [(f"{NAME}/cold", None), (f"{NAME}/flickers", "often")],
        "lamp-2": [(f"{NAME}/unhealthy", None)],
        "lamp-5": [("site.example.com/maintenance", "yes")],
    }
    assert sorted(devices) == ["lamp-0", "lamp-1", "lamp-2", "lamp-4", "lamp-5"]
    added = {name: value for name, value in devices["lamp-5"]["attributes"].items() if "/" in name}
    assert added == {
        "site.example.com/rail": {"int": 1},
        "site.example.com/rack": {"string": "r7"},
        "site.example.com/tested": {"bool": True},
        "site.example.com/firmware": {"version": "1.2.3"},
    }
    assert devices["lamp-5"]["attributes"]["number"] == {"int": 50}
