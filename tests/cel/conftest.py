"""A device to evaluate expressions on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dra_sdk import cel
from dra_sdk.model.device import Device, Version

DEVICE = Device(
    "gpu-0",
    attributes={
        "index": 3,
        "model": "A100 PCIe",
        "healthy": True,
        "driverVersion": Version("1.2.3"),
        "other.example.com/rack": "r7",
        "links": ["nv0", "nv1"],
        "ports": [3, 1, 2],
        "address": "10.1.2.3",
    },
    capacity={"memory": "80Gi", "cores": 108},
)


@pytest.fixture
def view() -> cel.DeviceView:
    return cel.DeviceView.of(DEVICE, "gpu.example.com")


@pytest.fixture
def evaluate(view: cel.DeviceView) -> Callable[[str], cel.Evaluation]:
    """Evaluate an expression; `@` stands for the device's own attributes, `#` for its capacities."""

    def run(expression: str) -> cel.Evaluation:
        long = expression.replace("@", 'device.attributes["gpu.example.com"]')
        return cel.compile(long.replace("#", 'device.capacity["gpu.example.com"]')).evaluate(view)

    return run


@pytest.fixture
def holds(evaluate: Callable[[str], cel.Evaluation]) -> Callable[[str], bool]:
    """Whether an expression is true of the device."""
    return lambda expression: evaluate(expression).match


@pytest.fixture
def failure(evaluate: Callable[[str], cel.Evaluation]) -> Callable[[str], str]:
    """Why an expression has no answer for the device."""

    def run(expression: str) -> str:
        with pytest.raises(cel.CelRuntimeError) as caught:
            evaluate(expression)
        return caught.value.problem

    return run
