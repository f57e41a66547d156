from __future__ import annotations

import pytest

from dra_sdk.cel import CelCostError
from dra_sdk.tools.scheduling.allocator import SelectorError
from tests.tools.scheduling.allocator.build import a_slice, allocated, allocator, claim, device, request


def error_of(expression: str) -> SelectorError:
    with pytest.raises(SelectorError) as caught:
        allocated(allocator(a_slice(device("gpu-0"))), claim(request("r", "true", expression)))
    return caught.value


def test_a_selector_that_fails_names_claim_request_index_and_device() -> None:
    error = error_of('device.attributes["gpu.example.com"].model == "x"')
    assert error.where == "claim ns/c, request r: selector #1"
    assert error.device == "gpu.example.com/n1/gpu-0"
    assert "no such key: model" in str(error)


def test_an_exceeded_cost_limit_is_recognized() -> None:
    long = f'"{"x" * 100}"'
    for name in "cba":
        long = f"cel.bind({name}, {long}, {' + '.join([name] * 10)})"
    assert isinstance(error_of(f"cel.bind(d, {long}, d.contains(d))").problem, CelCostError)


def test_an_invalid_expression_has_line_and_column() -> None:
    assert "line 1, column 1: undeclared reference" in str(error_of("colour == 3"))
