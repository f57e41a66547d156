"""Methods that are called like hooks: which are, which nearly are."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, BeforeValidator, Field, field_validator

from dra_sdk import CelRule, DriverInfo, Node, OpaqueConfig, Quantity
from dra_sdk.errors import DriverLoadError
from dra_sdk.loader import Driver
from dra_sdk.loader.contract import HOOKS, check_info
from dra_sdk.model.config import wrong_defaults


class Lamp:
    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo("lamp.example.com")

    def dra_discover(self, node: Node) -> list[Any]:
        return []

    def dra_prepare(self, claim: Any) -> list[Any]:
        return []


def refusal(plugin: object) -> str:
    with pytest.raises(DriverLoadError) as caught:
        Driver.of(plugin)
    return str(caught.value).partition(".Lampish")[2]


def lampish(**methods: Any) -> object:
    return type("Lampish", (Lamp,), {"__qualname__": "x.Lampish", **methods})()


def test_a_hook_that_is_nearly_called_so() -> None:
    known = f"hooks are {', '.join(HOOKS)}"
    assert refusal(lampish(dra_preprae=lambda self: None)) == (
        f": unknown hook 'dra_preprae'; {known}; did you mean dra_prepare?"
    )
    assert refusal(lampish(dra_x=lambda self: None)) == f": unknown hook 'dra_x'; {known}"


def test_arguments_that_a_hook_is_not_given() -> None:
    wrong = lampish(dra_unprepare=lambda self, claims, nod: None)
    assert refusal(wrong) == (
        ": hook dra_unprepare asks for claims, nod, which it is not given; apart from self it may take claim, node"
    )
    assert "asks for node, which it is not given; apart from self it takes none" in refusal(
        lampish(dra_driver_info=lambda self, node: None)
    )

    def keyword(self: Any, claim: Any, *, retries: int) -> None: ...

    assert "hook dra_unprepare asks for retries" in refusal(lampish(dra_unprepare=keyword))

    def optional(self: Any, *more: Any, retries: int = 1, **others: Any) -> None: ...

    assert Driver.of(lampish(dra_unprepare=optional)).implements("dra_unprepare")


def test_self_is_needed_but_for_static_methods() -> None:
    assert refusal(lampish(dra_driver_info=lambda: None)) == ": hook dra_driver_info must take self first"
    static = lampish(dra_driver_info=staticmethod(lambda: DriverInfo("lamp.example.com")))
    assert Driver.of(static).info.name == "lamp.example.com"


def test_what_stands_where_a_required_hook_should() -> None:
    attribute = lampish(dra_driver_info=DriverInfo("lamp.example.com"))
    assert (
        refusal(attribute)
        == " lacks the required hook dra_driver_info; its dra_driver_info is a DriverInfo, want a method"
    )
    assert "its dra_discover is a property, want a method" in refusal(lampish(dra_discover=property(lambda self: [])))

    class Bare:
        __qualname__ = "x.Lampish"

        def prepare(self) -> None: ...

    assert refusal(Bare()) == (
        " lacks the required hooks dra_driver_info, dra_discover and dra_prepare; "
        "its method prepare would be a hook if it were called dra_prepare"
    )


V1 = "lamp.example.com/v1"


class Beam(BaseModel):
    width: int = 1


def of_field(kind: Any, default: Any) -> type[OpaqueConfig]:
    body = {"__annotations__": {"brightness": kind}, "brightness": default, "__module__": __name__}
    return type("LampConfig", (OpaqueConfig,), body, api_version=V1)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize(
    ("kind", "default", "problem"),
    [
        (int, Field(default=999, le=400), "must be less than or equal to 400 (is 999)"),
        (int, "bright", "must be a valid integer, unable to parse string as an integer (is 'bright')"),
        (int, None, "must be a valid integer (is None)"),
        (int, "100", "would be read as int from a claim, and stays str (is '100')"),
        (list[int], ["x"], "must be a valid integer, unable to parse string as an integer (is ['x'])"),
        (Beam, {"width": 2}, "would be read as Beam from a claim, and stays dict (is {'width': 2})"),
        (str, Field(default="x" * 300, max_length=10), "must have at most 10 characters (is 'x"),
    ],
)
def test_a_default_that_a_claim_could_not_give_is_refused(kind: Any, default: Any, problem: str) -> None:
    config = of_field(kind, default)
    with pytest.raises(DriverLoadError) as caught:
        check_info(DriverInfo("lamp.example.com", configs=[config]), "driver 'lamp'")
    assert str(caught.value).startswith(f"driver 'lamp': config class LampConfig: default of brightness {problem}")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("rules", [CelRule("true", "never"), ["true"], "true", None])
def test_rules_that_are_none_are_refused(rules: Any) -> None:
    body = {"__module__": __name__, "cel_rules": rules}
    config = type("LampConfig", (OpaqueConfig,), body, api_version=V1)  # type: ignore[call-overload]
    with pytest.raises(DriverLoadError, match=r"^driver 'lamp': config class LampConfig: cel_rules must be a tuple of"):
        check_info(DriverInfo("lamp.example.com", configs=[config]), "driver 'lamp'")


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        (int, 100),
        (float, 1),
        (int | None, None),
        (Beam, Beam(width=2)),
        (int, Field(default_factory=lambda: 999, le=400)),
        (Annotated[Any, BeforeValidator(lambda text: Quantity(text.upper()))], Quantity("1Gi")),
        (int, Field(ge=1)),
    ],
)
def test_a_default_that_makes_sense_is_taken(kind: Any, default: Any) -> None:
    assert list(wrong_defaults(of_field(kind, default))) == []


def test_an_authors_own_check_is_not_made_of_defaults() -> None:
    class NamedConfig(OpaqueConfig, api_version=V1):
        name: str = ""

        @field_validator("name")
        @classmethod
        def _not_empty(cls, value: str) -> str:
            if not value:
                raise ValueError("must not be empty")
            return value

    assert list(wrong_defaults(NamedConfig)) == []


@pytest.mark.parametrize("kind", ["lamp", "lamp.example.com/lamp/x"])
def test_a_cdi_kind_has_two_parts(kind: str) -> None:
    with pytest.raises(DriverLoadError, match=f"CDI kind '{kind}' must be vendor/class, such as lamp.example.com/dev"):
        check_info(DriverInfo("lamp.example.com", cdi_kind=kind), "driver 'lamp'")


@pytest.mark.parametrize("version", ["v1 beta", "lamp.example.com", "lamp.example.com/1", "Lamp/v1", "a/b/v1"])
def test_an_api_version_that_no_object_could_have(version: str) -> None:
    config = type("LampConfig", (OpaqueConfig,), {"__module__": __name__}, api_version=version)  # type: ignore[call-overload]
    with pytest.raises(
        DriverLoadError, match=f"class LampConfig: API version '{version}' must be like lamp.example.com/"
    ):
        check_info(DriverInfo("lamp.example.com", configs=[config]), "driver 'lamp'")
