"""Devices and counter sets as HTML, in the colours of claims and the shapes of drivers.

Every text is escaped, so that no name in a file can become markup.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from html import escape
from itertools import groupby
from typing import Any, Final

from dra_sdk.cel.fields import format_value
from dra_sdk.texts import counted
from dra_sdk.tools.scheduling.cluster.snapshot import ObjectKey, display_name
from dra_sdk.tools.scheduling.picture.published_devices import (
    AmountBar,
    DeviceTile,
    DeviceUse,
    PartitionedDevice,
    SlotStrip,
    partition_kind,
)
from dra_sdk.tools.scheduling.picture.scene import Scene

_VOID_ELEMENTS: Final = frozenset({"meta", "link", "br", "input"})
_GOLDEN_ANGLE: Final = 137.508
_SHAPES: Final = 3
_MODEL_ATTRIBUTES: Final = ("profile", "partitionProfile", "productName", "model", "type", "ifName", "interfaceName")
_MAX_FACT_LENGTH: Final = 28


class Html(str):
    """Text that is HTML already, so that it is not escaped again."""

    __slots__ = ()


HtmlContent = Html | str | None
AttributeValue = str | int | bool | None


def tag(name: str, /, *children: HtmlContent, **attributes: AttributeValue) -> Html:
    """Return an element. Strings are escaped, None is omitted; `class_` stands for `class`, `data_x` for `data-x`."""
    shown = "".join(_attribute(key, value) for key, value in attributes.items())
    return Html(f"<{name}{shown}>" if name in _VOID_ELEMENTS else f"<{name}{shown}>{join(*children)}</{name}>")


def join(*children: HtmlContent) -> Html:
    """Return several pieces one after the other."""
    return Html("".join(escaped(child) for child in children if child is not None))


def escaped(content: Html | str) -> Html:
    """Return a piece as HTML; what no browser shows, such as control characters, becomes a replacement character."""
    return content if isinstance(content, Html) else Html(escape(_printable(content)))


def _attribute(key: str, value: AttributeValue) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(_printable(str(value)))}"'


def _printable(content: str) -> str:
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in content)


class DrawingSize(StrEnum):
    """How large a device is drawn: with all details, with its name and claims, or as a small square."""

    FULL = "full"
    MEDIUM = "medium"
    SMALL = "small"


_MAX_ITEMS: Final = ((48, DrawingSize.FULL), (320, DrawingSize.MEDIUM))
"""The largest number of items that are drawn at each size."""
_MAX_BARS: Final = {DrawingSize.FULL: 3, DrawingSize.MEDIUM: 1}


@dataclass(frozen=True, slots=True)
class Drawing:
    """How everything in one picture is drawn.

    size: the size of devices.
    claims: the number of each claim, which decides its colour.
    drivers: the drivers; small devices have a shape for each.
    """

    size: DrawingSize
    claims: dict[ObjectKey, int]
    drivers: tuple[str, ...]

    @classmethod
    def of(cls, scene: Scene) -> Drawing:
        """Return the drawing for a scene; the more items, the smaller."""
        count = sum(len(card.frame.all_items) for card in scene.cards)
        size = next((size for limit, size in _MAX_ITEMS if count <= limit), DrawingSize.SMALL)
        drivers = tuple(dict.fromkeys(tile.id[0] for tile in scene.tiles))
        return cls(size, {claim.key: claim.color for claim in scene.claims}, drivers)

    def colored(self, claim: ObjectKey, style: str = "") -> dict[str, Any]:
        """Return the attributes of an element in a claim's colour; consecutive hues are a golden angle apart."""
        number = self.claims[claim]
        return {"style": f"--h:{number * _GOLDEN_ANGLE % 360:.0f}{style}", "data_claim": number}

    def shape(self, driver: str) -> str:
        """Return the CSS class for the shape of a driver's devices."""
        return f"shape-{self.drivers.index(driver) % _SHAPES}"

    def chip(self, claim: ObjectKey, text: str = "") -> Html:
        """Return a claim's name in its colour."""
        return tag("span", text or display_name(claim), class_="chip", **self.colored(claim))


def device_html(device: DeviceTile, drawing: Drawing) -> Html:
    """Return a device as an element."""
    attributes = _device_attributes(device, drawing)
    if drawing.size is DrawingSize.SMALL:
        return tag("li", role="img", aria_label=_device_in_short(device), **attributes)
    full = drawing.size is DrawingSize.FULL
    return tag(
        "li",
        tag("b", device.name),
        tag("small", _facts(device)) if full and _facts(device) else None,
        *[drawing.chip(use.claim, _user(use)) for use in device.uses],
        *([bar_html(bar, drawing) for bar in capacity_bars(device)] if device.shared else []),
        *[tag("span", text if full else text.rpartition(":")[0], class_="taint") for text in device.problems],
        **attributes,
    )


def partition_html(device: DeviceTile, drawing: Drawing) -> Html:
    """Return a device that is a partition, in one line."""
    chips = [drawing.chip(use.claim, _user(use)) for use in device.uses]
    return tag("li", tag("small", partition_kind(device)), *chips, class_="part", title=device_tooltip(device))


def _device_attributes(device: DeviceTile, drawing: Drawing) -> dict[str, Any]:
    """Return class, colour, claim and tooltip of a device's element."""
    first = next(iter([*device.holders, *device.uses]), None)
    names = ["tile", "used" if device.holders else "admin" if first else "free", drawing.shape(device.id[0])]
    names += ["tainted"] if device.problems else []
    names += ["shared"] if device.shared else []
    colored = drawing.colored(first.claim) if first else {}
    return {"class_": " ".join(names), "title": device_tooltip(device), **colored}


def capacity_bars(device: DeviceTile) -> list[AmountBar]:
    """Return the capacities of a shared device as bars."""
    return [
        AmountBar(name, total, tuple((use.claim, use.consumed[name]) for use in device.uses if name in use.consumed))
        for name, total in device.capacity.items()
    ]


def device_tooltip(device: DeviceTile) -> str:
    """Return everything about a device as text, for a tooltip."""
    lines = ["/".join(device.id)]
    lines += [
        f"used by claim {display_name(use.claim)}, request {use.request}{_admin_suffix(use)}" for use in device.uses
    ]
    lines += ["free"] if not device.uses else []
    lines += device.problems
    lines += [f"{name}: {format_value(value)}" for name, value in device.attributes.items()]
    lines += [f"{name}: {value}" for name, value in device.capacity.items()]
    return "\n".join(lines)


def _device_in_short(device: DeviceTile) -> str:
    users = ", ".join(map(_user, device.uses))
    return "; ".join([f"{device.name}: {users or 'free'}", *device.problems])


def _user(use: DeviceUse) -> str:
    return f"{display_name(use.claim)}{_admin_suffix(use)}"


def _admin_suffix(use: DeviceUse) -> str:
    return " (admin)" if use.admin else ""


def _facts(device: DeviceTile) -> str:
    """Return the model and the memory, or what comes closest."""
    model = str(device.attribute(*_MODEL_ATTRIBUTES) or "")
    memory = next((str(value) for name, value in device.capacity.items() if name.rpartition("/")[2] == "memory"), "")
    # The bars of a shared device show its memory.
    return " · ".join(_shortened(fact) for fact in (model, "" if device.shared else memory) if fact)


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_FACT_LENGTH else f"{text[: _MAX_FACT_LENGTH - 1]}…"


def bar_html(amounts: AmountBar, drawing: Drawing) -> Html:
    """Return an amount and its parts as a bar."""
    short = _left(amounts) if drawing.size is DrawingSize.FULL else f"{amounts.name}: {amounts.left} left"
    return tag("div", tag("small", short), _meter_html(amounts, drawing), class_="bar")


def _meter_html(amounts: AmountBar, drawing: Drawing) -> Html:
    parts = [_bar_part(claim, drawing, f";width:{amounts.share(amount):.2f}%") for claim, amount in amounts.parts]
    label = _left(amounts)
    return tag("span", *parts, class_="meter", role="img", aria_label=label, title=label)


def _left(amounts: AmountBar) -> str:
    return f"{amounts.name}: {amounts.left} of {amounts.total} left"


def _bar_part(claim: ObjectKey, drawing: Drawing, style: str) -> Html:
    return tag("s", class_="on", title=display_name(claim), **drawing.colored(claim, style))


def partitioned_device_html(item: PartitionedDevice, drawing: Drawing) -> Html:
    """Return a counter set with its bars, the devices in use, and the partitions still available."""
    if drawing.size is DrawingSize.SMALL:
        return _small_partitioned_device(item, drawing)
    full = drawing.size is DrawingSize.FULL
    bars = sorted(item.bars, key=lambda bar: (not bar.parts, bar.name != "memory"))
    kept = _MAX_BARS[drawing.size]
    used = [(device_html if full else partition_html)(partition, drawing) for partition in item.used]
    return tag(
        "li",
        tag("b", item.name),
        *[_strip_html(strip, drawing) for strip in item.strips],
        *[bar_html(bar, drawing) for bar in bars[:kept]],
        tag("ul", *used, class_="tiles" if full else "parts") if used else None,
        tag("p", *_possible_partitions(item), class_="available"),
        _more_bars(bars[kept:], drawing) if bars[kept:] and full else None,
        class_="counter-set",
        title=f"{'/'.join(item.pool)}, counter set {item.name}: {len(item.tiles)} devices share it",
    )


def _small_partitioned_device(item: PartitionedDevice, drawing: Drawing) -> Html:
    """Return only the strips or, without strips, the first bar."""
    names = ", ".join(f"{tile.name} by {display_name(tile.uses[0].claim)}" for tile in item.used) or "nothing"
    kinds = ", ".join(_times(*kind_count) for kind_count in item.possible) or "none"
    text = f"{item.name}: {names} in use; available: {kinds}"
    inner = [_strip_cells(strip, drawing) for strip in item.strips]
    inner = inner or [_meter_html(bar, drawing) for bar in item.bars[:1]]
    return tag("li", *inner, class_="counter-set", role="img", title=text)


def _possible_partitions(item: PartitionedDevice) -> Iterator[Html]:
    yield tag("span", "available: " if item.possible else "none available")
    for name, count in item.possible:
        yield tag("span", f"{_times(name, count)} ", class_="kind")


def _times(name: str, count: int) -> str:
    return f"{name} \N{MULTIPLICATION SIGN}{count}" if count > 1 else name


def _more_bars(bars: Sequence[AmountBar], drawing: Drawing) -> Html:
    return tag("details", tag("summary", counted(len(bars), "more counter")), *[bar_html(bar, drawing) for bar in bars])


def _strip_html(strip: SlotStrip, drawing: Drawing) -> Html:
    short = tag("small", f"{strip.used} of {len(strip.cells)} slots used")
    return tag("div", short, _strip_cells(strip, drawing), class_="bar")


def _strip_cells(strip: SlotStrip, drawing: Drawing) -> Html:
    """Return the slots; neighbours that one claim holds are one element, and free ones are the background."""
    count = len(strip.cells)
    label = f"{strip.name}: {strip.used} of {count} used"
    runs, at = [], 0
    for claim, cells in groupby(strip.cells):
        length = sum(1 for _ in cells)
        if claim is not None:
            place = f";left:{100 * at / count:.2f}%;width:{100 * length / count:.2f}%"
            runs.append(_bar_part(claim, drawing, place))
        at += length
    return tag("span", *runs, class_="strip", style=f"--n:{count}", role="img", aria_label=label, title=label)
