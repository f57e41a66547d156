"""What a driver says about itself, as far as it takes a look at configuration classes and CDI."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, BeforeValidator, Field, field_validator

from dra_sdk import DriverInfo, OpaqueConfig, Quantity
from dra_sdk.errors import DriverLoadError
from dra_sdk.loader.info import check_info
from dra_sdk.model.config import wrong_defaults

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
