"""Differences between a release and this package, by area and name, and what the parts of the comparison found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

_SHOWN: Final = 5
"""How many details of one difference are printed; the JSON has all."""


@dataclass
class Difference:
    """One thing that the release and this package have differently.

    area: such as `feature gate`, `field` or `CEL function`.
    name: the gate, the path of the field, the function, the feature of the generated case.
    what: the difference, in a few words.
    details: the cases that show it, each as text of one or several lines.
    """

    area: str
    name: str
    what: str
    details: list[str] = field(default_factory=list)


@dataclass
class Part:
    """One part of the comparison.

    name: its name, as on the command line.
    done: what was compared, with numbers.
    seconds: how long it took.
    differences: what it found.
    error: why it could not be done; empty if it was done.
    """

    name: str
    done: str = ""
    seconds: float = 0.0
    differences: list[Difference] = field(default_factory=list)
    error: str = ""


@dataclass
class Report:
    """All parts for one release."""

    version: str
    parts: list[Part] = field(default_factory=list)

    @property
    def status(self) -> int:
        """The exit status: 0 if nothing differs, 1 if something does, 2 if a part could not be done."""
        if any(part.error for part in self.parts):
            return 2
        return 1 if any(part.differences for part in self.parts) else 0

    def json(self) -> str:
        """Returns everything as JSON."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    def text(self) -> str:
        """Returns the parts, and the differences in the order of area and name."""
        lines = [f"Kubernetes {self.version}", ""]
        width = max((len(part.name) for part in self.parts), default=0)
        lines += [f"{part.name:{width}}  {_ending(part)}" for part in self.parts]
        found = [each for part in self.parts for each in part.differences]
        area = ""
        for each in sorted(found, key=lambda difference: (difference.area, difference.name, difference.what)):
            if each.area != area:
                area = each.area
                lines += ["", area]
            lines.append(f"  {each.name}: {each.what}")
            lines += _details(each.details)
        return "\n".join(lines)


def _ending(part: Part) -> str:
    if part.error:
        return f"not done: {part.error}"
    count = len(part.differences)
    said = "no difference" if not count else f"{count} difference{'s' if count > 1 else ''}"
    return f"{said}: {part.done}, {part.seconds:.0f} s"


def _details(details: Sequence[str]) -> list[str]:
    shown = [f"      {line}" for each in details[:_SHOWN] for line in each.splitlines()]
    more = len(details) - _SHOWN
    return [*shown, f"      and {more} more"] if more > 0 else shown
