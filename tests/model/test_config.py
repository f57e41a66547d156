"""Opaque configuration: what a user may write, what is refused, and the messages."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

import pytest
from pydantic import BaseModel, Field, field_validator, model_validator

from dra_sdk import OpaqueConfig
from dra_sdk.errors import ConfigError
from dra_sdk.model.config import json_schema


class Colour(BaseModel):
    hue: int = 0


class LightConfig(OpaqueConfig, api_version="lights.example.com/v1"):
    max_brightness: int = Field(default=100, ge=0, le=100)
    colour: Colour = Field(default_factory=Colour)


class Required(OpaqueConfig, api_version="lights.example.com/v1", kind="Lamp"):
    lamp_name: str


class Checked(OpaqueConfig, api_version="lights.example.com/v1"):
    low: int = 0
    high: int = 10

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


def test_the_class_statement_gives_version_and_kind() -> None:
    assert (LightConfig.api_version, LightConfig.kind) == ("lights.example.com/v1", "LightConfig")
    assert (Required.api_version, Required.kind) == ("lights.example.com/v1", "Lamp")
    assert OpaqueConfig.api_version == ""


def test_a_subclass_is_a_separate_kind() -> None:
    class Brighter(LightConfig):
        watts: int = 5

    assert (Brighter.api_version, Brighter.kind) == ("lights.example.com/v1", "Brighter")


def test_fields_are_camel_case_on_the_wire_and_survive_a_round_trip() -> None:
    config = LightConfig.decode({"apiVersion": "x", "kind": "y", "maxBrightness": 40, "colour": {"hue": 7}})
    assert config.max_brightness == 40
    assert config.colour.hue == 7
    encoded = config.encode()
    assert encoded == {
        "apiVersion": "lights.example.com/v1",
        "kind": "LightConfig",
        "maxBrightness": 40,
        "colour": {"hue": 7},
    }
    assert LightConfig.decode(encoded) == config


def test_empty_parameters_give_the_defaults() -> None:
    assert LightConfig.decode({}) == LightConfig()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"brightness": 5}, "brightness: unknown field (known: maxBrightness, colour)"),
        ({"max_brightness": 5}, "max_brightness: unknown field"),
        ({"colour": {"hue": 1, "shade": 2}}, "colour.shade: unknown field (known: hue)"),
        ({"maxBrightness": 101}, "maxBrightness: must be less than or equal to 100 (got 101)"),
        ({"maxBrightness": "bright"}, "maxBrightness: must be a valid integer, unable to parse"),
        ({"maxBrightness": None}, "maxBrightness: must be a valid integer (got None)"),
        ({"colour": []}, "colour: must be an object (got [])"),
    ],
)
def test_a_wrong_field_is_named(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LightConfig.decode(parameters)
    assert message in str(caught.value)


def test_all_wrong_fields_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        LightConfig.decode({"maxBrightness": -1, "x": 1, "y": 2})
    assert str(caught.value).count(";") == 2


def test_a_missing_field_is_reported_without_the_whole_object() -> None:
    with pytest.raises(ConfigError) as caught:
        Required.decode({})
    assert str(caught.value) == "lampName: is required"


def test_a_rule_over_several_fields_is_reported_for_the_parameters() -> None:
    with pytest.raises(ConfigError) as caught:
        Checked.decode({"low": 11})
    assert str(caught.value) == "parameters: low is above high (got {'low': 11})"


class Bulb(BaseModel, extra="forbid"):
    watts: Annotated[int, Field(ge=1)] = 5
    label: Annotated[str, Field(max_length=3)] = ""
    sockets: Annotated[list[str], Field(min_length=1)] = Field(default_factory=lambda: ["e27"])

    @field_validator("watts")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2 == 0:
            raise AssertionError("must be odd")  # as an assert of the author's says it
        return value


class Chandelier(OpaqueConfig, api_version="lights.example.com/v1"):
    bulbs: list[Bulb] = Field(default_factory=list)
    by_name: dict[str, Bulb] | None = None
    mode: Literal["on", "off"] = "on"


class Nothing(OpaqueConfig, api_version="lights.example.com/v1"):
    pass


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"bulbs": [{}, {"wats": 1}]}, "bulbs.1.wats: unknown field (known: watts, label, sockets)"),
        ({"byName": {"left": {"wats": 1}}}, "byName.left.wats: unknown field (known: watts, label, sockets)"),
        ({"byName": {"mode": {"wats": 1}}}, "byName.mode.wats: unknown field (known: watts, label, sockets)"),
        ({"byName": []}, "byName: must be an object (got [])"),
        ({"bulbs": {}}, "bulbs: must be a valid list (got {})"),
        ({"bulbs": [{"watts": 4}]}, "bulbs.0.watts: must be odd (got 4)"),
        ({"bulbs": [{"label": "long"}]}, "bulbs.0.label: must have at most 3 characters (got 'long')"),
        ({"bulbs": [{"sockets": []}]}, "bulbs.0.sockets: must have at least 1 item after validation, not 0 (got [])"),
        ({"mode": "dim"}, "mode: must be 'on' or 'off' (got 'dim')"),
    ],
)
def test_problems_inside_objects_and_lists_are_named_with_their_path(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Chandelier.decode(parameters)
    assert str(caught.value) == message


def test_a_kind_without_fields_says_so() -> None:
    with pytest.raises(ConfigError) as caught:
        Nothing.decode({"hue": 1})
    assert str(caught.value) == "hue: unknown field (there are none)"


def test_a_checkpoint_of_another_release_is_read_leniently() -> None:
    config = LightConfig.decode({"maxBrightness": 5, "future": 1, "colour": {"hue": 1, "shade": 2}}, strict=False)
    assert config.max_brightness == 5
    assert config.colour.hue == 1
    with pytest.raises(ConfigError, match="maxBrightness"):
        LightConfig.decode({"maxBrightness": 101}, strict=False)


def test_a_config_cannot_be_changed_by_a_hook() -> None:
    config = LightConfig()
    with pytest.raises(ValueError, match="frozen"):
        config.max_brightness = 3


class Nested(BaseModel):
    colour: Colour


class LampConfig(OpaqueConfig, api_version="lights.example.com/v2", kind="Lamp"):
    nested: Nested


def test_the_schema_distinguishes_configs_by_api_version_and_kind() -> None:
    schema = json_schema([LightConfig, Required, LampConfig], "Lights")
    assert (schema["$schema"], schema["title"]) == ("https://json-schema.org/draft/2020-12/schema", "Lights")
    kinds = [schema["$defs"][reference["$ref"].removeprefix("#/$defs/")] for reference in schema["oneOf"]]
    heads = [tuple(kind["properties"][name]["const"] for name in ("apiVersion", "kind")) for kind in kinds]
    version = "lights.example.com/v1"
    assert heads == [(version, "LightConfig"), (version, "Lamp"), ("lights.example.com/v2", "Lamp")]
    assert [kind["required"] for kind in kinds] == [
        ["apiVersion", "kind"],
        ["apiVersion", "kind", "lampName"],
        ["apiVersion", "kind", "nested"],
    ]
    assert all(kind["additionalProperties"] is False for kind in kinds)
    brightness = kinds[0]["properties"]["maxBrightness"]
    assert (brightness["minimum"], brightness["maximum"], brightness["default"]) == (0, 100, 100)
    assert kinds[2]["properties"]["nested"] == {"$ref": "#/$defs/Nested"}
    assert schema["$defs"]["Nested"]["properties"]["colour"] == {"$ref": "#/$defs/Colour"}


def test_the_schema_has_the_defaults_of_factories_that_always_make_the_same() -> None:
    numbers = iter(range(10))

    class Factories(OpaqueConfig, api_version="lights.example.com/v1"):
        bulb: Bulb = Field(default_factory=Bulb)
        serial: int = Field(default_factory=lambda: next(numbers))

    fields = json_schema([Factories], "Lights")["$defs"]["Factories"]["properties"]
    assert fields["bulb"]["default"] == {"watts": 5, "label": "", "sockets": ["e27"]}
    assert "default" not in fields["serial"]
