"""Compiled selectors and derived attributes: their limits, errors and results."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dra_sdk import cel
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
    types,
)
from dra_sdk.cel.checker import check, check_any
from dra_sdk.cel.environment import Shape, object_environment
from dra_sdk.cel.expression import ObjectExpression
from dra_sdk.model.device import Version

EXPENSIVE = "lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0))"

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
        ("dyn([1u])", "a list attribute has items of one scalar type"),
        ("[$.model, $.numa]", "a list attribute has items of one scalar type, this has a int"),
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


def test_limits_of_derived_attributes() -> None:
    with pytest.raises(CelTooLongError):
        compile_derived(" " * MAX_LENGTH + "1")
    with pytest.raises(CelCostError):
        compile_derived(f'device.attributes["{DRIVER}"].model').attribute(DEVICE, limit=1)
    compile_derived("1").check_cost()
    with pytest.raises(CelTooCostlyError, match="the limit is 1"):
        compile_derived(f'device.attributes["{DRIVER}"].model').check_cost(1)


def test_derived_attributes_are_compiled_once() -> None:
    assert compile_derived("1", Features()) is compile_derived("1", Features())


def test_compiled_once():
    assert cel.compile("1 == 1") is cel.compile("1 == 1")
    assert cel.compile("1 == 1") is not cel.compile("1 == 1", cel.Features(list_type_attributes=False))


def test_length_is_limited_in_bytes():
    assert cel.compile("true".ljust(cel.MAX_LENGTH)).max_cost == 0
    with pytest.raises(cel.CelTooLongError, match="has 10241 bytes, at most 10240 are allowed"):
        cel.compile("true".ljust(cel.MAX_LENGTH + 1))
    with pytest.raises(cel.CelTooLongError):
        cel.compile("'" + "é" * 5200 + "' != ''")


def test_estimate_above_the_limit():
    selector = cel.compile(EXPENSIVE)
    with pytest.raises(cel.CelTooCostlyError, match="too complex: costs up to 8016012, the limit is 1000000"):
        selector.check_cost()
    cel.compile("device.driver == 'a'").check_cost()
    with pytest.raises(cel.CelTooCostlyError):
        cel.compile("device.driver == 'a'").check_cost(limit=1)


def test_an_expensive_evaluation_is_stopped(view: cel.DeviceView):
    with pytest.raises(cel.CelCostError, match="actual cost limit exceeded"):
        cel.compile(EXPENSIVE).matches(view)
    with pytest.raises(cel.CelCostError):
        cel.compile("device.driver == 'a' || true").evaluate(view, limit=2)
    assert cel.compile("device.driver == 'a' || true").evaluate(view, limit=3) == (True, 3)


def test_nothing_absorbs_the_limit(view: cel.DeviceView):
    with pytest.raises(cel.CelCostError):
        cel.compile(f"{EXPENSIVE} || true").evaluate(view, limit=10_000)


def test_one_selector_in_many_threads(view: cel.DeviceView):
    selector = cel.compile("cel.bind(n, device.attributes['gpu.example.com'].ports, n.map(x, x * 2).sum() == 12)")
    wanted = selector.evaluate(view)
    with ThreadPoolExecutor(8) as pool:
        evaluations = list(pool.map(lambda _: selector.evaluate(view), range(400)))
    assert wanted.match
    assert set(evaluations) == {wanted}


def run(code: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True, check=True)


def test_a_pattern_loads_its_library_and_nothing_else_does():
    code = (
        "import sys; from dra_sdk import cel; cel.compile('device.driver == \"a\"'); before = 're2' in sys.modules; "
        "cel.compile('device.driver.matches(\"a\")'); print(before, 're2' in sys.modules)"
    )
    done = run(code)
    assert done.stdout.split() == ["False", "True"]
    assert done.stderr == ""


WITHOUT_RE2 = """
import sys
sys.modules["re2"] = None  # makes `import re2` fail
from dra_sdk import cel
view = cel.DeviceView("d.example.com", {"s": "a"})
print(cel.compile("device.driver == 'd.example.com'").matches(view))
for expression in ("device.driver.matches('a')", "device.driver.find('a') == ''"):
    try:
        cel.compile(expression)
    except cel.CelPackageError as error:
        print(error)
try:
    cel.compile("device.driver.matches(device.attributes['d.example.com'].s) || true").matches(view)
except cel.CelPackageError as error:
    print(error.problem)
"""


def test_without_its_library_only_patterns_are_refused_with_the_line_to_type():
    sentence = "regular expressions need the package google-re2, which is not installed: pip install google-re2"
    lines = run(WITHOUT_RE2).stdout.splitlines()
    assert lines[0] == "True"
    assert lines[1] == f"{sentence} (CEL expression \"device.driver.matches('a')\")"
    assert lines[2].startswith(sentence)
    assert lines[3] == sentence, "no || absorbs it"
    assert len(lines) == 4


KNOB = types.Type(types.TypeKind.STRUCT, "Knob")
KNOBS = object_environment(
    "self", KNOB, Shape(0, {"turns": Shape(1), "text": Shape(20)}), {KNOB: {"turns": types.INT, "text": types.STRING}}
)


def test_an_expression_about_an_object_has_its_fields_and_sizes():
    condition = ObjectExpression("self.turns > 1 && self.text.startsWith('a')", KNOBS, check)
    assert condition.value({"turns": 2, "text": "ab"}) is True
    assert condition.value({"turns": 2, "text": "b"}) is False
    assert condition.max_cost == 6
    assert ObjectExpression("self.text.contains('a')", KNOBS, check).max_cost == 4  # of 20 characters
    with pytest.raises(cel.CelRuntimeError, match="no such key: turns"):
        condition.value({"text": "a"})
    with pytest.raises(cel.CelCompileError, match="undefined field 'turn'"):
        ObjectExpression("self.turn > 1", KNOBS, check)
    with pytest.raises(cel.CelCompileError, match="undeclared reference to 'device'"):
        ObjectExpression("device.driver == ''", KNOBS, check)
    with pytest.raises(cel.CelCompileError, match="must evaluate to bool or the unknown type, not int"):
        ObjectExpression("self.turns", KNOBS, check)


def test_the_type_of_a_field_is_not_believed_when_an_expression_runs():
    with pytest.raises(cel.CelRuntimeError, match="no such overload"):
        ObjectExpression("self.turns + 1 > 1", KNOBS, check).value({"turns": "one"})


def test_an_expression_about_an_object_may_make_another_one():
    made = ObjectExpression('{"text": self.text, ?"more": self.?text}', KNOBS, check_any)
    assert made.value({"text": "a"}) == {"text": "a", "more": "a"}
