from __future__ import annotations

import random
from typing import Any

import pytest

from dra_sdk import cel
from dra_sdk.tools.scheduling.allocator import DeviceId, SelectorError
from dra_sdk.tools.scheduling.allocator.claim_requests import ParsedRequest, parse_claim
from dra_sdk.tools.scheduling.allocator.devices import ContentCache
from dra_sdk.tools.scheduling.allocator.features import SchedulerFeatures
from dra_sdk.tools.scheduling.allocator.selectors import EquivalentContents, FieldRef, SelectorCache, referenced_fields
from tests.tools.scheduling.allocator.build import DRIVER, claim, device, device_class, request

ID = DeviceId(DRIVER, "n1", "gpu-0")
MODEL = 'device.attributes["gpu.example.com"].model == "a100"'


def request_with(*expressions: str) -> ParsedRequest:
    parsed = parse_claim(claim(request("r", *expressions)), {"gpu": device_class()}, SchedulerFeatures())
    return next(iter(parsed.requests))


@pytest.fixture
def evaluations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The expressions that are evaluated, one entry each time."""
    listed: list[str] = []
    original = cel.Selector.matches

    def matches(self: cel.Selector, view: cel.DeviceView) -> bool:
        listed.append(self.expression)
        return original(self, view)

    monkeypatch.setattr(cel.Selector, "matches", matches)
    return listed


def test_an_expression_is_evaluated_once_for_devices_with_equal_fields(evaluations: list[str]) -> None:
    contents, selectors = ContentCache(), SelectorCache(cel.Features())
    for index in range(10):
        content = contents.get(DRIVER, device(f"gpu-{index}", model="a100", serial=f"s{index}"))
        assert selectors.for_request(request_with(MODEL)).selects(content, request_with(MODEL), ID)
    assert evaluations == [MODEL]


def test_the_first_selector_that_is_false_decides(evaluations: list[str]) -> None:
    wanted = request_with("1 == 2", "device.nothing()")
    assert (
        not SelectorCache(cel.Features())
        .for_request(wanted)
        .selects(ContentCache().get(DRIVER, device("a")), wanted, ID)
    )
    assert evaluations == ["1 == 2"]


def test_an_error_is_raised_again_for_every_device() -> None:
    selectors, wanted = SelectorCache(cel.Features()), request_with(MODEL)
    for _ in range(2):
        with pytest.raises(SelectorError, match="no such key: model"):
            selectors.for_request(wanted).selects(ContentCache().get(DRIVER, device("a")), wanted, ID)


def test_equal_requests_share_their_results() -> None:
    selectors = SelectorCache(cel.Features())
    assert selectors.for_request(request_with(MODEL)) is selectors.for_request(request_with(MODEL))


def test_errors_are_results_too() -> None:
    selectors, content = SelectorCache(cel.Features()), ContentCache().get(DRIVER, device("a"))
    assert isinstance(selectors.expression("nothing").verdict(content), cel.CelCompileError)
    assert isinstance(selectors.expression(MODEL).verdict(content), cel.CelRuntimeError)
    assert selectors.expression("true").verdict(content) is True


A = f'device.attributes["{DRIVER}"]'
C = f'device.capacity["{DRIVER}"]'


def own(*names: str, kind: str = "attributes") -> tuple[FieldRef, ...]:
    return tuple((kind, DRIVER, name) for name in names)


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("true", ()),
        ('device.driver == "x" && device.allowMultipleAllocations', ()),
        (f'{A}.model == "x" || {A}["index"] > 1', own("index", "model")),
        (f"{C}.memory.compareTo(quantity('1Gi')) > 0", own("memory", kind="capacity")),
        (f"has({A}.model) && {A}.?index.orValue(1) == 1", own("index", "model")),
        (f'{A}[?"model"].hasValue()', own("model")),
        (f"cel.bind(mine, {A}, mine.model == mine.index)", own("index", "model")),
        ("cel.bind(device, 1, device == 1)", ()),
        (f"{A}.links.exists(link, link == device.driver)", own("links")),
        (f"{A}.links[0] == 'a'", own("links")),
        (f"{A}.?index.optMap(index, index + 1).orValue(0) > 1", own("index")),
        (f"[1].exists(device, device == 1) && {A}.model == 'x'", own("model")),
        (f"[1].exists(device, .{A}.model == 'x')", own("model")),
    ],
)
def test_expressions_that_name_the_fields_they_read(expression: str, found: tuple[FieldRef, ...]) -> None:
    assert referenced_fields(expression) == found


@pytest.mark.parametrize(
    "expression",
    [
        f'"{DRIVER}" in device.attributes',
        f"{A}.all(name, true)",
        f"size({A}) > 1",
        'device.attributes[device.driver].model == "x"',
        f"cel.bind(all, device.attributes, all[device.driver].model == {A}.model)",
        f'{A}["mo" + "del"] == "x"',
        "device == device",
        "no expression(",
    ],
)
def test_expressions_that_may_read_any_field(expression: str) -> None:
    assert referenced_fields(expression) is None


def representatives(fields: tuple[FieldRef, ...] | None, *devices: dict[str, Any], driver: str = DRIVER) -> int:
    contents, equivalent = ContentCache(), EquivalentContents(fields)
    return len({equivalent.representative_of(contents.get(driver, raw_device)) for raw_device in devices})


def test_one_device_represents_those_with_equal_referenced_fields() -> None:
    one, other = device("a", model="x", serial="1"), device("b", model="x", serial="2")
    assert representatives(own("model"), one, other) == 1
    assert representatives(own("model", "serial"), one, other) == 2
    assert representatives(None, one, other) == 2


def test_values_of_different_types_are_different() -> None:
    assert representatives(own("flag"), device("a", flag=True), device("b", flag=1), device("c", flag="1")) == 3


def test_an_invalid_device_represents_only_itself() -> None:
    broken = [{"name": name, "attributes": {"serial": {"string": name}, "v": {"version": "?"}}} for name in "ab"]
    assert representatives(own("model"), *broken) == 2
    both = [
        {"name": name, "attributes": {"model": {"string": name}, f"{DRIVER}/model": {"string": "x"}}} for name in "ab"
    ]
    assert representatives(own("model"), *both) == 2


def test_cached_results_equal_those_of_the_expression() -> None:
    draw = random.Random(7)
    expressions = [
        f'{A}.model == "x"',
        f"{A}.?index.orValue(0) > 1",
        f"has({A}.model) ? {A}.index == 1 : {C}.memory.compareTo(quantity('2')) > 0",
        f'{A}.version.isLessThan(semver("2.0.0"))',
        "device.allowMultipleAllocations",
        f'device.attributes["std.example.com"].root == "r" && {A}.serial != "s1"',
        f"{A}.exists(name, name == 'index')",
    ]
    contents, selectors = ContentCache(), SelectorCache(cel.Features())
    for index in range(300):
        raw = drawn(draw, index)
        content = contents.get(draw.choice([DRIVER, "other.example.com"]), raw)
        for text in expressions:
            assert str(selectors.expression(text).verdict(content)) == uncached(text, raw, content.driver)


def uncached(text: str, raw: dict[str, Any], driver: str) -> str:
    """The result of an expression for a device, evaluated without a cache."""
    try:
        return str(cel.compile(text).matches(cel.DeviceView.from_json(raw, driver)))
    except cel.CelError as error:
        return str(error)


def drawn(draw: random.Random, index: int) -> dict[str, Any]:
    choices: dict[str, list[dict[str, Any]]] = {
        "model": [{"string": "x"}, {"string": "y"}, {"int": 1}],
        "index": [{"int": 1}, {"int": 2}],
        "version": [{"version": "1.0.0"}, {"version": "3.0.0"}, {"version": "broken"}],
        f"{DRIVER}/model": [{"string": "x"}],
        "std.example.com/root": [{"string": "r"}],
        "serial": [{"string": f"s{index}"}],
        "list": [{"strings": ["a"]}],
    }
    rare = {f"{DRIVER}/model", "list"}
    attributes = {
        name: draw.choice(values) for name, values in choices.items() if draw.random() < (0.1 if name in rare else 0.7)
    }
    raw: dict[str, Any] = {"name": f"d{index}", "attributes": attributes}
    if draw.random() < 0.7:
        raw["capacity"] = {"memory": {"value": draw.choice(["1", "4", "4Gi"])}}
    if draw.random() < 0.3:
        raw["allowMultipleAllocations"] = True
    return raw
