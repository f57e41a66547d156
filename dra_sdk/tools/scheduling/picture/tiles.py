"""One device as HTML, at any size."""

from __future__ import annotations

from typing import Any, Final

from dra_sdk.cel.fields import format_value
from dra_sdk.tools.scheduling.cluster.names import Key, shown
from dra_sdk.tools.scheduling.picture.drawing import Drawing, Size
from dra_sdk.tools.scheduling.picture.markup import Html, tag
from dra_sdk.tools.scheduling.picture.partitions import Bar, kind
from dra_sdk.tools.scheduling.picture.pools import Tile, Use

_MODEL: Final = ("profile", "partitionProfile", "productName", "model", "type", "ifName", "interfaceName")
_LONG: Final = 28


def tile(device: Tile, drawing: Drawing) -> Html:
    """A device."""
    attributes = _attributes(device, drawing)
    if drawing.size is Size.SMALL:
        return tag("li", tag("i", _in_short(device)), **attributes)
    full = drawing.size is Size.FULL
    return tag(
        "li",
        tag("b", device.name),
        tag("small", _facts(device)) if full and _facts(device) else None,
        *[drawing.chip(each.claim, f"{shown(each.claim)}{_admin(each)}") for each in device.uses],
        *([bar(each, drawing) for each in shares(device)] if device.shared else []),
        *[tag("span", each if full else each.rpartition(":")[0], class_="taint") for each in problems(device)],
        **attributes,
    )


def partition(device: Tile, drawing: Drawing) -> Html:
    """A device that was cut from a counter set, in one line."""
    chips = [drawing.chip(each.claim, f"{shown(each.claim)}{_admin(each)}") for each in device.uses]
    return tag("li", tag("small", kind(device)), *chips, class_="part", title=details(device))


def _attributes(device: Tile, drawing: Drawing) -> dict[str, Any]:
    """Class, colour, claim and tooltip of the element that stands for a device."""
    first = next(iter([*device.holders, *device.uses]), None)
    names = ["tile", "used" if device.holders else "admin" if first else "free", drawing.shape(device.id[0])]
    names += ["tainted"] if problems(device) else []
    names += ["shared"] if device.shared else []
    colored = drawing.colored(first.claim) if first else {}
    return {"class_": " ".join(names), "title": details(device), **colored}


def problems(device: Tile) -> list[str]:
    """Why it may not be had although nobody has it."""
    return [f"taint {each}" for each in device.taints] + ([device.note] if device.note else [])


def shares(device: Tile) -> list[Bar]:
    """The capacities of a shared device as bars."""
    return [
        Bar(name, total, tuple((each.claim, each.consumed[name]) for each in device.uses if name in each.consumed))
        for name, total in device.capacity.items()
    ]


def details(device: Tile) -> str:
    """Everything about a device as text, for a tooltip."""
    lines = ["/".join(device.id)]
    lines += [f"used by claim {shown(each.claim)}, request {each.request}{_admin(each)}" for each in device.uses]
    lines += ["free"] if not device.uses else []
    lines += problems(device)
    lines += [f"{name}: {format_value(value)}" for name, value in device.attributes.items()]
    lines += [f"{name}: {value}" for name, value in device.capacity.items()]
    return "\n".join(lines)


def _in_short(device: Tile) -> str:
    users = ", ".join(f"{shown(each.claim)}{_admin(each)}" for each in device.uses)
    return "; ".join([f"{device.name}: {users or 'free'}", *problems(device)])


def _admin(use: Use) -> str:
    return " (admin)" if use.admin else ""


def _facts(device: Tile) -> str:
    """The model and the memory, or what comes closest."""
    named = {name.rpartition("/")[2]: value for name, value in device.attributes.items()}
    model = next((str(named[each]) for each in _MODEL if named.get(each)), "")
    memory = next((str(value) for name, value in device.capacity.items() if name.rpartition("/")[2] == "memory"), "")
    # The bars of a shared device tell its memory.
    return " · ".join(_short(each) for each in (model, "" if device.shared else memory) if each)


def _short(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"


def bar(amounts: Bar, drawing: Drawing, *, named: bool = True) -> Html:
    """An amount and its parts."""
    label = f"{amounts.name}: {amounts.left} of {amounts.total} left"
    short = label if drawing.size is Size.FULL else f"{amounts.name}: {amounts.left} left"
    parts = [_part(claim, drawing, f";width:{amounts.share(amount):.2f}%") for claim, amount in amounts.parts]
    meter = tag("span", *parts, class_="meter", role="img", aria_label=label, title=label)
    return tag("div", tag("small", short) if named else None, meter, class_="bar")


def _part(claim: Key, drawing: Drawing, style: str) -> Html:
    return tag("s", class_="on", title=shown(claim), **drawing.colored(claim, style))
