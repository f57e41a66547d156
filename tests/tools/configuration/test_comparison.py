"""Rules that refuse too much are errors; what only the class refuses is noticed."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, Field, model_validator

from dra_sdk import CelRule, OpaqueConfig
from dra_sdk.tools.configuration.comparison import Comparison, compare
from tests.tools.configuration.shapes import Odd, Plate, Shape


class Range(OpaqueConfig, api_version="range.example.com/v1"):
    """Two fields that depend on each other."""

    low: int = Field(default=0, ge=0, le=9)
    high: int | None = Field(default=None, ge=0, le=9)

    @model_validator(mode="after")
    def check(self) -> Self:
        if self.high is not None and self.low > self.high:
            raise ValueError("low is above high")
        return self


def ruled(*rules: str) -> Comparison:
    class Ruled(Range, api_version="range.example.com/v1"):
        cel_rules = tuple(CelRule(rule, "wrong") for rule in rules)

    return compare(Ruled)


def test_a_rule_that_says_what_the_class_says() -> None:
    assert ruled("!has(self.high) || self.low <= self.high") == Comparison([], [])
    assert compare(Plate) == compare(Shape) == Comparison([], [])


def test_a_rule_that_refuses_what_the_class_takes_is_an_error_with_a_value() -> None:
    comparison = ruled("!has(self.high) || self.low < self.high", "!has(self.high) || self.low <= self.high")
    assert comparison == Comparison(['cel_rules[0] refuses {"high": 0}, which the class takes: wrong'], [])


def test_a_rule_that_forgets_an_absent_field_is_an_error() -> None:
    comparison = ruled("self.low <= self.high")
    assert comparison.errors == ["cel_rules[0] refuses {}, which the class takes: it has no value: no such key: high"]


def test_a_rule_that_cannot_be_compiled_is_an_error() -> None:
    assert ruled("self.lo == 1").errors == ["cel_rules[0]: line 1, column 5: undefined field 'lo'"]


def test_what_only_the_class_refuses_is_noticed_once() -> None:
    (notice,) = ruled().notices
    assert notice.startswith('Ruled refuses {"low": 1, "high": 0}, and no rule does: low is above high (got ')


def test_a_rule_that_refuses_nothing_is_noticed() -> None:
    comparison = ruled("!has(self.high) || self.low <= self.high", "self.low < 100")
    assert comparison == Comparison([], ["Ruled.cel_rules[1] refuses no sample"])


def test_a_defect_of_a_class_is_noticed() -> None:
    notices = compare(Odd).notices
    assert any("its own check failed: RuntimeError: a defect" in notice for notice in notices)
    assert any("low must not be above high" in notice for notice in notices)


def test_a_class_that_contains_itself_is_not_compared() -> None:
    class Endless(BaseModel):
        inner: list[Endless] = Field(default_factory=list)

    class Holder(OpaqueConfig, api_version="endless.example.com/v1"):
        endless: Endless = Field(default_factory=Endless)

    Endless.model_rebuild(_types_namespace={"Endless": Endless})
    Holder.model_rebuild(_types_namespace={"Endless": Endless})
    (notice,) = compare(Holder).notices
    assert notice.startswith("Holder is not compared with its rules: a configuration class that contains itself")
