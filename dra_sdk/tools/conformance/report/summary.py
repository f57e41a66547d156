"""The facts and figures of one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dra_sdk.tools.conformance.check import Result, Severity, Status


@dataclass(frozen=True)
class Report:
    """One run: the driver's name, how it was reached, the API server's version, and the results in order."""

    driver: str
    target: str
    server: str
    started: str
    seconds: float
    results: Sequence[Result]
    strict: bool = False

    def count(self, status: Status, severity: Severity | None = None) -> int:
        """How many checks ended so."""
        found = Counter((each.status, each.check.severity) for each in self.results)
        return sum(number for (one, two), number in found.items() if one is status and severity in {None, two})

    def score(self, severity: Severity) -> str:
        """Passed of those that passed or failed, such as `60/61`."""
        passed = self.count(Status.PASSED, severity)
        return f"{passed}/{passed + self.count(Status.FAILED, severity)}"

    @property
    def failures(self) -> list[Result]:
        """What failed, what must hold first."""
        return sorted((each for each in self.results if each.failed), key=lambda each: each.check.severity)

    @property
    def conformant(self) -> bool:
        """Whether nothing that must hold failed (nor, if strict, what should), and something was seen to hold."""
        failed = self.count(Status.FAILED, None if self.strict else Severity.MUST)
        return not failed and self.count(Status.PASSED) > 0

    @property
    def seen(self) -> bool:
        """Whether any check could tell."""
        return self.count(Status.PASSED) + self.count(Status.FAILED) > 0

    @property
    def exit_status(self) -> int:
        """0 for a driver that conforms, 1 for one that does not, 2 where nothing could be seen of it."""
        if not self.seen:
            return 2
        return 0 if self.conformant else 1
