from __future__ import annotations

import json
from pathlib import Path

import pytest

from dra_sdk import cel
from dra_sdk.cel.clauses import clauses

TABLE = json.loads(Path(__file__).with_name("observed.json").read_text())
VIEW = cel.DeviceView.from_json(TABLE["device"], TABLE["device"]["driver"])
RUNNING = [each["expression"] for each in TABLE["cases"] if "compileError" not in each]
OWN = 'device.attributes["gpu.example.com"]'


def texts(expression: str) -> list[str]:
    return [each.text for each in clauses(expression)]


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


def test_a_clause_keeps_its_place():
    expression = "cel.bind(d, device.driver,\n   d == 'a' &&\n  d == 'b')"
    first, second = clauses(expression)
    assert (first.line, first.column, second.line, second.column) == (2, 4, 3, 3)
    assert expression[second.offset : second.end] == second.text == "d == 'b'"
    assert second.expression == "cel.bind(d, device.driver,\n              \n  d == 'b')"


@pytest.mark.parametrize("expression", RUNNING)
def test_clauses_together_say_what_the_expression_says(expression: str):
    found = [each.holds(VIEW) for each in clauses(expression)]
    together = False if False in found else None if None in found else True
    try:
        whole: bool | None = cel.compile(expression).matches(VIEW)
    except cel.CelRuntimeError:
        whole = None
    assert together is whole


def test_finding(view: cel.DeviceView):
    expression = f'{OWN}.healthy && {OWN}.model == "H100" && {OWN}.serial == "x"'
    healthy, model, serial = (each.find(view) for each in clauses(expression))
    assert healthy.holds is True
    assert (model.holds, model.problem) == (False, "")
    assert [str(each) for each in model.readings] == ['model is "A100 PCIe"']
    assert serial.holds is None
    assert serial.problem == "no such key: serial"
    assert [str(each) for each in serial.readings] == ["serial is missing"]
    assert expression[serial.column - 1 :] == '.serial == "x"', "points at what is not there"


def test_the_innermost_part_without_a_value_is_pointed_at(view: cel.DeviceView):
    expression = f"true && (1 == 2 || cel.bind(d, {OWN}, d.index + d.ports[7] == 2))"
    assert clauses(expression)[1].find(view).column == expression.index("[7]") + 1
    folded = f"{OWN}.ports.exists(p, p / 0 == 1)"
    assert clauses(folded)[0].find(view).column == folded.index("(p, p") + 1


def test_cost(view: cel.DeviceView):
    cheap, dear = clauses("device.driver != 'a' && lists.range(1000).all(x, x >= 0)")
    assert (cheap.holds(view, limit=3), cheap.holds(view, limit=2)) == (True, None)
    assert (dear.holds(view), dear.holds(view, limit=100)) == (True, None)
    loop = "lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0))"
    finding = clauses(loop)[0].find(view)
    assert finding.holds is None
    assert "actual cost limit exceeded" in finding.problem


def test_what_compiles_only_as_a_whole_is_one_clause():
    scalars = cel.Features(list_type_attributes=False)
    mixed = "(true ? dyn(1 == 1) : dyn(2)) && true"
    assert len(clauses(mixed)) == 2
    assert [each.text for each in clauses(mixed, scalars)] == [mixed]


def test_a_wrong_expression_is_refused():
    with pytest.raises(cel.CelCompileError, match="undeclared reference"):
        clauses("true && nothing == 1")
