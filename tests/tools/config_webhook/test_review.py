"""What the webhook says of an object: the same as the driver, with the path of every wrong field."""

from __future__ import annotations

from typing import Any

import pytest

from dra_sdk import DriverInfo
from dra_sdk.errors import DraError, DriverLoadError
from dra_sdk.tools.config_webhook import ConfigReviewer
from dra_sdk.tools.config_webhook.review import MAX_PROBLEMS, VERSIONS
from tests.tools.config_policies import NAME, RIGHT, WRONG, OddDriver, ShapeDriver, entry, shape

JSON = dict[str, Any]
REVIEWER = ConfigReviewer([ShapeDriver().dra_driver_info()])
PLACES = {
    "ResourceClaim": "spec.devices.config",
    "ResourceClaimTemplate": "spec.spec.devices.config",
    "DeviceClass": "spec.config",
}


def request(kind: str, configs: Any, version: str = "v1", **fields: Any) -> JSON:
    found: Any = configs
    for key in reversed(PLACES[kind].split(".")):
        found = {key: found}
    about = {"group": "resource.k8s.io", "version": version, "kind": kind}
    return {"uid": "1", "kind": about, "operation": "CREATE", "name": "n", "object": found, "oldObject": None, **fields}


def answer(asked: JSON, reviewer: ConfigReviewer = REVIEWER) -> JSON:
    found = reviewer.review({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked})
    assert (found["apiVersion"], found["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert found["response"]["uid"] == asked["uid"]
    return dict(found["response"])


def problems(asked: JSON, reviewer: ConfigReviewer = REVIEWER) -> dict[str, str]:
    """Each field with its sentence."""
    found = answer(asked, reviewer)
    if found["allowed"]:
        assert "status" not in found
        return {}
    status = found["status"]
    assert (status["status"], status["reason"], status["code"]) == ("Failure", "Invalid", 422)
    causes = status["details"]["causes"]
    assert all(f"{each['field']}: {each['message']}" in status["message"] for each in causes)
    return {each["field"]: each["message"] for each in causes}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", PLACES)
def test_what_the_driver_takes_is_let_through_and_the_rest_is_refused_at_its_place(kind: str, version: str) -> None:
    for parameters in RIGHT:
        assert problems(request(kind, [entry(parameters)], version)) == {}
    for _, parameters in WRONG:
        (field,) = problems(request(kind, [entry(RIGHT[0]), entry(parameters)], version))
        assert field.startswith(f"{PLACES[kind]}[1].opaque.parameters")


def test_each_wrong_field_of_each_entry_has_its_path_in_one_answer() -> None:
    parts = [{"width": 1}, {"width": 0, "screw": {"head": "square"}}]
    first = shape(smal=1, ratio="x", parts=parts, numbers={"a.b": "c"})
    found = problems(request("ResourceClaim", [entry(first), entry({"anything": 1}, "other"), entry(WRONG[-1][1])]))
    below = "spec.devices.config[0].opaque.parameters"
    assert list(found)[:5] == [
        f"{below}.ratio",
        f"{below}.parts[1].width",
        f"{below}.parts[1].screw.head",
        f"{below}.numbers.a.b",
        f"{below}.smal",
    ]
    assert found[f"{below}.parts[1].width"] == "must be greater than or equal to 1 (got 0)"
    assert found[f"{below}.smal"].startswith("unknown field (known: small, ratio, on,")
    assert list(found)[5].startswith("spec.devices.config[2].opaque.parameters")


def test_a_field_with_alternatives_has_the_path_of_the_claim() -> None:
    found = problems(request("ResourceClaim", [entry(shape(either="none"))]))
    assert list(found) == ["spec.devices.config[0].opaque.parameters.either"]


def test_an_unknown_driver_an_unknown_object_and_no_configuration_are_let_through() -> None:
    wrong = entry(WRONG[4][1])
    assert problems(request("ResourceClaim", [entry({"any": 1}, "other.example.com"), {"requests": ["r"]}])) == {}
    assert problems({"uid": "1", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "operation": "CREATE"}) == {}
    assert problems({**request("ResourceClaim", [wrong]), "kind": {"group": "x", "kind": "ResourceClaim"}}) == {}
    assert problems(request("ResourceClaim", [wrong], subResource="status")) == {}
    assert problems(request("ResourceClaim", None)) == problems(request("DeviceClass", None)) == {}


def test_what_is_stored_already_is_never_stopped() -> None:
    asked = request("DeviceClass", [entry(WRONG[4][1])], operation="UPDATE")
    assert problems({**asked, "oldObject": asked["object"]}) == {}
    assert problems({**asked, "oldObject": {"spec": {}}}) != {}
    assert problems(request("DeviceClass", [entry(WRONG[4][1])], operation="DELETE")) == {}


def test_an_answer_has_a_limited_number_of_problems() -> None:
    many = shape(**{f"field{number}": number for number in range(2 * MAX_PROBLEMS)})
    found = answer(request("ResourceClaim", [entry(many)]))["status"]
    assert len(found["details"]["causes"]) == MAX_PROBLEMS
    assert found["message"].endswith(f"; and {MAX_PROBLEMS} more problems")


def test_checks_in_code_are_made_and_a_defect_in_one_stops_nobody() -> None:
    reviewer = ConfigReviewer([OddDriver().dra_driver_info()])

    def asked(**fields: int) -> JSON:
        parameters = {"apiVersion": "odd.example.com/v1", "kind": "Odd", **fields}
        return request("ResourceClaim", [entry(parameters, "odd.example.com")])

    (sentence,) = problems(asked(low=2), reviewer).values()
    assert sentence.startswith("low must not be above high")
    found = answer(asked(low=1), reviewer)
    assert found["allowed"]
    (warning,) = found["warnings"]
    assert "not checked, because driver odd.example.com failed: RuntimeError: a defect" in warning


def test_a_driver_without_configuration_takes_none() -> None:
    reviewer = ConfigReviewer([DriverInfo("bare.example.com")])
    (sentence,) = problems(request("ResourceClaim", [entry({}, "bare.example.com")]), reviewer).values()
    assert "the driver takes no configuration" in sentence


def test_one_driver_is_given_once() -> None:
    info = ShapeDriver().dra_driver_info()
    with pytest.raises(DriverLoadError, match=f"^driver {NAME} is given twice"):
        ConfigReviewer([info, info])


@pytest.mark.parametrize(
    "document",
    [None, [], {}, {"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": {"uid": "1"}}]
    + [{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": each} for each in (None, {}, [])],
)
def test_what_is_no_review_is_an_error(document: Any) -> None:
    with pytest.raises(DraError):
        REVIEWER.review(document)


@pytest.mark.parametrize("odd", [5, "x", [], {"config": 1}, {"devices": []}, {"config": [1, {"opaque": 2}]}, None])
def test_an_object_of_another_shape_is_let_through(odd: Any) -> None:
    """The API server has refused such objects before it asks."""
    for kind in PLACES:
        assert problems({**request(kind, []), "object": {"spec": odd}}) == {}
