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
        ("duration('1x') == duration('1s')", 10, "type conversion error from 'string' to 'google.protobuf.Duration'"),
        ("timestamp('now') == timestamp(0)", 11, "type conversion error from 'string' to 'google.protobuf.Timestamp'"),
        ("'%d'.format(['a']) == 'a'", 14, "decimal clause can only be used on integers, was given string"),
        ("'%s'.format(['a', 1]) == 'a'", 12, "too many arguments supplied to string.format (expected 1, got 2)"),
        ("matches('[', 'a')", 9, "error parsing regexp '['"),
        ("'a'.matches('(')", 13, "error parsing regexp '('"),
        ("int('x') == 1", 4, "type conversion error from 'string' to 'int'"),
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
        "'%s %d'.format(['a', 1]) == 'a 1'",
        "type(timestamp(0)) == google.protobuf.Timestamp",
        "[1].all(net, type(ip('::1')) == net.IP)",
        ".size([1]) == 1 && .device.driver == .strings.quote('')",
    ],
)
def test_what_compiles(expression: str):
    assert compile(expression).expression == expression


def test_since_1_37_local_variables_come_before_types():
    newer = Features(since_1_37=True)
    with pytest.raises(CelCompileError, match="type 'int' does not support field selection"):
        compile("[1].all(net, type(ip('::1')) == net.IP)", newer)
    with pytest.raises(CelCompileError, match=r"undeclared reference to 'x'"):
        compile("[1].all(x, .x == 1)", newer)
    with pytest.raises(CelCompileError, match=r"reference to undefined type: \.int"):
        compile("[1].all(int, .type(1) == .int)", newer)
    compile("[1].all(x, .x == 1)")
    compile("[1].all(device, .device.driver == '')", newer)
    with pytest.raises(CelCompileError, match="type 'int' does not support field selection"):
        compile("[1].all(device, .device.driver == '')")


def test_features_decide_what_is_declared():
    with pytest.raises(CelCompileError, match="undefined field 'allowMultipleAllocations'"):
        compile("device.allowMultipleAllocations", Features(consumable_capacity=False))
    with pytest.raises(CelCompileError, match="undeclared reference to 'includes'"):
        compile("device.attributes['a'].b.includes(1)", SCALARS)
    with pytest.raises(CelCompileError, match="expression of type 'any' cannot be range"):
        compile("device.attributes['a'].b.exists(x, x == 1)", SCALARS)
    with pytest.raises(CelCompileError, match="must evaluate to bool or the unknown type, not dyn"):
        compile("dyn(1)", SCALARS)
