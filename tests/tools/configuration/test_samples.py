"""Samples fit the schema of their class, contain its limits, and are the same ones each time."""

from __future__ import annotations

from itertools import combinations
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from dra_sdk import OpaqueConfig
from dra_sdk.errors import SettingsError
from dra_sdk.model.config import wrong_fields
from dra_sdk.tools.configuration.samples import samples
from dra_sdk.tools.configuration.schema import ConfigSchema
from tests.tools.configuration.shapes import Shape, Strict


def made(config: type[OpaqueConfig]) -> list[dict[str, Any]]:
    schema = ConfigSchema([config])
    return list(samples(schema, schema.kinds[0]))


class Inner(BaseModel):
    """An object within a configuration."""

    size: int = Field(ge=5)
    text: Literal["x", "y"] | None = None


class Outer(OpaqueConfig, api_version="outer.example.com/v1"):
    """A few fields of which the samples are known."""

    level: int = Field(default=1, ge=1, le=3)
    name: str | None = Field(default=None, examples=["left"])
    inner: Inner | None = None
    inners: list[Inner] = Field(default=[], max_length=1)


def test_the_samples_of_a_small_class() -> None:
    parameters = made(Outer)
    least = {"size": 5}
    assert parameters[:16] == [
        {},
        {"level": 1},
        {"level": 2},
        {"level": 3},
        {"name": "left"},
        {"name": None},
        {"inner": least},
        {"inner": None},
        {"inner": {"size": 5}},
        {"inner": {"size": 6}},
        {"inner": least | {"text": "x"}},
        {"inner": least | {"text": "y"}},
        {"inner": least | {"text": None}},
        {"inners": []},
        {"inners": [least]},
        {"inners": [{"size": 5}]},
    ]
    assert {"level": 3, "name": "left"} in parameters
    assert {"inner": {"size": 6, "text": "y"}} in parameters
    assert {"level": 2, "inners": [{"size": 6}]} in parameters
    assert {"inner": least | {"text": "x"}, "inners": [least | {"text": "y"}]} in parameters
    assert made(Outer) == parameters


@pytest.mark.parametrize("config", [Outer, Shape, Strict])
def test_a_class_without_code_takes_all_its_samples(config: type[OpaqueConfig]) -> None:
    all_parameters = made(config)
    assert [parameters for parameters in all_parameters if wrong_fields(config, parameters)] == []


def test_every_two_fields_have_every_two_of_their_values() -> None:
    all_parameters = made(Shape)
    values: dict[str, list[Any]] = {}
    for parameters in all_parameters:
        if len(parameters) == 1:
            ((key, value),) = parameters.items()
            values.setdefault(key, []).append(value)
    assert {1, 9} <= set(values["small"])
    assert values["mode"] == ["fast", 'ünïque "quoted"', 7]
    for one, other in combinations(["small", "on", "mode", "sides"], 2):
        assert all({one: a, other: b} in all_parameters for a in values[one] for b in values[other])


def test_a_required_field_without_a_known_value_is_named() -> None:
    class Odd(OpaqueConfig, api_version="odd.example.com/v1"):
        serial: str = Field(pattern="^SN-[0-9]{8}$")

    with pytest.raises(SettingsError, match=r"^no value is known that serial may have: give it Field\(examples="):
        made(Odd)
