from __future__ import annotations

import pytest

from dra_sdk.cel import CelCompileError, Features, compile  # noqa: A004

SCALARS = Features(list_type_attributes=False)


@pytest.mark.parametrize(
    ("expression", "column", "problem"),
    [
        ("device.drivr == 'a'", 7, "undefined field 'drivr'"),
        ("devise.driver == 'a'", 1, "undeclared reference to 'devise'"),
        ("device.driver.nothing()", 22, "undeclared reference to 'nothing'"),
        ("nothing(1)", 8, "undeclared reference to 'nothing'"),
        ("device.driver == 1", 15, "found no matching overload for '_==_' applied to '(string, int)'"),
        ("device.driver", 7, "must evaluate to bool or the unknown type, not string"),
        ("device.driver && true", 7, "expected type 'bool' but found 'string'"),
        ("[1, 'a'] == [1]", 5, "expected type 'int' but found 'string'"),
        ("{'a': 1, 2: 3} == {}", 10, "expected type 'string' but found 'int'"),
        ("[?1] == [1]", 3, "expected type 'optional_type(int)' but found 'int'"),
        ("device.driver.all(x, true)", 7, "expression of type 'string' cannot be range of a comprehension"),
        ("device.driver.x", 14, "type 'string' does not support field selection"),
        ("[1, 2].exists(x, x)", 18, "expected type 'bool' but found 'int'"),
        ("duration('1s') == duration('1s')", 9, "Kubernetes has it, this engine does not offer it"),
        ("'%s'.format(['a']) == 'a'", 12, "Kubernetes has it, this engine does not offer it"),
        ("'a'.matches('(')", 13, "error parsing regexp '('"),
        ("int('x') == 1", 4, "type conversion error from 'string' to 'int'"),
        ("{'a': 1, 'a': 2} == {}", 1, "repeated key: 'a'"),
        ("[].all(x, x == 1 || x == 'a')", 23, "applied to '(int, string)'"),
    ],
)
def test_what_does_not_compile(expression: str, column: int, problem: str):
    with pytest.raises(CelCompileError) as caught:
        compile(expression)
    assert problem in str(caught.value)
    assert caught.value.column == column


@pytest.mark.parametrize(
    "expression",
    [
        "device.attributes['a'].b",
        "type(1) == int && type(ip('::1')) == net.IP",
        "sets.contains([1], [1])",
        "cel.bind(x, [], x == [1])",
        "dyn(1) == 'a'",
    ],
)
def test_what_compiles(expression: str):
    assert compile(expression).expression == expression


def test_features_decide_what_is_declared():
    with pytest.raises(CelCompileError, match="undefined field 'allowMultipleAllocations'"):
        compile("device.allowMultipleAllocations", Features(consumable_capacity=False))
    with pytest.raises(CelCompileError, match="undeclared reference to 'includes'"):
        compile("device.attributes['a'].b.includes(1)", SCALARS)
    with pytest.raises(CelCompileError, match="expression of type 'any' cannot be range"):
        compile("device.attributes['a'].b.exists(x, x == 1)", SCALARS)
    with pytest.raises(CelCompileError, match="must evaluate to bool or the unknown type, not dyn"):
        compile("dyn(1)", SCALARS)
