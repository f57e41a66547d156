"""The rules of a class, compiled against its fields, and what they say of parameters."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, Field

from dra_sdk import CelRule, OpaqueConfig
from dra_sdk.tools.configuration.rules import MAX_RULE_COST, ConfigRules
from tests.tools.configuration.shapes import RIGHT_PLATES, WRONG_PLATES, Plate

NO_PLATES = [parameters for message, parameters in WRONG_PLATES if message.endswith(("high", "name", "at 0"))]


class Knob(BaseModel):
    """An object within a configuration."""

    turns: int = 1
    label: str = "none"


class Knobs(OpaqueConfig, api_version="knobs.example.com/v1"):
    """Fields of every type."""

    on: bool = True
    mode: Literal["slow", "fast"] = "slow"
    level: Literal[1, 2, 3] = 1
    mixed: Literal["one", 1] = 1
    ratio: float = 0.5
    name: str | None = None
    knob: Knob = Field(default_factory=Knob)
    spare: Knob | None = None
    knobs: list[Knob] = Field(default=[], max_length=8)
    by_name: dict[str, Knob] = Field(default={})
    texts: list[Annotated[str, Field(max_length=20)]] = Field(default=[], max_length=8)
    long: list[str] = Field(default=[])
    either: int | str = 1


def with_rule(rule: str) -> type[OpaqueConfig]:
    return type(
        "Knobs", (Knobs,), {"__module__": __name__, "cel_rules": (CelRule(rule, "broken"),)}, api_version="k/v1"
    )  # type: ignore[call-overload,no-any-return]


def broken(rule: str, **parameters: Any) -> list[str]:
    """Why parameters break a rule that can be compiled."""
    rules = ConfigRules(with_rule(rule))
    assert rules.problems == []
    return [reason for _, reason in rules.broken(parameters)]


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("self.onn", "line 1, column 5: undefined field 'onn'"),
        ("self.on &&\n  self.knob.turn > 1", "line 2, column 12: undefined field 'turn'"),
        ("self.knobs.all(k, k.turn > 1)", "line 1, column 20: undefined field 'turn'"),
        ("self.byName.all(n, self.byName[n].turn > 1)", "line 1, column 34: undefined field 'turn'"),
        ("self.by_name.size() > 0", "line 1, column 5: undefined field 'by_name'"),
        ("self.kind == 'Knobs'", "line 1, column 5: undefined field 'kind'"),
        ("self.name > 3", "line 1, column 11: found no matching overload for '_>_' applied to '(string, int)'"),
        ("self.level == 'one'", "line 1, column 12: found no matching overload for '_==_' applied to '(int, string)'"),
        ("self.knob.turns", "line 1, column 10: must evaluate to bool or the unknown type, not int"),
        ("object.spec", "line 1, column 1: undeclared reference to 'object'"),
        ("self.on &&", "line 1, column 11: Syntax error: found the end of the expression, expected an expression"),
        (
            "self.long.all(t, t.matches('a+'))",
            f"line 1, column 1: too complex: costs up to 5268483, the limit is {MAX_RULE_COST}",
        ),
    ],
)
def test_a_wrong_rule_is_named_with_its_position(rule: str, problem: str) -> None:
    rules = ConfigRules(with_rule(rule))
    assert rules.problems == [f"cel_rules[0]: {problem}"]
    assert rules.names == []
    assert list(rules.broken({})) == []


@pytest.mark.parametrize(
    "rule",
    [
        "self.mixed == 1 || self.mixed == 'one'",
        "self.ratio < 1",
        "self.ratio + 0.5 > 0.7",
        "self.either == 1 || self.either == 'x'",
        "self.texts.all(t, t.matches('^[a-z]+$'))",
        "!has(self.spare) || self.spare.turns > 0",
        "self.knob.turns == 1 && self.knob.label == 'none'",
        "self.?name.orValue('none') != ''",
    ],
)
def test_a_right_rule_holds_for_the_defaults(rule: str) -> None:
    assert broken(rule) == []


def test_a_rule_sees_what_is_given_in_place_of_defaults() -> None:
    rule = "self.knob.turns < 5 && self.knob.label == 'none'"
    assert broken(rule, knob={"turns": 4}) == []
    assert broken(rule, knob={"turns": 5}) == ["broken"]
    assert broken(rule, knob={"label": "left"}) == ["broken"]
    assert broken("self.knobs.all(k, k.turns == 1)", knobs=[{}, {"label": "x"}]) == []
    assert broken("self.byName.all(n, self.byName[n].turns == 1)", byName={"a": {}, "b": {"turns": 2}}) == ["broken"]


def test_null_is_like_a_field_that_is_absent() -> None:
    assert broken("!has(self.name)") == broken("!has(self.name)", name=None) == []
    assert broken("!has(self.name)", name="x") == ["broken"]
    assert broken("!has(self.spare)", spare=None) == []
    assert broken("self.spare.turns == 1", spare={}) == []


def test_a_field_that_is_absent_has_no_value() -> None:
    assert broken("self.name != 'x'") == ["it has no value: no such key: name"]


def test_the_rules_of_a_class_say_what_its_code_says() -> None:
    rules = ConfigRules(Plate)
    assert rules.problems == []
    assert [list(rules.broken(parameters)) for parameters in RIGHT_PLATES] == [[]] * len(RIGHT_PLATES)
    for parameters in NO_PLATES:
        ((rule, message),) = rules.broken(parameters)
        assert (rule, message) in [
            (f"cel_rules[{number}]", rule.message) for number, rule in enumerate(Plate.cel_rules)
        ]


def test_limits_of_fields_make_a_rule_cheap_enough() -> None:
    def loop(limit: int) -> list[str]:
        class Bounded(OpaqueConfig, api_version="bounded.example.com/v1"):
            texts: list[Annotated[str, Field(max_length=limit), AfterValidator(str)]] = Field(
                default=[], max_length=limit
            )
            cel_rules = (CelRule("self.texts.all(t, self.texts.exists_one(u, t == u))", "twice"),)

        return ConfigRules(Bounded).problems

    assert loop(32) == []
    assert "too complex: costs up to" in loop(256)[0]
