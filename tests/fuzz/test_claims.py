"""Claims and configuration with anything in them: what cannot be used is an error of the claim, in words."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal

from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, field_validator

from dra_sdk import Device, DriverInfo, OpaqueConfig
from dra_sdk.errors import ClaimError, ConfigError
from dra_sdk.model.claim import ClaimRef
from dra_sdk.model.quantity import Quantity
from dra_sdk.node.prepare.allocation import read, read_status, resolve_configs
from dra_sdk.wire.resource.claims import (
    DeviceAllocationConfiguration,
    DeviceRequestAllocationResult,
    OpaqueDeviceConfiguration,
)
from tests.fuzz.documents import CLAIM, DRIVER, UID
from tests.fuzz.strategies import damaged, fuzz, refused, text, values

REF = ClaimRef("default", "claim", UID)
RESULTS = [DeviceRequestAllocationResult(request="r", driver=DRIVER, pool="p", device="d")]


class Colour(OpaqueConfig):
    """One of several."""

    name: Literal["red", "blue"]
    share: str | int = 1

    @field_validator("share")
    @classmethod
    def is_quantity(cls, share: str | int) -> str | int:
        Quantity(share)
        return share


class Lamp(OpaqueConfig, api_version="lamps.example.com/v1"):
    """Something of everything that an author may ask for."""

    brightness: int = Field(default=100, ge=0, le=100)
    colours: list[Colour] = Field(default=[], max_length=8)
    since: datetime | None = None
    labels: Mapping[str, str] = {}
    mode: Literal["fast", "slow"] | bool = "slow"
    ratio: float | None = Field(default=None, allow_inf_nan=False)
    inner_lamp: Lamp | None = None


INFO = DriverInfo(DRIVER, configs=[Lamp])
PARAMETERS = CLAIM["status"]["allocation"]["devices"]["config"][1]["opaque"]["parameters"]
fields = st.dictionaries(
    st.one_of(st.sampled_from(["brightness", "colours", "since", "labels", "mode", "ratio", "innerLamp"]), text),
    values,
    max_size=5,
)


def entry(parameters: Any) -> DeviceAllocationConfiguration:
    opaque = OpaqueDeviceConfiguration(driver=DRIVER, parameters=parameters)
    return DeviceAllocationConfiguration(source="FromClaim", opaque=opaque)


def prepared(raw: Any) -> list[Any]:
    """The devices of a claim, as the engine reads it."""
    return read(INFO, "node-1", REF, raw, read_status(raw, REF), find_device=lambda _pool, name: Device(name)).devices


def prepare(raw: Any) -> None:
    """As the engine goes about it."""
    devices = prepared(raw)
    assert devices
    assert all(isinstance(device.config, Lamp) for device in devices)


def test_what_is_right_is_read() -> None:
    devices = prepared(CLAIM)
    assert [device.config.brightness for device in devices if isinstance(device.config, Lamp)] == [100, 100]
    assert [len(device.configs) for device in devices] == [2, 2]


@fuzz(600)
@given(damaged({"metadata": CLAIM["metadata"], "status": CLAIM["status"]}))
def test_claims_that_are_almost_right(raw: Any) -> None:
    if not isinstance(raw, dict):
        return
    with suppress(ClaimError):
        prepare(raw)


@fuzz(300)
@given(values)
def test_claims_that_are_anything(raw: Any) -> None:
    said = refused(lambda: read_status({"metadata": {"uid": UID}, "status": raw}, REF), ClaimError)
    assert not said or "the API server's answer is not a ResourceClaim: status" in said


@fuzz(500)
@given(st.one_of(damaged(PARAMETERS), fields.map(lambda more: {**PARAMETERS, **more})))
def test_parameters(parameters: Any) -> None:
    if said := refused(lambda: resolve_configs(INFO, REF, RESULTS, [entry(parameters)]), ConfigError):
        assert "config[0] of the claim: " in said
        return
    ((config,),) = resolve_configs(INFO, REF, RESULTS, [entry(parameters)])
    assert isinstance(config, Lamp)
    assert Lamp.decode(config.encode()).encode() == config.encode()


def test_configuration_that_is_nested_too_deeply() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"innerLamp": deep}
    parameters = {"apiVersion": "lamps.example.com/v1", "kind": "Lamp", **deep}
    assert 0 < len(refused(lambda: resolve_configs(INFO, REF, RESULTS, [entry(parameters)]), ConfigError)) < 2000
