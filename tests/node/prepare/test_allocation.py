"""From a claim to this driver's devices."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from dra_sdk import Device, DriverInfo, Quantity
from dra_sdk.errors import ClaimError, ConfigError, RetriableError
from dra_sdk.node.prepare.allocation import allocated_devices
from dra_sdk.wire.claim import read_claim
from dra_sdk.wire.dra import ClaimRef
from tests.node.prepare.world import DRIVER, LampConfig

INFO = DriverInfo(DRIVER, configs=[LampConfig])
REF = ClaimRef("default", "lamps", "u-1")


def published(pool: str, name: str) -> Device | None:
    return Device(name, attributes={"pool": pool}) if name != "gone" else None


def raw(*results: dict[str, Any], config: Any = (), uid: str = "u-1") -> dict[str, Any]:
    full = [{"driver": DRIVER, "pool": "p", "device": "d", "request": "r", **each} for each in results]
    return {"metadata": {"uid": uid}, "status": {"allocation": {"devices": {"results": full, "config": list(config)}}}}


def brightness(value: Any, *requests: str, source: str = "FromClaim", driver: str = DRIVER) -> dict[str, Any]:
    parameters = {"apiVersion": f"{DRIVER}/v1", "kind": "LampConfig", "brightness": value}
    return {"source": source, "requests": list(requests), "opaque": {"driver": driver, "parameters": parameters}}


def devices(claim: dict[str, Any], info: DriverInfo = INFO) -> list[Any]:
    return list(allocated_devices(info, REF, read_claim(claim), published))


def test_a_device_carries_all_that_was_allocated() -> None:
    (device,) = devices(
        raw(
            {
                "request": "r/big",
                "shareID": "s-1",
                "adminAccess": True,
                "consumedCapacity": {"memory": "2Gi", "a.example.com/x": "1500m"},
            }
        )
    )
    assert (device.request, device.base_request, device.pool, device.name) == ("r/big", "r", "p", "d")
    assert (device.share_id, device.admin_access) == ("s-1", True)
    assert device.consumed_capacity == {"memory": Quantity("2Gi"), "a.example.com/x": Quantity("1.5")}
    assert device.device == Device("d", attributes={"pool": "p"})
    assert device.config == LampConfig()
    assert device.configs == (LampConfig(),)


def test_order_is_that_of_the_allocation_and_other_drivers_are_left_out() -> None:
    found = devices(raw({"device": "z"}, {"driver": "other.example.com", "device": "y"}, {"device": "a"}))
    assert [device.name for device in found] == ["z", "a"]


def test_a_device_that_is_not_published_is_refused() -> None:
    with pytest.raises(ClaimError, match=f"device p/gone is not among those that driver {DRIVER} publishes"):
        devices(raw({"device": "gone"}))


def test_the_last_configuration_applies_and_all_are_there() -> None:
    config = [brightness(9), brightness(5, source="FromClass"), brightness(7, "b")]
    first, second = devices(raw({"request": "a"}, {"request": "b"}, config=config))
    assert [each.brightness for each in first.configs] == [5, 9]
    assert first.config.brightness == 9
    assert [each.brightness for each in second.configs] == [5, 9, 7]
    assert second.config.brightness == 7


def test_a_driver_without_configuration_gets_none() -> None:
    (device,) = devices(raw({}), DriverInfo(DRIVER))
    assert device.config is None
    assert device.configs == (None,)


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        (raw({}, uid="u-2"), "the claim was replaced: it has UID u-2 now"),
        ({"metadata": {"uid": "u-1"}}, "the claim is not allocated"),
        ({"metadata": {"uid": "u-1"}, "status": {"allocation": None}}, "the claim is not allocated"),
        (raw(), f"the claim's allocation holds no device of driver {DRIVER}"),
        (raw({"driver": "other.example.com"}), f"holds no device of driver {DRIVER}"),
        (raw({"consumedCapacity": {"memory": "much"}}), "device p/d: consumedCapacity: 'much' is not a quantity"),
    ],
)
def test_a_claim_that_cannot_be_prepared_says_why(claim: dict[str, Any], message: str) -> None:
    with pytest.raises(ClaimError) as caught:
        devices(claim)
    assert message in str(caught.value)


def test_a_wrong_configuration_is_the_claims_error() -> None:
    with pytest.raises(ConfigError, match=r"config\[1\] of the claim: LampConfig: brightness: "):
        devices(raw({}, config=[brightness(1), brightness(101)]))


def test_an_entry_without_a_device_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        devices(raw({}, config=[brightness(1, "elsewhere")]))
    assert "claim default/lamps (u-1): config[0] of the claim for requests elsewhere applies to none" in caplog.text


def test_a_discovery_that_has_not_ended_is_passed_on() -> None:
    def waiting(pool: str, name: str) -> Device | None:
        raise RetriableError("not discovered yet")

    with pytest.raises(RetriableError):
        allocated_devices(INFO, REF, read_claim(raw({})), waiting)
