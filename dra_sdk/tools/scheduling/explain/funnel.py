"""A funnel: candidates that pass one test after the other, and why the others did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from dra_sdk.tools.scheduling.allocator.pools import Candidate
from dra_sdk.tools.scheduling.explain.model import Drop, Stage

_DETAILS: Final = 4


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a candidate does not pass: `detail` is what is special about this one."""

    text: str
    detail: str = ""
    position: tuple[int, int] | None = None


Test = Callable[[Candidate], Sequence[Reason]]
"""The reasons why a candidate does not pass; none if it does."""


@dataclass(slots=True)
class Funnel:
    """`left` are the candidates that passed every test so far; `node` is where they are."""

    node: str
    left: Sequence[Candidate]
    stages: list[Stage] = field(default_factory=list)

    def apply(self, kind: str, label: str, test: Test, *, silent: bool = False) -> None:
        """Put the candidates to a test; with `silent` it is only told of if somebody fails."""
        found = [(each, test(each)) for each in self.left]
        self.left = [each for each, reasons in found if not reasons]
        failed = [(each, reason) for each, reasons in found for reason in reasons]
        if failed or not silent:
            self.stages.append(Stage(kind, label, len(self.left), tuple(drops(failed, self.node))))


def drops(failed: Iterable[tuple[Candidate, Reason]], node: str) -> list[Drop]:
    """The failures by reason, the most frequent first."""
    groups: dict[tuple[str, tuple[int, int] | None], list[tuple[Candidate, str]]] = {}
    for candidate, reason in failed:
        groups.setdefault((reason.text, reason.position), []).append((candidate, reason.detail))
    made = [
        Drop(text, len(group), name_of(group[0][0], node), _details([detail for _, detail in group]), position)
        for (text, position), group in groups.items()
    ]
    return sorted(made, key=lambda each: -each.count)


def _details(texts: Sequence[str]) -> tuple[str, ...]:
    """Each text once, with how often it occurs where there are several."""
    counts = Counter(each for each in texts if each)
    if len(counts) <= 1:
        return tuple(counts)
    shown = [each if count == 1 else f"{each} ({count} devices)" for each, count in counts.most_common(_DETAILS)]
    more = len(counts) - len(shown)
    return (*shown, f"and {more} more") if more else tuple(shown)


def name_of(candidate: Candidate, node: str) -> str:
    """A device in a few words: its pool goes without saying where it is named after the node."""
    driver, pool, device = candidate.id
    return device if pool == node else f"{pool}/{device}" if pool else f"{driver}/{device}"
