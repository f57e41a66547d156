"""What can be wrong with a CEL expression, or with evaluating it.

```
DraError
└── CelError                 carries the expression
    ├── CelCompileError      the expression itself is wrong; carries line and column
    │   ├── CelTooLongError  longer than the API allows
    │   └── CelTooCostlyError  its worst case costs more than the API allows
    └── CelRuntimeError      this device cannot be decided
        └── CelCostError     the evaluation was stopped because it became too expensive
```
"""

from __future__ import annotations

from dra_sdk.errors import DraError


class CelError(DraError):
    """Root of the errors of CEL expressions; `expression` is the source text, `problem` one sentence without it."""

    def __init__(self, expression: str, problem: str) -> None:
        self.expression = expression
        self.problem = problem
        super().__init__(f"{problem} (CEL expression {_short(expression)!r})")


class CelCompileError(CelError):
    """The expression cannot be compiled; `line` and `column` count from 1 and are where the problem is."""

    def __init__(self, expression: str, problem: str, *, line: int = 1, column: int = 1) -> None:
        self.line, self.column = line, column
        super().__init__(expression, f"line {line}, column {column}: {problem}")

    @classmethod
    def at(cls, expression: str, problem: str, offset: int) -> CelCompileError:
        """The same, with the place given as an offset into the expression."""
        before = expression[:offset]
        return cls(expression, problem, line=before.count("\n") + 1, column=offset - before.rfind("\n"))


class CelTooLongError(CelCompileError):
    """The expression is longer than the API server accepts."""


class CelTooCostlyError(CelCompileError):
    """The estimated worst case of the expression costs more than the API server accepts."""


class CelRuntimeError(CelError):
    """The expression has no answer for this device, for example because it lacks an attribute."""


class CelCostError(CelRuntimeError):
    """The evaluation was stopped because it cost more than the scheduler allows."""


def _short(text: str, limit: int = 120) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."
