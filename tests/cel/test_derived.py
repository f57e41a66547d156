from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.cel import (
    MAX_LENGTH,
    CelCompileError,
    CelCostError,
    CelRuntimeError,
    CelTooCostlyError,
    CelTooLongError,
    DeviceView,
    Features,
    compile_derived,
)
from dra_sdk.model.device import Version

DRIVER = "gpu.example.com"
DEVICE = DeviceView(DRIVER, {"model": "a100", "numa": 1, "version": Version("1.2.3-rc.1+x"), "tags": ["a", "b"]})


def derived(expression: str) -> dict[str, Any]:
    return compile_derived(expression.replace("$", f'device.attributes["{DRIVER}"]')).attribute(DEVICE)


@pytest.mark.parametrize(
    ("expression", "attribute"),
    [
        ("$.model", {"string": "a100"}),
        ("$.numa * 2", {"int": 2}),
        ("$.numa == 1", {"bool": True}),
        ("$.version", {"version": "1.2.3-rc.1+x"}),
        ("semver('1.0.0')", {"version": "1.0.0"}),
        ("$.tags", {"strings": ["a", "b"]}),
        ("[$.numa, $.numa]", {"ints": [1, 1]}),
        ("[true]", {"bools": [True]}),
        ("[$.version]", {"versions": ["1.2.3-rc.1+x"]}),
        ("[]", {"strings": []}),
    ],
)
def test_what_an_attribute_can_be(expression: str, attribute: dict[str, Any]) -> None:
    assert derived(expression) == attribute


@pytest.mark.parametrize(
    ("expression", "kind"),
    [("1.5", "double"), ("1u", "uint"), ("b'a'", "bytes"), ("null", "null_type"), ("[[1]]", "list(list(int))")],
)
def test_what_it_cannot_be(expression: str, kind: str) -> None:
    with pytest.raises(CelCompileError) as caught:
        derived(expression)
    assert f"must evaluate to a string, int, bool or semver or to a list of such, not {kind}" in str(caught.value)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("dyn(1.5)", "an attribute cannot be a double"),
        ("dyn(1u)", "an attribute cannot be a uint"),
        ("dyn([1u])", "a list of an attribute has items of one scalar type"),
        ("[$.model, $.numa]", "a list of an attribute has items of one scalar type, this has a int"),
        ("$.absent", "absent"),
    ],
)
def test_what_shows_only_with_a_device(expression: str, problem: str) -> None:
    with pytest.raises(CelRuntimeError) as caught:
        derived(expression)
    assert problem in str(caught.value)


def test_lists_need_the_feature() -> None:
    with pytest.raises(CelCompileError, match="must evaluate to a string, int, bool or semver, not list"):
        compile_derived("[1]", Features(list_type_attributes=False))


def test_limits() -> None:
    with pytest.raises(CelTooLongError):
        compile_derived(" " * MAX_LENGTH + "1")
    with pytest.raises(CelCostError):
        compile_derived(f'device.attributes["{DRIVER}"].model').attribute(DEVICE, limit=1)
    compile_derived("1").check_cost()
    with pytest.raises(CelTooCostlyError, match="the limit is 1"):
        compile_derived(f'device.attributes["{DRIVER}"].model').check_cost(1)


def test_expressions_are_compiled_once() -> None:
    assert compile_derived("1", Features()) is compile_derived("1", Features())
