from __future__ import annotations

import json
from pathlib import Path

import pytest

from dra_sdk import cel
from dra_sdk.cel.conjuncts import compared_with, conjuncts, without
from dra_sdk.cel.values import Semver
from dra_sdk.model.quantity import Quantity

TABLE = json.loads(Path(__file__).with_name("observed.json").read_text())
VIEW = cel.DeviceView.from_json(TABLE["device"], TABLE["device"]["driver"])
RUNNING = [case["expression"] for case in TABLE["cases"] if "compileError" not in case]
OWN = 'device.attributes["gpu.example.com"]'
MEMORY = 'device.capacity["gpu.example.com"].memory'


def texts(expression: str) -> list[str]:
    return [conjunct.text for conjunct in conjuncts(expression)]


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("true", ["true"]),
        ("1 == 1 && 2 == 2", ["1 == 1", "2 == 2"]),
        ("(1 == 1 && (2 == 2)) && 3 == 3", ["1 == 1", "(2 == 2)", "3 == 3"]),
        ("((1 == 1 && 2 == 2))", ["1 == 1", "2 == 2"]),
        ("1 == 1 && 2 == 2 || 3 == 3", ["1 == 1 && 2 == 2 || 3 == 3"]),
        ("1 == 1 && (2 == 2 || 3 == 3)", ["1 == 1", "(2 == 2 || 3 == 3)"]),
        ("1 == 1 && 2 == 2 ? true : false", ["1 == 1 && 2 == 2 ? true : false"]),
        ("(1 == 1) == (2 == 2)", ["(1 == 1) == (2 == 2)"]),
        ("[1].all(x, x == 1 && x > 0) && true", ["[1].all(x, x == 1 && x > 0)", "true"]),
        ("'a && b' == '' && true", ["'a && b' == ''", "true"]),
        (f"{OWN}.?index.orValue(0) == 1 && {OWN}[?'a'].hasValue()",
         [f"{OWN}.?index.orValue(0) == 1", f"{OWN}[?'a'].hasValue()"]),
        ("cel.bind(x, 1 + 1, x == 2 && (x > 1 && x < 3)) && true", ["x == 2", "x > 1", "x < 3", "true"]),
        ("cel.bind(x, 1, cel.bind(y, x, x == y && y == 1))", ["x == y", "y == 1"]),
        ("cel.bind(x, 1, x == 1)", ["x == 1"]),
        ("1 ==\n  1 // first\n && 2 == 2 // last", ["1 == 1", "2 == 2"]),
        ("'a//b' == 'a' && '//' != \"//\" // '", ["'a//b' == 'a'", "'//' != \"//\""]),
    ],
)  # fmt: skip
def test_conjuncts(expression: str, found: list[str]):
    assert texts(expression) == found


def test_a_conjunct_keeps_its_place():
    expression = "cel.bind(d, device.driver,\n   d == 'a' &&\n  d == 'b')"
    first, second = conjuncts(expression)
    assert (first.line, first.column, second.line, second.column) == (2, 4, 3, 3)
    assert expression[second.offset : second.end] == second.text == "d == 'b'"
    assert second.expression == "cel.bind(d, device.driver,\n              \n  d == 'b')"


def holds(expression: str) -> bool | None:
    try:
        return cel.compile(expression).matches(VIEW)
    except cel.CelRuntimeError:
        return None


def together(expression: str) -> bool | None:
    held = [conjunct.holds(VIEW) for conjunct in conjuncts(expression)]
    return False if False in held else None if None in held else True


def test_conjuncts_together_say_what_the_expression_says():
    assert [expression for expression in RUNNING if together(expression) is not holds(expression)] == []


def test_explanation(view: cel.DeviceView):
    expression = f'{OWN}.healthy && {OWN}.model == "H100" && {OWN}.serial == "x"'
    healthy, model, serial = (conjunct.explain(view) for conjunct in conjuncts(expression))
    assert healthy.holds is True
    assert (model.holds, model.problem) == (False, "")
    assert [str(value) for value in model.fields] == ['model is "A100 PCIe"']
    assert serial.holds is None
    assert serial.problem == "no such key: serial"
    assert [str(value) for value in serial.fields] == ["serial is missing"]
    assert expression[serial.column - 1 :] == '.serial == "x"', "points at what is not there"


def test_the_innermost_part_without_a_value_is_pointed_at(view: cel.DeviceView):
    expression = f"true && (1 == 2 || cel.bind(d, {OWN}, d.index + d.ports[7] == 2))"
    assert conjuncts(expression)[1].explain(view).column == expression.index("[7]") + 1
    folded = f"{OWN}.ports.exists(p, p / 0 == 1)"
    assert conjuncts(folded)[0].explain(view).column == folded.index("(p, p") + 1


def test_cost(view: cel.DeviceView):
    cheap, dear = conjuncts("device.driver != 'a' && lists.range(1000).all(x, x >= 0)")
    assert (cheap.holds(view, limit=3), cheap.holds(view, limit=2)) == (True, None)
    assert (dear.holds(view), dear.holds(view, limit=100)) == (True, None)
    loop = "lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0))"
    explanation = conjuncts(loop)[0].explain(view)
    assert explanation.holds is None
    assert "actual cost limit exceeded" in explanation.problem


def test_what_compiles_only_as_a_whole_is_one_conjunct():
    scalars = cel.Features(list_type_attributes=False)
    mixed = "(true ? dyn(1 == 1) : dyn(2)) && true"
    assert len(conjuncts(mixed)) == 2
    assert [conjunct.text for conjunct in conjuncts(mixed, scalars)] == [mixed]


def test_a_wrong_expression_is_refused():
    with pytest.raises(cel.CelCompileError, match="undeclared reference"):
        conjuncts("true && nothing == 1")


def test_without_a_conjunct():
    expression = f"cel.bind(d, {OWN}, d.index == 9 && // nine\n d.healthy)"
    first, second = conjuncts(expression)
    assert without(expression, first).expression == f"cel.bind(d, {OWN}, true && // nine\n d.healthy)"
    assert without(expression, second).expression == f"cel.bind(d, {OWN}, d.index == 9 && // nine\n true)"
    assert without(expression, second).before == "d.healthy"


@pytest.mark.parametrize(
    ("expression", "value", "changed"),
    [
        (f'{MEMORY}.compareTo(quantity("80Gi")) >= 0', Quantity("40Gi"), ("80Gi", "40Gi")),
        (f"{MEMORY} == quantity('80Gi')", Quantity(500), ("80Gi", "500")),
        (f'{OWN}.driverVersion.isGreaterThan(semver("2.0.0"))', Semver("1.2.3"), ("2.0.0", "1.2.3")),
        (f'{OWN}.model == "H100"', "A100", ("H100", "A100")),
        (f'{OWN}["model"] == "H100"', 'a"b', ("H100", 'a\\"b')),
        (f"{OWN}.index >= -1", 3, ("-1", "3")),
        (f'{OWN}.model in ["H100"]', "A100", ("H100", "A100")),
        (f"{OWN}.index >= 7", -2, ("7", "-2")),
    ],
)
def test_another_constant(expression: str, value: object, changed: tuple[str, str]):
    (conjunct,) = conjuncts(expression)
    edit = compared_with(expression, conjunct, value)
    assert edit is not None
    assert (edit.before, edit.after) == changed
    cel.compile(edit.expression)
    assert edit.expression == expression.replace(*changed).replace("'500'", '"500"')


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (f'{OWN}.model == "H100" || {OWN}.model == "B200"', "A100"),
        (f'{OWN}.model == "H100"', 3),
        (f'{OWN}.model in ["H100", "B200"]', "A100"),
        (f'"H100" in {OWN}', "A100"),
        (f"{OWN}.healthy == false", True),
        (f"{OWN}.index == 3", True),
        (f'{OWN}.model.matches("^H")', "A100"),
        (f'{MEMORY}.compareTo(quantity("80Gi")) >= 0', 3),
        (f'{OWN}.model == "H100"', "H100"),
        ("device.allowMultipleAllocations", True),
    ],
)
def test_nothing_to_change(expression: str, value: object):
    (conjunct,) = conjuncts(expression)
    assert compared_with(expression, conjunct, value) is None


def test_only_within_the_conjunct():
    expression = f'cel.bind(d, {OWN}, d.model == "H100" && d.uuid == "H100")'
    edit = compared_with(expression, conjuncts(expression)[1], "GPU-1")
    assert edit is not None
    assert edit.expression == f'cel.bind(d, {OWN}, d.model == "H100" && d.uuid == "GPU-1")'
