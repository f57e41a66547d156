"""What can be wrong with a CEL expression, or with evaluating it.

```
DraError
└── CelError                 carries the expression
    ├── CelCompileError      the expression itself is wrong; carries line and column
    │   ├── CelUnknownFunctionError  a function that no release known here has
    │   ├── CelTooLongError  longer than the API allows
    │   └── CelTooCostlyError  its worst case costs more than the API allows
    ├── CelRuntimeError      the expression has no answer for this device
    │   └── CelCostError     the evaluation was stopped because it became too expensive
    └── CelPackageError      the expression needs a Python package that is not installed
```
"""

from __future__ import annotations

from dra_sdk.errors import DraError


class CelError(DraError):
    """Root of the errors of CEL expressions.

    expression: the source text.
    problem: one sentence that does not repeat the source text.
    """

    def __init__(self, expression: str, problem: str) -> None:
        self.expression = expression
        self.problem = problem
        super().__init__(f"{problem} (CEL expression {_shortened(expression)!r})")


class CelCompileError(CelError):
    """The expression cannot be compiled.

    line: the line of the problem, counted from 1.
    column: the column of the problem, counted from 1.
    """

    def __init__(self, expression: str, problem: str, *, line: int = 1, column: int = 1) -> None:
        self.line, self.column = line, column
        super().__init__(expression, f"line {line}, column {column}: {problem}")

    @classmethod
    def at(cls, expression: str, problem: str, offset: int) -> CelCompileError:
        """Make the error for a problem at an offset into the expression."""
        line, column = position(expression, offset)
        return cls(expression, problem, line=line, column=column)


class CelUnknownFunctionError(CelCompileError):
    """The expression calls a function that no release known here has; a later release may have it."""


class CelTooLongError(CelCompileError):
    """The expression is longer than the API server accepts."""


class CelTooCostlyError(CelCompileError):
    """The estimated worst case of the expression costs more than the API server accepts."""


class CelRuntimeError(CelError):
    """The expression has no answer for this device, for example because the device lacks an attribute."""


class CelCostError(CelRuntimeError):
    """The evaluation was stopped because it cost more than the scheduler allows."""


class CelPackageError(CelError):
    """The expression needs a Python package that is not installed; the message says how to install it."""


def position(expression: str, offset: int) -> tuple[int, int]:
    """Return the line and the column of an offset, both counted from 1."""
    before = expression[:offset]
    return before.count("\n") + 1, offset - before.rfind("\n")


def _shortened(text: str, limit: int = 120) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."
