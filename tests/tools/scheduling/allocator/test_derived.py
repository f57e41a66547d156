from __future__ import annotations

import re

import pytest

from dra_sdk import cel
from dra_sdk.tools.scheduling.allocator import AllocationError
from dra_sdk.tools.scheduling.allocator.derived import DerivedAttribute
from tests.tools.scheduling.allocator.build import DRIVER, a_slice, candidates, device

WHERE = "claim ns/c, request r: derived attribute example.com/x"


def derived(expression: str) -> DerivedAttribute:
    return DerivedAttribute(expression, cel.Features(), WHERE)


def test_it_is_worked_out_once_for_devices_that_are_alike() -> None:
    one, like, other = (each.device for each in candidates(a_slice(*(device(n, m=m) for n, m in ("ax", "bx", "cy")))))
    found = derived(f'device.attributes["{DRIVER}"].m + "!"')
    assert found.of(one) == {"string": "x!"}
    assert found.of(like) is found.of(one)
    assert found.of(other) == {"string": "y!"}


@pytest.mark.parametrize("expression", ["1.5", "device.absent", f'device.attributes["{DRIVER}"].absent'])
def test_an_expression_without_a_value_is_an_error(expression: str) -> None:
    (gpu,) = candidates(a_slice(device("a")))
    with pytest.raises(AllocationError, match=re.escape(f"{WHERE}, evaluated on device {DRIVER}/n1/a: ")):
        derived(expression).of(gpu.device)
