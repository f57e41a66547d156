from __future__ import annotations

import pytest

from dra_sdk import cel
from dra_sdk.tools.scheduling.allocator import DeviceId, SelectorError
from dra_sdk.tools.scheduling.allocator.devices import Contents
from dra_sdk.tools.scheduling.allocator.features import Features
from dra_sdk.tools.scheduling.allocator.requests import Request, parse
from dra_sdk.tools.scheduling.allocator.selectors import Selectors
from tests.tools.scheduling.allocator.build import DRIVER, claim, device, device_class, request

ID = DeviceId(DRIVER, "n1", "gpu-0")
MODEL = 'device.attributes["gpu.example.com"].model == "a100"'


def asked(*expressions: str) -> Request:
    plan = parse(claim(request("r", *expressions)), {"gpu": device_class()}, Features())
    return next(iter(plan.requests))


@pytest.fixture
def evaluations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The expressions that are evaluated, one entry each time."""
    found: list[str] = []
    original = cel.Selector.matches

    def matches(self: cel.Selector, view: cel.DeviceView) -> bool:
        found.append(self.expression)
        return original(self, view)

    monkeypatch.setattr(cel.Selector, "matches", matches)
    return found


def test_an_expression_is_evaluated_once_for_devices_that_are_equal_where_it_looks(evaluations: list[str]) -> None:
    contents, selectors = Contents(), Selectors(cel.Features())
    for index in range(10):
        content = contents.of(DRIVER, device(f"gpu-{index}", model="a100", serial=f"s{index}"))
        assert selectors.of(asked(MODEL)).selects(content, asked(MODEL), ID)
    assert evaluations == [MODEL]


def test_the_first_selector_that_is_false_decides(evaluations: list[str]) -> None:
    wanted = asked("1 == 2", "device.nothing()")
    assert not Selectors(cel.Features()).of(wanted).selects(Contents().of(DRIVER, device("a")), wanted, ID)
    assert evaluations == ["1 == 2"]


def test_an_error_is_raised_again_for_every_device() -> None:
    selectors, wanted = Selectors(cel.Features()), asked(MODEL)
    for _ in range(2):
        with pytest.raises(SelectorError, match="no such key: model"):
            selectors.of(wanted).selects(Contents().of(DRIVER, device("a")), wanted, ID)


def test_equal_requests_share_what_is_known() -> None:
    selectors = Selectors(cel.Features())
    assert selectors.of(asked(MODEL)) is selectors.of(asked(MODEL))


def test_verdicts_hold_errors() -> None:
    selectors, content = Selectors(cel.Features()), Contents().of(DRIVER, device("a"))
    assert isinstance(selectors.expression("nothing").verdict(content), cel.CelCompileError)
    assert isinstance(selectors.expression(MODEL).verdict(content), cel.CelRuntimeError)
    assert selectors.expression("true").verdict(content) is True
