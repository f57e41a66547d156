"""What is written down of a prepared claim."""

from __future__ import annotations

from typing import Any

from dra_sdk import AllocatedDevice, Condition, ContainerEdits, DeviceStatus
from dra_sdk.node.prepare import record
from dra_sdk.wire.dra import ClaimRef
from dra_sdk.wire.state import ClaimState

REF = ClaimRef("ns", "claim", "u-1")


def completed(*devices: tuple[AllocatedDevice[None], str | None]) -> ClaimState:
    """The state of devices that are prepared with a condition of this reason."""
    started = record.started(REF, [device for device, _ in devices], "boot-1")
    prepared = [
        device.prepared(ContainerEdits(env={"A": "1"}), status=reason and _status(reason)) for device, reason in devices
    ]
    return record.completed(started, prepared, "example.com/lamp", "lamps.example.com")


def _status(reason: str) -> DeviceStatus:
    return DeviceStatus(conditions=[Condition(type="Ready", status=True, reason=reason)])


def reasons(state: ClaimState) -> list[tuple[Any, ...]]:
    """Device, share and reason of each entry for `status.devices`."""
    return [(each["device"], each.get("shareID"), each["conditions"][0]["reason"]) for each in state.statuses]


def test_each_share_has_a_status_of_its_own() -> None:
    shares = [AllocatedDevice("r", "p", "lamp-0", None, share_id=share) for share in ("s-1", "s-2")]
    state = completed((shares[0], "One"), (shares[1], "Two"))
    assert reasons(state) == [("lamp-0", "s-1", "One"), ("lamp-0", "s-2", "Two")]


def test_a_device_of_several_requests_has_one_status() -> None:
    """The API server refuses a whole list in which a device is twice."""
    mine = AllocatedDevice("r", "p", "lamp-0", None)
    admin = AllocatedDevice("look", "p", "lamp-0", None, admin_access=True)
    other = AllocatedDevice("r", "p", "lamp-1", None)
    assert reasons(completed((mine, "First"), (other, "Other"), (admin, "Last"))) == [
        ("lamp-0", None, "Last"),
        ("lamp-1", None, "Other"),
    ]
    assert reasons(completed((mine, "First"), (admin, None))) == [("lamp-0", None, "First")]
