"""Which configuration reaches which device."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import Field

from dra_sdk import DriverInfo, OpaqueConfig
from dra_sdk.errors import ConfigError
from dra_sdk.node.prepare.config import default_config, resolve
from dra_sdk.wire.claim import Config, Result, read_claim

V1 = "lamp.example.com/v1"


class Lamp(OpaqueConfig, api_version=V1):
    watts: int = Field(default=5, ge=1)


class Lens(OpaqueConfig, api_version=V1):
    focus: int = 0


class Needed(OpaqueConfig, api_version=V1):
    name: str


INFO = DriverInfo("lamp.example.com", configs=[Lamp, Lens])


def read(raw: dict[str, Any]) -> Config:
    allocation = read_claim({"status": {"allocation": {"devices": {"config": [raw]}}}}).allocation
    assert allocation
    return allocation.config[0]


def entry(source: str, watts: int, *requests: str, driver: str = INFO.name, kind: str = "Lamp", **more: Any) -> Config:
    parameters = {"apiVersion": V1, "kind": kind, **({"watts": watts} if kind == "Lamp" else {}), **more}
    return read({"source": source, "requests": list(requests), "opaque": {"driver": driver, "parameters": parameters}})


def result(request: str) -> Result:
    return Result(request=request, driver=INFO.name, pool="p", device=f"d-{request.replace('/', '-')}")


def watts(entries: list[Config], *requests: str) -> list[list[int]]:
    resolved = resolve(INFO, [result(each) for each in requests], entries)
    return [[config.watts for config in chain if isinstance(config, Lamp)] for chain in resolved.configs]


def test_the_claims_entries_come_after_the_classes_whatever_their_place_in_the_list() -> None:
    entries = [entry("FromClaim", 1), entry("FromClass", 2), entry("FromClaim", 3), entry("FromClass", 4)]
    assert watts(entries, "r") == [[2, 4, 1, 3]]


def test_no_requests_means_all_of_them() -> None:
    assert watts([entry("FromClass", 1)], "a", "b/c") == [[1], [1]]


def test_an_entry_reaches_the_requests_it_names() -> None:
    entries = [entry("FromClaim", 1, "a"), entry("FromClaim", 2, "b", "c")]
    assert watts(entries, "a", "b", "c", "d") == [[1], [2], [2], []]


def test_an_entry_for_a_request_covers_its_alternatives_but_one_for_an_alternative_only_that() -> None:
    entries = [entry("FromClaim", 1, "a"), entry("FromClaim", 2, "a/big"), entry("FromClaim", 3, "big")]
    assert watts(entries, "a/big", "a/small", "big", "a") == [[1, 2], [1], [3], [1]]


def test_a_name_that_only_begins_alike_does_not_match() -> None:
    assert watts([entry("FromClaim", 1, "a")], "ab", "a-b", "aa/a") == [[], [], []]


def test_entries_of_other_drivers_and_without_parameters_are_not_ours() -> None:
    entries = [
        entry("FromClaim", 0, driver="other.example.com"),  # would be invalid, were it ours
        read({"source": "FromClaim"}),
    ]
    resolved = resolve(INFO, [result("r")], entries)
    assert resolved.configs == [[]]
    assert resolved.unmatched == []


def test_an_entry_that_meets_no_device_is_reported() -> None:
    resolved = resolve(INFO, [result("a")], [entry("FromClass", 1), entry("FromClaim", 2, "b", "c")])
    assert resolved.unmatched == ["config[1] of the claim for requests b, c"]


def test_kinds_of_one_driver_are_kept_in_order() -> None:
    resolved = resolve(INFO, [result("r")], [entry("FromClaim", 1), entry("FromClass", 0, kind="Lens", focus=7)])
    assert resolved.configs == [[Lens(focus=7), Lamp(watts=1)]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"apiVersion": V1, "kind": "Torch"}, f"does not know apiVersion '{V1}' kind 'Torch'; it takes {V1} Lamp, "),
        ({"apiVersion": "lamp.example.com/v2", "kind": "Lamp"}, "does not know apiVersion 'lamp.example.com/v2'"),
        ({"kind": "Lamp"}, "does not know apiVersion None kind 'Lamp'"),
        ({}, "does not know apiVersion None kind None"),
        ({"apiVersion": [], "kind": {}}, "does not know apiVersion [] kind {}"),
        ({"apiVersion": V1, "kind": "Lamp", "watts": 0}, "Lamp: watts: must be greater than or equal to 1"),
        ({"apiVersion": V1, "kind": "Lamp", "wats": 1}, "Lamp: wats: unknown field (known: watts)"),
    ],
)
def test_a_wrong_entry_is_named_with_its_place_kind_and_field(given: dict[str, Any], message: str) -> None:
    for source, name in (("FromClass", "the DeviceClass"), ("FromClaim", "the claim")):
        wrong = read({"source": source, "opaque": {"driver": INFO.name, "parameters": given}})
        with pytest.raises(ConfigError) as caught:
            resolve(INFO, [result("r")], [entry("FromClass", 1), wrong])
        assert str(caught.value).startswith(f"config[1] of {name}: ")
        assert message in str(caught.value)


def test_a_wrong_entry_is_named_with_its_requests() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(INFO, [result("a")], [entry("FromClaim", 0, "a", "b/big")])
    said = "config[0] of the claim for requests a, b/big: Lamp: watts: must be greater than or equal to 1 (got 0)"
    assert str(caught.value) == said


def test_a_driver_without_configuration_says_so() -> None:
    with pytest.raises(ConfigError, match="it takes no configuration at all"):
        resolve(DriverInfo(INFO.name), [result("r")], [entry("FromClaim", 1)])


def test_the_default_is_the_first_kind() -> None:
    assert default_config(INFO) == Lamp()
    assert default_config(DriverInfo("x.example.com")) is None


def test_a_kind_without_defaults_must_be_brought_by_the_claim() -> None:
    with pytest.raises(ConfigError, match="a Needed config is required and the claim brings none: name: is required"):
        default_config(DriverInfo("x.example.com", configs=[Needed]))
