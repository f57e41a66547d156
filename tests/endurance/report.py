"""The run as a table and as a picture (SVG)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from statistics import median
from typing import Final

from tests.endurance.run import Result
from tests.endurance.samples import Sample, lives, time_per_claim, too_short

_HEAD: Final = (
    f"{'driver':12} {'life':>4} {'pods':>15} {'claims':>7} {'MiB':>13} {'descriptors':>11} {'threads':>9} "
    f"{'CPU ms/claim':>12} {'p50 ms':>12} {'p99 ms':>13}"
)
_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 720, 90, 64, 34, 34
_COLOURS: Final = ("#1f6feb", "#bf5700", "#1a7f37")
_PANELS: Final[tuple[tuple[str, Callable[[Sample], float | None]], ...]] = (
    ("memory, MiB", lambda each: each.memory),
    ("file descriptors", lambda each: each.descriptors),
    ("threads", lambda each: each.threads),
    ("state files and CDI specs", lambda each: each.files + each.specs),
    ("processor time of a claim, ms", time_per_claim),
    ("prepare p50, ms", lambda each: 1000 * each.p50 if each.claims else None),
)


def table(result: Result) -> str:
    """A row for each process: each value at the beginning and at the end of its life."""
    rows = [_row(name, life) for name, samples in result.samples.items() for life in lives(samples)]
    faults = ", ".join(f"{count} x {name}" for name, count in sorted(result.faults.items()))
    repeated = ", ".join(f"{count} x {name}" for name, count in sorted(result.repeated.items())) or "none"
    short = [each for name, samples in result.samples.items() for each in too_short(name, samples)]
    verdict = "\n".join([*short, *(result.complaints or ["nothing that is judged has grown, and no file is left"])])
    head = f"{result.pods} pods in {result.seconds:.0f} s\nfaults: {faults}\nrepeated steps: {repeated}"
    return "\n".join([head, _HEAD, *rows, verdict])


def _row(name: str, life: Sequence[Sample]) -> str:
    third = max(1, len(life) // 3)
    first, last = life[:third], life[-third:]

    def both(value: Callable[[Sample], float | None], places: int) -> str:
        ends = []
        for part in (first, last):
            found = [number for each in part if (number := value(each)) is not None]
            ends.append(f"{median(found):.{places}f}" if found else "-")
        return " -> ".join(ends)

    return (
        f"{name:12} {life[0].life:4} {f'{life[0].pods}-{life[-1].pods}':>15} {sum(each.claims for each in life):7} "
        f"{both(lambda each: each.memory, 1):>13} {both(lambda each: each.descriptors, 0):>11} "
        f"{both(lambda each: each.threads, 0):>9} {both(time_per_claim, 2):>12} "
        f"{both(lambda each: 1000 * each.p50 if each.claims else None, 1):>12} "
        f"{both(lambda each: 1000 * each.p99 if each.claims else None, 1):>13}"
    )


def picture(result: Result) -> str:
    """An SVG with a panel for each value, a line for each driver; a line is interrupted where a process ended."""
    height = _TOP + len(_PANELS) * (_HEIGHT + _GAP)
    width = _LEFT + _WIDTH + 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-size="12">',
        f"<title>What three drivers use while {result.pods} pods come and go</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/><g font-family="sans-serif">',
        *_legend(list(result.samples)),
    ]
    for index, (title, value) in enumerate(_PANELS):
        parts.extend(_panel(result, title, value, _TOP + index * (_HEIGHT + _GAP)))
    return "\n".join([*parts, "</g></svg>"]) + "\n"


def _legend(drivers: Sequence[str]) -> Iterator[str]:
    for index, name in enumerate(drivers):
        x = _LEFT + 130 * index
        yield f'<rect x="{x}" y="9" width="10" height="10" fill="{_COLOURS[index]}"/>'
        yield f'<text x="{x + 15}" y="18" fill="#24292f">{escape(name)}</text>'


def _panel(result: Result, title: str, value: Callable[[Sample], float | None], top: int) -> Iterator[str]:
    values = [found for each in result.samples.values() for one in each if (found := value(one)) is not None]
    highest = max(values, default=0.0) * 1.1 or 1.0
    bottom = top + _GAP // 2 + _HEIGHT
    yield f'<text x="{_LEFT}" y="{top + 11}" fill="#24292f">{escape(title)}</text>'
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * _HEIGHT
        yield f'<path d="M{_LEFT} {y:.1f}H{_LEFT + _WIDTH}" stroke="#d0d7de" fill="none"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#57606a">{share * highest:.3g}</text>'
    for index, samples in enumerate(result.samples.values()):
        for life in lives(samples):
            points = [
                f"{_LEFT + _WIDTH * each.pods / result.pods:.1f} {bottom - _HEIGHT * found / highest:.1f}"
                for each in life
                if (found := value(each)) is not None
            ]
            if points:
                line = "L".join(points)
                yield f'<path d="M{line}" stroke="{_COLOURS[index]}" stroke-width="1.5" fill="none"/>'
