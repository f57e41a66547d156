from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.parametrize(
    "expression",
    [
        "'%s %d'.format([@.model, @.index]) == 'A100 PCIe 3' && '100%%'.format([]) == '100%'",
        "'é%s'.format(['ü']) == 'éü'",
        "'%s'.format([[1, 2]]) == '[1, 2]'",
        "'%s'.format([{'b': 1, 'a': [true, null]}]) == '{\"a\":[true, null], \"b\":1}'",
        "'%s'.format([[1.0, 1234567.5]]) == '[1.000000, 1234567.500000]' && '%s'.format([1.5]) == '1.5'",
        "'%s'.format([[duration('1s'), timestamp(0)]]) == '[duration(\"1s\"), timestamp(\"1970-01-01T00:00:00Z\")]'",
        "'%s'.format([duration('1s')]) == '1s' && '%s'.format([type(1)]) == 'int' && '%s'.format([null]) == 'null'",
        "'%f'.format([1234567.125]) == '1,234,567.125000' && '%.2f'.format([-1234.5]) == '-1,234.50'",
        "'%.0f'.format([2.5]) == '2'",
        "'%e'.format([1052.0]) == '1.052000\\u00d710⁰³' && '%.3e'.format([-0.00001234]) == '-1.234000\\u00d710⁻⁰⁵'",
        "'%f'.format(['NaN']) == 'NaN' && '%f'.format(['-Infinity']) == '-∞' && '%e'.format(['NaN']) == '   NaN'",
        "'%x%X'.format([-255, 255u]) == '-ffFF' && '%x'.format(['é']) == 'c3a9' && '%b%o'.format([true, -8]) == '1-10'",
        "strings.quote(@.model) == '\"A100 PCIe\"'",
    ],
)
def test_true(holds: Callable[[str], bool], expression: str):
    assert holds(expression)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("'%d'.format([@.model]) == ''", "decimal clause can only be used on integers, was given string"),
        ("(@.model + '%').format([1]) == ''", "unexpected end of string"),
        ("(@.model + '%z').format([1]) == ''", 'unrecognized formatting clause "z"'),
        ("(@.model + '%.f').format([1.0]) == ''", "'' is no integer of 64 bits"),
        ("(@.model + '%.3').format([1.0]) == ''", "could not find end of precision specifier"),
        ("(@.model + '%s%s').format([1]) == ''", "index 1 out of range"),
        ("'%f'.format([@.model]) == ''", "fixed-point clause can only be used on doubles, was given string"),
        ("(@.model + '%.99999999f').format([1.0]) == ''", "too large"),
        ("'%s'.format([dyn(optional.of(1))]) == ''", "was given optional_type"),
        ("'%s'.format([{1.5: 1}]) == ''", "no formatting function for map key of type double"),
    ],
)
def test_errors(failure: Callable[[str], str], expression: str, problem: str):
    assert problem in failure(expression)
