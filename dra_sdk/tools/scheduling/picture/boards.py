"""One counter set with the devices cut from it as HTML, at any size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dra_sdk.tools.scheduling.cluster.names import Key, shown
from dra_sdk.tools.scheduling.picture.drawing import Drawing, Size
from dra_sdk.tools.scheduling.picture.markup import Html, tag
from dra_sdk.tools.scheduling.picture.partitions import Bar, Board, Strip
from dra_sdk.tools.scheduling.picture.tiles import bar, partition, tile

_BARS: Final = {Size.FULL: 3, Size.MEDIUM: 1}


def board(item: Board, drawing: Drawing) -> Html:
    """A counter set: its bars, the devices in use, and what there is room for."""
    if drawing.size is Size.SMALL:
        return _small(item, drawing)
    full = drawing.size is Size.FULL
    bars = sorted(item.bars, key=lambda each: (not each.parts, each.name != "memory"))
    kept = _BARS[drawing.size]
    used = [(tile if full else partition)(each, drawing) for each in item.used]
    return tag(
        "li",
        tag("b", item.name),
        *[_strip(each, drawing) for each in item.strips],
        *[bar(each, drawing) for each in bars[:kept]],
        tag("ul", *used, class_="tiles" if full else "parts") if used else None,
        tag("p", *_room(item), class_="room"),
        _more(bars[kept:], drawing) if bars[kept:] and full else None,
        class_="board",
        title=_about(item),
    )


def _small(item: Board, drawing: Drawing) -> Html:
    """Where there is little room, the strips only, or else the first bar."""
    strips = [_strip(each, drawing, named=False) for each in item.strips]
    inner = strips or [bar(each, drawing, named=False) for each in item.bars[:1]]
    names = ", ".join(f"{each.name} by {shown(each.uses[0].claim)}" for each in item.used) or "nothing"
    kinds = ", ".join(_times(*each) for each in item.possible) or "nothing more"
    text = f"{item.name}: {names} in use; room for {kinds}"
    return tag("li", *inner, tag("i", text), class_="board", title=text)


def _about(item: Board) -> str:
    owner = f"{item.set.driver}/{item.set.pool}"
    return f"{owner}, counter set {item.name}: {len(item.tiles)} devices can be cut from it"


def _room(item: Board) -> Iterator[Html]:
    yield tag("span", "room for " if item.possible else "no room for more")
    for name, count in item.possible:
        yield tag("span", f"{_times(name, count)} ", class_="kind")


def _times(name: str, count: int) -> str:
    return f"{name} \N{MULTIPLICATION SIGN}{count}" if count > 1 else name


def _more(bars: Sequence[Bar], drawing: Drawing) -> Html:
    summary = tag("summary", f"{len(bars)} more counter{'s' if len(bars) > 1 else ''}")
    return tag("details", summary, *[bar(each, drawing) for each in bars])


def _strip(strip: Strip, drawing: Drawing, *, named: bool = True) -> Html:
    taken = sum(1 for each in strip.cells if each)
    label = f"{strip.name}: {taken} of {len(strip.cells)} used"
    places = [_cell(each, drawing) for each in strip.cells]
    cells = tag("span", *places, class_="strip", role="img", aria_label=label, title=label)
    short = tag("small", f"{taken} of {len(strip.cells)} slots used") if named else None
    return tag("div", short, cells, class_="bar")


def _cell(claim: Key | None, drawing: Drawing) -> Html:
    return tag("s") if claim is None else tag("s", class_="on", title=shown(claim), **drawing.colored(claim))
