"""The policy for a driver's configuration says of each one what the driver says; tests/cluster asks a real server."""

from __future__ import annotations

from functools import cache
from typing import Any

import celpy
import pytest
from celpy.adapter import json_to_cel
from pydantic import Field

from dra_sdk import CelRule, DriverInfo, OpaqueConfig
from dra_sdk.cel import types
from dra_sdk.cel.checker import check_any
from dra_sdk.cel.environment import Shape as Size
from dra_sdk.cel.environment import object_environment
from dra_sdk.cel.errors import CelRuntimeError
from dra_sdk.cel.expression import ObjectExpression
from dra_sdk.cel.parser import parse
from dra_sdk.errors import ConfigError, SettingsError
from dra_sdk.loader import load_driver
from dra_sdk.tools.configuration.policy import config_policy
from dra_sdk.tools.configuration.review import ConfigReviewer
from tests.cel.second_opinion import celpy_environment
from tests.tools.configuration.shapes import (
    NAME,
    PLATES,
    RIGHT,
    RIGHT_PLATES,
    WRONG,
    WRONG_PLATES,
    Plate,
    PlateDriver,
    Shape,
    ShapeDriver,
    Strict,
    entry,
    shape,
)

JSON = dict[str, Any]
INFO = ShapeDriver().dra_driver_info()


def claim(*configs: JSON) -> JSON:
    return {"spec": {"devices": {"requests": [], "config": list(configs)}}}


def in_place(kind: str, config: JSON) -> JSON:
    return {"claim": claim(config), "template": {"spec": claim(config)}, "class": {"spec": {"config": [config]}}}[kind]


def broken(checked: JSON, info: DriverInfo = INFO) -> list[str]:
    """The messages of the validations that do not hold, by another implementation of CEL."""
    policy, _ = config_policy(info)
    with celpy_environment() as environment:

        def value(expression: str, variables: JSON) -> Any:
            parse(expression)  # cel-python takes more than the grammar has
            program = environment.program(environment.compile(expression))
            return program.evaluate({"object": json_to_cel(checked), "variables": variables})

        variables = celpy.celtypes.MapType()
        for variable in policy["spec"]["variables"]:
            variables[celpy.celtypes.StringType(variable["name"])] = value(variable["expression"], variables)
        return [
            validation["message"].removeprefix(f"configuration of driver {NAME}: ")
            for validation in policy["spec"]["validations"]
            if not value(validation["expression"], variables)
        ]


@cache
def compiled(expression: str, root: str) -> ObjectExpression:
    return ObjectExpression(expression, object_environment(root, types.DYN, Size(0), {}), check_any)


def broken_by_our_engine(checked: JSON, info: DriverInfo) -> list[str]:
    """The same by our own engine, which knows the syntax that rules need; what has no value refuses, as on a server."""
    policy, _ = config_policy(info)

    def value(expression: str, variables: JSON) -> Any:
        root, given = ("object", checked) if "object." in expression else ("variables", variables)
        try:
            return compiled(expression, root).value(given)
        except CelRuntimeError:
            return False

    variables: JSON = {}
    for variable in policy["spec"]["variables"]:
        variables[variable["name"]] = value(variable["expression"], variables)
    return [
        validation["message"].removeprefix(f"configuration of driver {info.name}: ")
        for validation in policy["spec"]["validations"]
        if not value(validation["expression"], variables)
    ]


def decoded(parameters: JSON) -> bool:
    """Whether the driver takes these parameters."""
    for config in (Shape, Strict, Plate):
        if (parameters.get("apiVersion"), parameters.get("kind")) == (config.api_version, config.kind):
            try:
                config.decode(parameters)
            except ConfigError:
                return False
            return True
    return False


@pytest.mark.parametrize("kind", ["claim", "template", "class"])
@pytest.mark.parametrize("parameters", RIGHT)
def test_what_the_driver_takes_is_let_through(parameters: JSON, kind: str) -> None:
    assert decoded(parameters)
    assert broken(in_place(kind, entry(parameters))) == []


@pytest.mark.parametrize(("sentence", "parameters"), WRONG)
def test_what_the_driver_refuses_is_refused_with_the_field(sentence: str, parameters: JSON) -> None:
    assert not decoded(parameters)
    (message,) = broken(claim(entry(parameters)))
    assert message.startswith(sentence)


@pytest.mark.parametrize("kind", ["claim", "template", "class"])
def test_a_configuration_that_keeps_to_the_rules_is_let_through(kind: str) -> None:
    info = PlateDriver().dra_driver_info()
    for parameters in RIGHT_PLATES:
        assert decoded(parameters)
        assert broken_by_our_engine(in_place(kind, entry(parameters, PLATES)), info) == []


@pytest.mark.parametrize(("sentence", "parameters"), WRONG_PLATES)
def test_what_a_rule_refuses_is_refused_with_its_message(sentence: str, parameters: JSON) -> None:
    assert not decoded(parameters)
    both = claim(entry(RIGHT_PLATES[0], PLATES), entry(parameters, PLATES))
    messages = broken_by_our_engine(both, PlateDriver().dra_driver_info())
    assert messages[0].startswith(sentence)


def test_a_wrong_rule_makes_no_policy() -> None:
    class Wrong(OpaqueConfig, api_version="wrong.example.com/v1"):
        """A rule about a field that the class does not have."""

        size: int = 0

        cel_rules = (CelRule("self.size >= 0", "size"), CelRule("self.size >=\n self.length", "length"))

    with pytest.raises(SettingsError) as caught:
        config_policy(DriverInfo("wrong.example.com", configs=[Wrong]))
    assert str(caught.value) == "Wrong.cel_rules[1]: line 2, column 6: undefined field 'length'"


@pytest.mark.parametrize(
    ("parameters", "refused"),
    [
        (shape(), []),
        (shape(on=True, part=None), []),
        (shape(small=2), ["small"]),
        (shape(maybe=None), []),
        (shape(part={"width": 1, "screw": {"head": "flat"}}, maybe=1), ["maybe", "part.screw.head"]),
        (shape(part={"width": 1, "screw": {}}), []),
    ],
)
def test_what_only_a_class_may_set_is_refused_in_claims_and_templates(parameters: JSON, refused: list[str]) -> None:
    info = DriverInfo(NAME, configs=[Shape, Strict], class_only=["small", "maybe", "part.screw.head"])
    sentences = [f"Shape: {path} may be set in a DeviceClass only" for path in refused]
    for kind, expected in (("claim", sentences), ("template", sentences), ("class", [])):
        assert broken(in_place(kind, entry(parameters)), info) == expected
        reviewed, _ = ConfigReviewer([info]).problems(*reviewable(kind, parameters))
        paths = [path.partition(".parameters.")[2] for path, _ in reviewed]
        assert sorted(paths) == sorted(refused if expected else [])


def reviewable(kind: str, parameters: JSON) -> tuple[str, JSON]:
    """The kind of the API, and an object of it with an entry."""
    name = {"claim": "ResourceClaim", "template": "ResourceClaimTemplate", "class": "DeviceClass"}[kind]
    return name, in_place(kind, entry(parameters))


def test_each_wrong_field_of_each_entry_has_a_sentence() -> None:
    both = [entry(WRONG[4][1] | {"on": 3}), entry(RIGHT[0]), entry(WRONG[-2][1])]
    fields = [message.partition(" must")[0].partition(" is")[0] for message in broken(claim(*both))]
    assert fields == ["Shape: small", "Shape: on", "Strict: size"]


def test_what_is_not_the_drivers_is_not_read() -> None:
    assert broken(claim(entry({"anything": 1}, "other.example.com"), {"requests": ["r"]})) == []
    assert broken({"spec": {"devices": {}}}) == broken({"spec": {}}) == []


def test_what_is_stored_already_is_never_stopped() -> None:
    """A refused update would keep the finalizer of a claim, so that it could not be deleted."""
    policy, binding = config_policy(INFO)
    claims, classes = policy["spec"]["matchConstraints"]["resourceRules"]
    assert (claims["operations"], claims["resources"]) == (["CREATE"], ["resourceclaims", "resourceclaimtemplates"])
    assert (classes["operations"], classes["resources"]) == (["CREATE", "UPDATE"], ["deviceclasses"])
    (condition,) = policy["spec"]["matchConditions"]
    assert condition["expression"] == 'request.operation == "CREATE" || object.spec != oldObject.spec'
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}


@pytest.mark.parametrize("name", ["cpu", "gpu", "gpu-amd", "nic"])
def test_the_reference_drivers_have_a_policy_of_correct_expressions(name: str) -> None:
    policy, _ = config_policy(load_driver(name).info)
    for part in [*policy["spec"]["variables"], *policy["spec"]["validations"]]:
        parse(part["expression"])
    for config in load_driver(name).info.configs:
        messages = [validation["message"] for validation in policy["spec"]["validations"]]
        assert all(any(message.endswith(rule.message) for message in messages) for rule in config.cel_rules)
    assert len(policy["spec"]["validations"]) > 5


def test_a_driver_without_configuration_has_no_policy() -> None:
    with pytest.raises(
        SettingsError, match=r"^driver bare.example.com takes no configuration, so there is nothing to check$"
    ):
        config_policy(DriverInfo("bare.example.com"))


def test_what_a_policy_cannot_check_is_an_error() -> None:
    class Endless(OpaqueConfig, api_version="endless.example.com/v1"):
        """A configuration that contains itself."""

        inner: list[Endless] = Field(default_factory=list)

    class Unique(OpaqueConfig, api_version="unique.example.com/v1"):
        """A set is a list whose items differ."""

        numbers: set[int] = Field(default_factory=set)

    Endless.model_rebuild(_types_namespace={"Endless": Endless})
    with pytest.raises(SettingsError, match="contains itself cannot be checked"):
        config_policy(DriverInfo("endless.example.com", configs=[Endless]))
    with pytest.raises(SettingsError, match="cannot check uniqueItems of JSON Schema"):
        config_policy(DriverInfo("unique.example.com", configs=[Unique]))
