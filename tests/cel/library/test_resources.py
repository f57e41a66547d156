from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.parametrize(
    "expression",
    [
        "quantity('1Gi') == quantity('1024Mi') && isQuantity('5m') && !isQuantity('five')",
        "#.memory.compareTo(quantity('80Gi')) == 0 && #.memory.compareTo(quantity('81Gi')) == -1",
        "sign(quantity('-1')) == -1 && sign(quantity('0')) == 0",
        "#.cores.isInteger() && #.cores.asInteger() == 108 && !quantity('1500m').isInteger()",
        "quantity('1500m').asApproximateFloat() == 1.5",
        "#.cores.add(quantity('2')).sub(10).asInteger() == 100 && #.cores.add(2).isGreaterThan(#.cores)",
        "semver('1.2.3') == @.driverVersion && isSemver('1.0.0-rc.1+5') && !isSemver('1.0') && !isSemver('v1.0.0')",
        "semver('v1', true) == semver('1.0.0') && semver('01.02', true).minor() == 2 && isSemver('v1.0', true)",
        "@.driverVersion.major() == 1 && @.driverVersion.minor() == 2 && @.driverVersion.patch() == 3",
        "semver('1.0.0-rc.1').isLessThan(semver('1.0.0')) && semver('1.0.0').compareTo(semver('0.9.0')) == 1",
        "optional.ofNonZeroValue(0) == optional.none() && optional.ofNonZeroValue('a').hasValue()",
        "!optional.ofNonZeroValue(duration('0s')).hasValue() && optional.ofNonZeroValue(timestamp(0)).hasValue()",
        "optional.unwrap([optional.of(1), optional.none()]) == [1] && [optional.of(1)].unwrapOpt() == [1]",
    ],
)
def test_true(holds: Callable[[str], bool], expression: str):
    assert holds(expression)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("quantity('1500m').asInteger() == 1", "cannot convert value to integer"),
        ("semver('1.0') == semver('1.0.0')", "is not a semantic version"),
        ("semver('1.0-rc', true) == semver('1.0.0')", "a short one cannot have"),
        ("@.driverVersion.isGreaterThan(quantity('1'))", "no such overload"),
        ("@.index.isGreaterThan(quantity('1'))", "no such overload"),
    ],
)
def test_errors(failure: Callable[[str], str], expression: str, problem: str):
    assert problem in failure(expression)
