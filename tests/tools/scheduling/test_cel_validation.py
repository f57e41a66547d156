from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.cel_validation import cel_compiler, cel_features
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.validation import Problem, ProblemType, Uncompiled, validate
from tests.wire.validation.objects import claim, device_class, request, template

LISTS = 'device.attributes["gpu.example.com"].models.includes("a100")'
DEAR = f"{list(range(100))}.all(a, {list(range(100))}.all(b, {list(range(100))}.all(c, a + b == c)))"


def judge(text: str, version: str = "1.36", *, stored: bool = False, derives: bool = False) -> Problem | None:
    return cel_compiler(ServerProfile.of(version))(Uncompiled("f", ProblemType.INVALID, text, stored, derives))


def test_cel_features_depend_on_the_gates() -> None:
    assert not cel_features(ServerProfile.of("1.35")).consumable_capacity
    assert cel_features(ServerProfile.of("1.36")).consumable_capacity
    assert not cel_features(ServerProfile.of("1.36")).list_type_attributes
    assert cel_features(ServerProfile.of("1.36", {"DRAListTypeAttributes": True})).list_type_attributes


def test_costs_depend_on_the_release() -> None:
    assert [cel_features(ServerProfile.of(f"1.{minor}")).since_1_37 for minor in (34, 36, 37)] == [False, False, True]
    costly = 'matches(device.attributes["d"].s, string(1))'
    assert judge(costly, "1.36") is None
    problem = judge(costly, "1.37")
    assert problem
    assert problem.type is ProblemType.FORBIDDEN


def test_a_valid_expression() -> None:
    assert judge('device.driver == "gpu.example.com"') is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("device.driver ==", "line 1, column 17: "),
        ("true &&\n  nothing", "line 2, column 3: "),
        ("device.driver", "must evaluate to bool"),
        ("x" * (10 * 1024 + 1), "at most 10240"),
    ],
)
def test_an_expression_that_does_not_compile_is_invalid(text: str, said: str) -> None:
    problem = judge(text)
    assert problem
    assert (problem.field, problem.type) == ("f", ProblemType.INVALID)
    assert said in problem.detail


def test_an_expression_that_is_too_costly_is_forbidden() -> None:
    problem = judge(DEAR)
    assert problem
    assert (problem.type, "too complex" in problem.detail) == (ProblemType.FORBIDDEN, True)


def test_stored_expressions_may_use_features_that_are_off() -> None:
    assert judge(LISTS)
    assert judge(LISTS, stored=True) is None


def test_a_derived_attribute_need_not_be_bool() -> None:
    assert judge("device.driver", "1.37", derives=True) is None
    problem = judge("1.5", "1.37", derives=True)
    assert problem
    assert "must evaluate to a string, int, bool or semver, not double" in problem.detail
    assert judge(DEAR, "1.37", derives=True).type is ProblemType.FORBIDDEN  # type: ignore[union-attr]


def test_derived_attributes_are_compiled() -> None:
    derived = [{"name": "example.com/x", "expression": "nothing"}]
    wanted = claim(request(derivedAttributes=derived))
    wanted["spec"]["devices"]["constraints"] = [{"matchAttribute": "example.com/x"}]
    profile = ServerProfile.of("1.37", {"DRADerivedAttributes": True})
    (problem,) = validate(wanted, profile=profile, compile_cel=cel_compiler(profile))
    assert problem.field == "spec.devices.requests[0].exactly.derivedAttributes[0].expression"


def places(obj: dict[str, object], **options: object) -> list[str]:
    compile_cel = cel_compiler(ServerProfile.of("1.36"))
    problems = validate(obj, profile=ServerProfile.of("1.36"), compile_cel=compile_cel, **options)  # type: ignore[arg-type]
    return [problem.field for problem in problems]


def test_all_selectors_are_compiled() -> None:
    wrong = [{"cel": {"expression": "nothing"}}]
    alternative = {"name": "b", "firstAvailable": [{"name": "x", "deviceClassName": "c", "selectors": wrong}]}
    where = "selectors[0].cel.expression"
    assert places(device_class(selectors=wrong)) == [f"spec.{where}"]
    assert places(claim(request(selectors=wrong), alternative)) == [
        f"spec.devices.requests[0].exactly.{where}",
        f"spec.devices.requests[1].firstAvailable[0].{where}",
    ]
    (problem,) = places(template(requests=[request(selectors=wrong)]))
    assert problem == f"spec.spec.devices.requests[0].exactly.{where}"


def test_without_a_compiler_there_are_no_problems() -> None:
    assert validate(device_class(selectors=[{"cel": {"expression": "nothing"}}])) == []


def test_an_unchanged_class_is_stored() -> None:
    body = device_class(selectors=[{"cel": {"expression": LISTS}}])
    assert places(body) == ["spec.selectors[0].cel.expression"]
    assert places(body, old=body) == []
