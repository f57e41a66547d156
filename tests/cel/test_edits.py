from __future__ import annotations

import pytest

from dra_sdk import cel
from dra_sdk.cel.clauses import clauses
from dra_sdk.cel.edits import compared_with, without
from dra_sdk.cel.values import Semver
from dra_sdk.model.quantity import Quantity

OWN = 'device.attributes["gpu.example.com"]'
MEMORY = 'device.capacity["gpu.example.com"].memory'


def test_without_a_clause():
    expression = f"cel.bind(d, {OWN}, d.index == 9 && // nine\n d.healthy)"
    first, second = clauses(expression)
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
        (f"{OWN}.index >= 7", -2, ("7", "-2")),
    ],
)
def test_another_constant(expression: str, value: object, changed: tuple[str, str]):
    (clause,) = clauses(expression)
    edit = compared_with(expression, clause, value)
    assert edit is not None
    assert (edit.before, edit.after) == changed
    cel.compile(edit.expression)
    assert edit.expression == expression.replace(*changed).replace("'500'", '"500"')


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (f'{OWN}.model == "H100" || {OWN}.model == "B200"', "A100"),
        (f'{OWN}.model == "H100"', 3),
        (f"{OWN}.healthy == false", True),
        (f"{OWN}.index == 3", True),
        (f'{OWN}.model.matches("^H")', "A100"),
        (f'{MEMORY}.compareTo(quantity("80Gi")) >= 0', 3),
        (f'{OWN}.model == "H100"', "H100"),
        ("device.allowMultipleAllocations", True),
    ],
)
def test_nothing_to_change(expression: str, value: object):
    (clause,) = clauses(expression)
    assert compared_with(expression, clause, value) is None


def test_only_within_the_clause():
    expression = f'cel.bind(d, {OWN}, d.model == "H100" && d.uuid == "H100")'
    edit = compared_with(expression, clauses(expression)[1], "GPU-1")
    assert edit is not None
    assert edit.expression == f'cel.bind(d, {OWN}, d.model == "H100" && d.uuid == "GPU-1")'
