"""The result as a table and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from tests.bench.calls import CallTimes
from tests.bench.idle import Idleness
from tests.bench.publishing import Publication
from tests.bench.stats import Comparison, Pair, compare, divide

MILLISECONDS = 1000.0
_FEW = 20
"""Below this many samples a 99th percentile is only the largest value, so none is shown."""


@dataclass(frozen=True)
class Row:
    """One quantity, in `unit`."""

    name: str
    unit: str
    comparison: Comparison


@dataclass
class Report:
    """Everything that was measured."""

    machine: dict[str, str]
    versions: dict[str, str]
    labels: tuple[str, str]
    rows: list[Row] = field(default_factory=list)
    requests: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    """Requests of one start and publication, by number of devices, side and kind of request."""
    trace: str = ""
    """Where the time of our driver's calls went, if that was asked for."""

    def add(self, name: str, unit: str, pairs: Sequence[Pair], scale: float = 1.0) -> None:
        """Add a row; `scale` turns the pairs into `unit`."""
        self.rows.append(Row(name, unit, compare([(mine * scale, other * scale) for mine, other in pairs])))

    def add_publications(self, devices: int, pairs: Sequence[tuple[Publication, Publication]]) -> None:
        """Rows for starting with that many devices."""
        what = f"{devices:,} device{'' if devices == 1 else 's'}".replace(",", " ")
        if devices == 1:
            self.add("start to registered", "ms", [(a.registered, b.registered) for a, b in pairs], MILLISECONDS)
        self.add(f"start to {what} visible", "ms", [(a.visible, b.visible) for a, b in pairs], MILLISECONDS)
        self.add(
            f"  from registered on, {what}",
            "ms",
            [(a.visible - a.registered, b.visible - b.registered) for a, b in pairs],
            MILLISECONDS,
        )
        self.add(f"  requests, {what}", "", [(a.requests.total(), b.requests.total()) for a, b in pairs])
        self.add(f"  CPU time, {what}", "ms", [(a.cpu, b.cpu) for a, b in pairs], MILLISECONDS)
        self.add(f"  resident memory, {what}", "MiB", [(a.rss_mib, b.rss_mib) for a, b in pairs])
        if devices == 1:
            self.add("SIGTERM to ended", "ms", [(a.stopped, b.stopped) for a, b in pairs], MILLISECONDS)
        typical = zip(self.labels, (_typical([p[side].requests for p in pairs]) for side in (0, 1)), strict=True)
        self.requests[what] = dict(typical)

    def add_idleness(self, idleness: Idleness) -> None:
        """Rows for doing nothing."""
        self.add("CPU time of an idle second", "ms", [idleness.cpu], MILLISECONDS)
        mine, others = idleness.requests
        what = f"{idleness.seconds:g} idle seconds"
        self.add(f"  requests, {what}", "", [(mine.total(), others.total())])
        self.requests[what] = dict(zip(self.labels, (dict(mine), dict(others)), strict=True))

    def add_bursts(self, count: int, at_once: int, pairs: Sequence[Pair]) -> None:
        """A row for bursts of prepares."""
        self.add(f"{count} claims prepared, {at_once} at a time", "ms", pairs, MILLISECONDS)

    def add_calls(self, several: Sequence[CallTimes]) -> None:
        """Rows for the kubelet's calls, and how the last number of claims held compares with the first."""
        for times in several:
            for name, pairs in times.pairs.items():
                self.add(f"{name}, {times.held} claims held", "ms", pairs, MILLISECONDS)
            cpu = (times.cpu[0] / times.rounds, times.cpu[1] / times.rounds)
            self.add(f"  CPU time per claim, {times.held} held", "ms", [cpu], MILLISECONDS)
            self.add(f"  resident memory, {times.held} held", "MiB", [times.rss_mib])
        few, many = several[0], several[-1]
        for name in few.pairs:
            growth = [divide(a, b) for a, b in zip(_medians(many.pairs[name]), _medians(few.pairs[name]), strict=True)]
            self.add(f"{name}, {many.held} held to {few.held} held", "", [(growth[0], growth[1])])

    def json(self) -> dict[str, Any]:
        """The report as plain JSON."""
        return asdict(self)

    def text(self) -> str:
        """The report as a person reads it."""
        ours, theirs = self.labels
        head = ("", "unit", f"{ours} p50", f"{theirs} p50", f"{ours} p99", f"{theirs} p99")
        table = [(*head, "ratio p50 [95 %]", "ratio p99", "pairs", "n"), *(_cells(row) for row in self.rows)]
        machine = "; ".join(f"{name}: {value}" for name, value in self.machine.items())
        versions = ", ".join(f"{name} {value}" for name, value in self.versions.items())
        lines = [machine, versions, "", *_aligned(table), "", *_legend(ours, theirs)]
        for what, sides in self.requests.items():
            for label, requests in sides.items():
                listed = ", ".join(f"{count} {action}" for action, count in sorted(requests.items()))
                lines.append(f"requests of {label} for {what}: {listed or 'none'}")
        return "\n".join([*lines, *(["", self.trace] if self.trace else [])])


def _medians(pairs: Sequence[Pair]) -> list[float]:
    return [median(side) for side in zip(*pairs, strict=True)]


def _typical(counts: list[Counter[str]]) -> dict[str, int]:
    actions = sorted(set().union(*counts))
    return {action: round(median(count[action] for count in counts)) for action in actions}


def _cells(row: Row) -> tuple[str, ...]:
    found, many = row.comparison, row.comparison.samples >= _FEW
    interval = f" [{found.low:.2f}, {found.high:.2f}]" if found.samples > 1 else ""
    tail = [*map(_number, found.p99)] if many else ["", ""]
    return (
        *(row.name, row.unit, *map(_number, found.p50), *tail),
        f"{found.ratio:.2f}{interval}",
        f"{found.p99[0] / found.p99[1]:.2f}" if many else "",
        f"{found.pairwise:.2f}",
        str(found.samples),
    )


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        first, unit, *rest = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join([first, unit, *(cell.strip().rjust(len(cell)) for cell in rest)]).rstrip())
    return lines


def _legend(ours: str, theirs: str) -> list[str]:
    return [
        f"ratio: {ours} / {theirs}, so below 1 {ours} is faster or smaller; in brackets the 95 % bootstrap interval",
        "pairs: the median of the ratios of the two calls that were made right after each other; n: number of pairs",
        "CPU time per claim: one prepare, one repeated prepare, one unprepare, all threads",
    ]
