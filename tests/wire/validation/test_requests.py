from __future__ import annotations

import pytest

from tests.wire.validation.objects import VERSIONS, claim, device_class, found, request

AT = "spec.devices.requests"


def alternatives(*subrequests, **more):
    return {"name": "gpu", "firstAvailable": list(subrequests), **more}


def sub(name="large", **fields):
    return {"name": name, "deviceClassName": "gpu.example.com", **fields}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (request(), set()),
        (request(allocationMode="All"), set()),
        (request(allocationMode="ExactCount", count=2, adminAccess=True), set()),
        (request("GPU"), {("name", "Invalid")}),
        (request(deviceClassName=""), {("exactly.deviceClassName", "Required")}),
        (request(deviceClassName="GPU"), {("exactly.deviceClassName", "Invalid")}),
        (request(allocationMode="Some"), {("exactly.allocationMode", "NotSupported")}),
        (request(allocationMode="All", count=1), {("exactly.count", "Invalid")}),
        (request(count=-1), {("exactly.count", "Invalid")}),
        ({"name": "gpu"}, {("", "Required")}),
        ({"name": "gpu", "firstAvailable": []}, {("", "Required")}),
        (alternatives(sub(), sub("small", count=2)), set()),
        (alternatives(sub("A")), {("firstAvailable[0].name", "Invalid")}),
        (alternatives(sub(deviceClassName="")), {("firstAvailable[0].deviceClassName", "Required")}),
        (alternatives(sub(allocationMode="All", count=1)), {("firstAvailable[0].count", "Invalid")}),
        (alternatives(sub(tolerations=[{"key": "-"}])), {("firstAvailable[0].tolerations[0].key", "Invalid")}),
        (alternatives(*[sub(f"n{index}") for index in range(8)]), set()),
        (alternatives(*[sub(f"n{index}") for index in range(9)]), {("firstAvailable", "TooMany")}),
        (alternatives(sub(), exactly={"deviceClassName": "gpu.example.com"}), {("", "Invalid")}),
    ],
)
def test_requests(wanted, expected, version):
    assert found(claim(wanted), version) == {(f"{AT}[0].{field}".rstrip("."), kind) for field, kind in expected}


@pytest.mark.parametrize(("version", "field"), [("1.34", ".name"), ("1.35", ""), ("1.36", ""), ("1.37", "")])
def test_names_are_given_once(version, field):
    assert found(claim(request(), request()), version) == {(f"{AT}[1]{field}", "Duplicate")}
    assert found(claim(alternatives(sub(), sub())), version) == {(f"{AT}[0].firstAvailable[1]{field}", "Duplicate")}


def test_how_many_requests():
    requests = [request(f"gpu-{index}") for index in range(33)]
    assert found(claim(*requests[:-1])) == set()
    assert found(claim(*requests)) == {(AT, "TooMany")}


@pytest.mark.parametrize(
    ("selectors", "expected"),
    [
        ([{"cel": {"expression": "true"}}], set()),
        ([{"cel": {"expression": "1" * 10240}}], set()),
        ([{}], {("[0].cel", "Required")}),
        ([{"cel": {}}], {("[0].cel.expression", "Invalid")}),
        ([{"cel": {"expression": " \n"}}], {("[0].cel.expression", "Invalid")}),
        ([{"cel": {"expression": "1" * 10241}}], {("[0].cel.expression", "TooLong")}),
        ([{"cel": {"expression": "true"}}] * 33, {("", "TooMany")}),
    ],
)
def test_selectors(selectors, expected):
    assert found(claim(request(selectors=selectors))) == {
        (f"{AT}[0].exactly.selectors{field}", kind) for field, kind in expected
    }
    assert found(device_class(selectors=selectors)) == {(f"spec.selectors{field}", kind) for field, kind in expected}


@pytest.mark.parametrize(
    ("derived", "expected"),
    [
        ([{"name": "a.com/b", "expression": "1"}], set()),
        ([{"name": "a.com/sub", "expression": "1"}], {("[0].name", "Invalid")}),
        ([{"expression": "1"}], {("[0].name", "Required")}),
        ([{"name": "b", "expression": "1"}], {("[0].name", "Invalid")}),
        ([{"name": "a.com/b"}], {("[0].expression", "Required")}),
        ([{"name": "a.com/b", "expression": "1" * 10241}], {("[0].expression", "TooLong")}),
        ([{"name": "a.com/b", "expression": "1"}] * 2, {("[1]", "Duplicate")}),
        ([{"name": "a.com/b", "expression": "1"}] * 33, {("", "TooMany")}),
    ],
)
def test_derived_attributes_came_with_1_37(derived, expected):
    constraints = [{"matchAttribute": "a.com/b"}, {"requests": ["other/large"], "matchAttribute": "a.com/sub"}]
    obj = claim(request(derivedAttributes=derived), alternatives(sub(), name="other"), constraints=constraints)
    at = f"{AT}[0].exactly.derivedAttributes"
    assert found(obj, "1.37") == {(f"{at}{field}", kind) for field, kind in expected}
    assert found(obj, "1.36") == {(at, "Unknown")}


@pytest.mark.parametrize("target", [None, ["other"], ["other/large"]])
def test_a_constraint_on_a_request_covers_its_alternatives(target):
    derived = [{"name": "a.com/b", "expression": "1"}]
    constraint = {"matchAttribute": "a.com/b"} | ({"requests": target} if target else {})
    wanted = alternatives(sub(derivedAttributes=derived), sub("small"), name="other")
    assert found(claim(wanted, constraints=[constraint]), "1.37") == set()
    constraint["requests"] = ["other/small"]
    at = f"{AT}[0].firstAvailable[0].derivedAttributes[0].name"
    assert found(claim(wanted, constraints=[constraint]), "1.37") == {(at, "Invalid")}
