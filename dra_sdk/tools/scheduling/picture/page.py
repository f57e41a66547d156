"""A picture of a cluster as one HTML file: nodes, devices in their alignment frames, claims in colours, and who waits.

The file needs nothing else: styles and script are in it, it may load nothing, and without the script it says the same.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Final

from dra_sdk.tools.scheduling.cluster.names import shown
from dra_sdk.tools.scheduling.picture.cards import cards
from dra_sdk.tools.scheduling.picture.drawing import Drawing, Size
from dra_sdk.tools.scheduling.picture.markup import Html, join, tag
from dra_sdk.tools.scheduling.picture.scene import ClaimRow, Scene, Waiting, in_use

_STATES: Final = (
    ("free", "free"),
    ("used", "in use, one colour for each claim"),
    ("admin", "admin access only"),
    ("tainted", "tainted, or in an incomplete pool"),
)
_LISTED: Final = 40
"""Longer lists are folded."""
_TOGETHER: Final = 12


def page(scene: Scene, title: str = "Devices and claims") -> str:
    """The whole page, from `<!DOCTYPE html>` on."""
    style, script = _file("page.css"), _file("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Html(style)),
    )
    body = tag("body", _body(scene, title), tag("script", Html(script)))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _file(name: str) -> str:
    return resources.files("dra_sdk.tools.scheduling.picture").joinpath(name).read_text()


def _body(scene: Scene, title: str) -> Html:
    drawing = Drawing.of(scene)
    return join(
        tag("header", tag("h1", title), tag("p", _headline(scene)), _tools(), _legend(drawing)),
        tag("main", _waiting(scene.waiting), cards(scene.cards, drawing), _claims(scene.claims, drawing)),
    )


def _headline(scene: Scene) -> str:
    nodes = sum(1 for each in scene.cards if each.is_node)
    parts = [_count(nodes, "node"), f"devices: {in_use(scene.tiles)}"]
    parts += [f"{_count(len(scene.claims), 'claim')} placed", f"{len(scene.waiting)} not placed"]
    return " · ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _tools() -> Html:
    field = tag("input", type="search", id="filter", placeholder="Filter nodes, devices, claims", aria_label="Filter")
    theme = tag("button", "Light or dark", type="button", id="theme")
    return tag("div", field, theme, id="tools", hidden=True)


def _legend(drawing: Drawing) -> Html:
    states = [tag("span", tag("s", class_=f"tile {name}", style="--h:250"), text) for name, text in _STATES]
    if drawing.size is Size.SMALL:
        states += [tag("span", tag("s", class_=f"tile {drawing.shape(each)}"), each) for each in drawing.drivers]
    return tag("p", *states, class_="legend")


def _waiting(waiting: Sequence[Waiting]) -> Html | None:
    """Those that wait, together where the reason is the same."""
    if not waiting:
        return None
    by_reason: dict[str, list[str]] = {}
    for each in waiting:
        by_reason.setdefault(each.reason, []).append(each.subject)
    items = [tag("li", tag("b", _named(subjects)), tag("span", reason)) for reason, subjects in by_reason.items()]
    return tag("section", tag("h2", "Not placed"), tag("ul", *items, class_="waiting"), aria_label="Not placed")


def _named(subjects: Sequence[str]) -> str:
    more = len(subjects) - _TOGETHER
    return ", ".join(subjects[:_TOGETHER]) + (f" and {more} more" if more > 0 else "")


def _claims(claims: Sequence[ClaimRow], drawing: Drawing) -> Html | None:
    if not claims:
        return None
    head = tag("tr", *[tag("th", each, scope="col") for each in ("Claim", "Used by", "Where", "Devices")])
    table = tag("table", tag("thead", head), tag("tbody", *[_claim(each, drawing) for each in claims]))
    heading = tag("h2", f"Claims ({len(claims)})")
    folded = tag("details", tag("summary", heading), table, open=len(claims) <= _LISTED)
    return tag("section", folded, aria_label="Claims")


def _claim(row: ClaimRow, drawing: Drawing) -> Html:
    places = sorted({each.place or each.reach for _, each in row.devices})
    devices = [f"{request}: {'/'.join(each.id[1:])}" for request, each in row.devices]
    texts = (", ".join(row.pods) or "nobody", ", ".join(places), ", ".join(devices))
    cells = [tag("td", each) for each in (drawing.chip(row.key, shown(row.key)), *texts)]
    return tag("tr", *cells, data_claim=drawing.claims[row.key])
