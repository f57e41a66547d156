from __future__ import annotations

import pytest

from dra_sdk.cel import CelCompileError, CelCostError, CelError, CelRuntimeError, CelTooCostlyError, CelTooLongError
from dra_sdk.errors import DraError


def test_tree():
    assert issubclass(CelError, DraError)
    assert issubclass(CelTooLongError, CelCompileError)
    assert issubclass(CelTooCostlyError, CelCompileError)
    assert issubclass(CelCostError, CelRuntimeError)
    assert not issubclass(CelRuntimeError, CelCompileError)


@pytest.mark.parametrize(
    ("offset", "line", "column"), [(0, 1, 1), (4, 1, 5), (8, 2, 1), (11, 2, 4)], ids=["start", "same", "next", "later"]
)
def test_place(offset: int, line: int, column: int):
    error = CelCompileError.at("true &&\nfoo", "problem", offset)
    assert (error.line, error.column) == (line, column)
    assert str(error) == f"line {line}, column {column}: problem (CEL expression 'true && foo')"


def test_a_long_expression_is_shortened_in_the_message_only():
    error = CelRuntimeError("x" * 500, "problem")
    assert error.expression == "x" * 500
    assert len(str(error)) < 200
