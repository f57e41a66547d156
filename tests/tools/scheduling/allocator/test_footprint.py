from __future__ import annotations

import random
from typing import Any

import pytest

from dra_sdk import cel
from dra_sdk.tools.scheduling.allocator.devices import Contents
from dra_sdk.tools.scheduling.allocator.footprint import Footprint, Place, places
from dra_sdk.tools.scheduling.allocator.selectors import Selectors
from tests.tools.scheduling.allocator.build import DRIVER, device

A = f'device.attributes["{DRIVER}"]'
C = f'device.capacity["{DRIVER}"]'


def own(*names: str, kind: str = "attributes") -> tuple[Place, ...]:
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
def test_expressions_that_name_what_they_read(expression: str, found: tuple[Place, ...]) -> None:
    assert places(expression) == found


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
def test_expressions_that_may_look_at_everything(expression: str) -> None:
    assert places(expression) is None


def representatives(where: tuple[Place, ...] | None, *devices: dict[str, Any], driver: str = DRIVER) -> int:
    contents, footprint = Contents(), Footprint(where)
    return len({footprint.of(contents.of(driver, each)) for each in devices})


def test_devices_stand_for_those_that_are_equal_where_it_looks() -> None:
    one, other = device("a", model="x", serial="1"), device("b", model="x", serial="2")
    assert representatives(own("model"), one, other) == 1
    assert representatives(own("model", "serial"), one, other) == 2
    assert representatives(None, one, other) == 2


def test_kinds_of_values_are_told_apart() -> None:
    assert representatives(own("flag"), device("a", flag=True), device("b", flag=1), device("c", flag="1")) == 3


def test_what_makes_no_sense_stands_for_itself() -> None:
    broken = [{"name": name, "attributes": {"serial": {"string": name}, "v": {"version": "?"}}} for name in "ab"]
    assert representatives(own("model"), *broken) == 2
    both = [
        {"name": name, "attributes": {"model": {"string": name}, f"{DRIVER}/model": {"string": "x"}}} for name in "ab"
    ]
    assert representatives(own("model"), *both) == 2


def test_the_answers_are_those_of_the_expression_itself() -> None:
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
    contents, selectors = Contents(), Selectors(cel.Features())
    for index in range(300):
        raw = drawn(draw, index)
        content = contents.of(draw.choice([DRIVER, "other.example.com"]), raw)
        for text in expressions:
            assert str(selectors.expression(text).verdict(content)) == plainly(text, raw, content.driver)


def plainly(text: str, raw: dict[str, Any], driver: str) -> str:
    """What an expression says of a device when nothing is remembered."""
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
