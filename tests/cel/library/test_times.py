from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.parametrize(
    "expression",
    [
        "timestamp('2020-02-29T12:30:15.5+02:00') == timestamp('2020-02-29T10:30:15.500Z')",
        "string(timestamp('2020-02-29T12:30:15.500+02:00')) == '2020-02-29T12:30:15.5+02:00'",
        "string(timestamp(0)) == '1970-01-01T00:00:00Z' && int(timestamp('1969-12-31T23:59:59.5Z')) == -1",
        "timestamp('2020-01-01T1:00:00,5Z').getHours() == 1 && timestamp('2020-01-01T00:00:00+02:00').getHours() == 22",
        "timestamp(0).getFullYear() == 1970 && timestamp(0).getMonth() == 0 && timestamp(0).getDate() == 1",
        "timestamp(0).getDayOfMonth() == 0 && timestamp(0).getDayOfWeek() == 4 && timestamp(0).getDayOfYear() == 0",
        "timestamp('2020-12-31T23:59:58.125Z').getDayOfYear() == 365 && timestamp(59).getSeconds() == 59",
        "timestamp('2020-12-31T23:59:58.125Z').getMinutes() == 59",
        "timestamp('2020-12-31T23:59:58.125Z').getMilliseconds() == 125",
        "timestamp(0).getHours('+05:30') == 5 && timestamp(0).getMinutes('+05:30') == 30",
        "timestamp(0).getHours('-01:30') == 22",
        "timestamp('2020-07-01T00:00:00Z').getHours('Europe/Berlin') == 2 && timestamp(0).getHours('') == 0",
        "timestamp('0001-01-01T00:00:00Z').getFullYear('-01:00') == 0",
        "timestamp('9999-12-31T23:59:59Z').getFullYear('+01:00') == 10000",
        "duration('1h30m') == duration('5400s') && duration('.5s') == duration('500ms')",
        "duration('1us') == duration('1µs')",
        "duration('-1.5h').getHours() == -1 && duration('90s').getMinutes() == 1",
        "duration('1.5s').getMilliseconds() == 1500",
        "string(duration('1h')) == '3600s' && string(duration('1ns')) == '0.000000001s'",
        "string(duration('-0s')) == '0s'",
        "int(duration('5s')) == 5000000000 && duration('1s') + duration('1s') == duration('2s')",
        "timestamp(1) - timestamp(0) == duration('1s') && timestamp(1) - duration('1s') == timestamp(0)",
        "duration('1s') + timestamp(0) == timestamp(0) + duration('1s')",
        "duration('2s') - duration('3s') == duration('-1s')",
        "timestamp(0) < timestamp(1) && duration('2s') >= duration('1s') && timestamp(0) in [timestamp(0)]",
        "[timestamp(2), timestamp(1)].sort() == [timestamp(1), timestamp(2)]",
        "[duration('1s'), duration('2s')].sum() == duration('3s')",
        "dyn(timestamp(0)) != dyn(duration('0s')) && timestamp(@.index) == timestamp(3)",
    ],
)
def test_true(holds: Callable[[str], bool], expression: str):
    assert holds(expression)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("timestamp(@.model) == timestamp(0)", "type conversion error from 'string' to 'google.protobuf.Timestamp'"),
        ("timestamp('2021-02-29T00:00:0' + string(@.index) + 'Z') == timestamp(0)", "type conversion error"),
        ("duration(@.model) == duration('0s')", "type conversion error from 'string' to 'google.protobuf.Duration'"),
        ("duration(@.index) == duration('3s')", "type conversion error from 'int' to 'google.protobuf.Duration'"),
        ("timestamp(@.index * 1000000000000) == timestamp(0)", "timestamp overflow"),
        ("timestamp('9999-12-31T23:59:59Z') + duration('1s') > timestamp(0)", "timestamp overflow"),
        ("timestamp('9999-12-31T23:59:59Z') - timestamp(0) > duration('0s')", "integer overflow"),
        ("[duration('9223372036854775807ns'), duration('1ns')].sum() > duration('0s')", "integer overflow"),
        ("timestamp(0).getHours('Nowhere/X') == 0", "unknown time zone Nowhere/X"),
        ("timestamp(0).getHours('../etc') == 0", "invalid location name"),
        ("timestamp(0).getHours('a:b') == 0", "invalid offset 'a:b' from UTC"),
        ("@.model < duration('1s')", "no such overload"),
    ],
)
def test_errors(failure: Callable[[str], str], expression: str, problem: str):
    assert problem in failure(expression)
