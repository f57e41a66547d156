"""Random CEL selectors: some select, some fail on some devices, and some do not compile."""

from __future__ import annotations

from tests.cluster.differential.generate.devices import MODELS
from tests.cluster.differential.generate.draw import Draw


def selector(draw: Draw, driver: str) -> str:
    """Returns an expression for devices of a driver."""
    if draw.has("broken-cel", 0.3):
        return _broken(draw, driver)
    return _list_expression(draw, driver) if draw.has("lists", 0.3) else _sound(draw, driver)


def derivation(draw: Draw, driver: str) -> str:
    """Returns an expression for an attribute: a value, a list of values, and sometimes neither."""
    attributes = f'device.attributes["{driver}"]'
    if draw.chance(0.12):
        return draw.one(f"{attributes}.absent", "1.5", f"[{attributes}.model, {attributes}.numa]", "dyn([1, 'a'])")
    if draw.chance(0.06):
        return draw.one("{'a': 1}", "quantity('1')", "device.", "b'a'", "[[1]]", "1u", "null")
    return draw.one(
        f"{attributes}.numa",
        f"{attributes}.model",
        f"{attributes}.numa / 2",
        f"{attributes}.model.startsWith('a')",
        f'"x" + {attributes}.model.substring(0, 1)',
        f"[{attributes}.numa, {attributes}.numa + 1]",
        f"{attributes}.version",
        "semver('1.0.0')",
        f'device.capacity["{driver}"].memory.asInteger() / 20000000000',
        f'{attributes}.?model.orValue("none")',
        "[]",
        "device.driver",
    )


def _sound(draw: Draw, driver: str) -> str:
    attributes, capacity = f'device.attributes["{driver}"]', f'device.capacity["{driver}"]'
    model, numa = draw.one(*MODELS), draw.number(0, 1)
    size, version = draw.one("10Gi", "20Gi", "40Gi"), draw.one("1.0.0", "1.2.0", "2.0.0")
    return draw.one(
        f'device.driver == "{driver}"',
        "true",
        f'{attributes}.model == "{model}"',
        f'{attributes}.model != "{model}"',
        f'{attributes}["model"] in ["{model}", "{draw.one(*MODELS)}"]',
        f'"model" in {attributes} && {attributes}.model.startsWith("{model[0]}")',
        f"has({attributes}.ready) && {attributes}.ready",
        f"{attributes}.numa == {numa}",
        f"{attributes}.numa < {numa + 1} || {attributes}.model == '{model}'",
        f'{capacity}.memory.compareTo(quantity("{size}")) >= 0',
        f'{capacity}.memory.isGreaterThan(quantity("{size}"))',
        f'{capacity}.cores == quantity("{draw.one("4", "4000m", "1500m")}")',
        f"{capacity}.cores.sign() > 0 && {capacity}.cores.asApproximateFloat() < 5.0",
        f'{attributes}.version.isGreaterThan(semver("{version}"))',
        f"{attributes}.version.major() == {draw.number(1, 2)}",
        f'device.attributes["resource.kubernetes.io"].pcieRoot.matches("^pci0000:{draw.one("0", "4")}")',
        f'cel.bind(dev, {attributes}, dev.numa == {numa} && dev.model in ["a100", "h100"])',
        f"{attributes}.exists(name, name.startsWith('mod'))",
        f'{attributes}.?model.orValue("none") == "{model}"',
        f'!("example.com" in device.attributes) && size({attributes}) >= {draw.number(2, 4)}',
        "device.allowMultipleAllocations",
        "!device.allowMultipleAllocations",
    )


def _list_expression(draw: Draw, driver: str) -> str:
    tags = f'device.attributes["{driver}"].tags'
    return draw.one(
        f'{tags}.includes("{draw.one("x", "y")}")',
        f"{tags}.includes({draw.number(1, 3)})",
        f'"{draw.one("x", "z")}" in {tags}',
        f"{tags}.size() > 1",
        f"{tags}.exists(tag, tag == 'y')",
        f"device.attributes['{driver}'].numa.includes(0)",
    )


def _broken(draw: Draw, driver: str) -> str:
    attributes = f'device.attributes["{driver}"]'
    fails = (
        f'{attributes}.absent == "x"',
        f'{attributes}.model.isGreaterThan(semver("1.0.0"))',
        f'{attributes}.numa == "zero"',
        f"{attributes}.numa / 0 == 1",
        f"{attributes}.model",
        f'device.capacity["{driver}"].absent.sign() > 0',
        f'{attributes}.model.matches("(")',
        f"{attributes}.all(name, {attributes}[name] == 1)",
    )
    wrong = (
        "device.driver",
        "device.driver ==",
        "device.driver == 1",
        "device.absent == 1",
        "unknown(device)",
        f'{attributes}.model == "x" &&',
        "".join(f"{attributes}.exists({name}, " for name in "abcd") + "a + b == c + d))))",
    )
    return draw.one(*fails) if draw.chance(0.75) else draw.one(*wrong)
