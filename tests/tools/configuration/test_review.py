"""What is wrong with an object's configuration: the same as the driver says, with the path of every wrong field."""

from __future__ import annotations

from typing import Any

import pytest

from dra_sdk import DriverInfo
from dra_sdk.errors import DriverLoadError
from dra_sdk.tools.configuration.review import ConfigReviewer
from tests.tools.configuration.shapes import NAME, RIGHT, WRONG, OddDriver, ShapeDriver, entry, shape

JSON = dict[str, Any]
REVIEWER = ConfigReviewer([ShapeDriver().dra_driver_info()])
PLACES = {
    "ResourceClaim": "spec.devices.config",
    "ResourceClaimTemplate": "spec.spec.devices.config",
    "DeviceClass": "spec.config",
}


def made(kind: str, configs: Any) -> JSON:
    content: Any = configs
    for key in reversed(PLACES[kind].split(".")):
        content = {key: content}
    return {"kind": kind, **content}


def problems(obj: JSON, reviewer: ConfigReviewer = REVIEWER) -> dict[str, str]:
    """Each field with its sentence."""
    sentences, warnings = reviewer.problems(obj["kind"], obj)
    assert warnings == []
    return dict(sentences)


@pytest.mark.parametrize("kind", PLACES)
def test_what_the_driver_takes_passes_and_the_rest_is_refused_in_place(kind: str) -> None:
    for parameters in RIGHT:
        assert problems(made(kind, [entry(parameters)])) == {}
    for _, parameters in WRONG:
        (field,) = problems(made(kind, [entry(RIGHT[0]), entry(parameters)]))
        assert field.startswith(f"{PLACES[kind]}[1].opaque.parameters")


def test_each_wrong_field_of_each_entry_has_its_path() -> None:
    parts = [{"width": 1}, {"width": 0, "screw": {"head": "square"}}]
    first = shape(smal=1, ratio="x", parts=parts, numbers={"a.b": "c"})
    sentences = problems(made("ResourceClaim", [entry(first), entry({"anything": 1}, "other"), entry(WRONG[-1][1])]))
    below = "spec.devices.config[0].opaque.parameters"
    assert list(sentences)[:5] == [
        f"{below}.ratio",
        f"{below}.parts[1].width",
        f"{below}.parts[1].screw.head",
        f"{below}.numbers.a.b",
        f"{below}.smal",
    ]
    assert sentences[f"{below}.parts[1].width"] == "must be greater than or equal to 1 (got 0)"
    assert sentences[f"{below}.smal"].startswith("unknown field (known: small, ratio, on,")
    assert list(sentences)[5].startswith("spec.devices.config[2].opaque.parameters")


def test_a_field_with_alternatives_has_the_path_of_the_claim() -> None:
    sentences = problems(made("ResourceClaim", [entry(shape(either="none"))]))
    assert list(sentences) == ["spec.devices.config[0].opaque.parameters.either"]


def test_unknown_drivers_unknown_objects_and_no_configuration_pass() -> None:
    assert problems(made("ResourceClaim", [entry({"any": 1}, "other.example.com"), {"requests": ["r"]}])) == {}
    assert problems({"kind": "Pod"}) == {}
    assert problems(made("ResourceClaim", None)) == problems(made("DeviceClass", None)) == {}


def test_checks_in_code_are_made_and_a_defect_in_one_is_a_warning() -> None:
    reviewer = ConfigReviewer([OddDriver().dra_driver_info()])

    def asked(**fields: int) -> JSON:
        parameters = {"apiVersion": "odd.example.com/v1", "kind": "Odd", **fields}
        return made("ResourceClaim", [entry(parameters, "odd.example.com")])

    (sentence,) = problems(asked(low=2), reviewer).values()
    assert sentence.startswith("low must not be above high")
    sentences, (warning,) = reviewer.problems("ResourceClaim", asked(low=1))
    assert sentences == []
    assert "not checked, because driver odd.example.com failed: RuntimeError: a defect" in warning


def test_a_driver_without_configuration_takes_none() -> None:
    reviewer = ConfigReviewer([DriverInfo("bare.example.com")])
    (sentence,) = problems(made("ResourceClaim", [entry({}, "bare.example.com")]), reviewer).values()
    assert "the driver takes no configuration" in sentence


def test_one_driver_is_given_once() -> None:
    info = ShapeDriver().dra_driver_info()
    with pytest.raises(DriverLoadError, match=f"^driver {NAME} is given twice"):
        ConfigReviewer([info, info])


@pytest.mark.parametrize("odd", [5, "x", [], {"config": 1}, {"devices": []}, {"config": [1, {"opaque": 2}]}, None])
def test_an_object_of_another_shape_is_let_through(odd: Any) -> None:
    """Other checks refuse such objects."""
    for kind in PLACES:
        assert problems({"kind": kind, "spec": odd}) == {}
