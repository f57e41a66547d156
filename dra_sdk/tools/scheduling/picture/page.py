"""A cluster as one HTML page: nodes, devices in their alignment frames, claims in colours, and what was not placed.

Styles and script are in the page, it may load nothing, and without the script it shows the same.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import groupby
from typing import Final

from dra_sdk.texts import counted, shortened
from dra_sdk.tools.scheduling.cluster.snapshot import display_name, grouped
from dra_sdk.tools.scheduling.picture.drawing import (
    Drawing,
    DrawingSize,
    Html,
    device_html,
    join,
    partitioned_device_html,
    tag,
)
from dra_sdk.tools.scheduling.picture.published_devices import PartitionedDevice
from dra_sdk.tools.scheduling.picture.scene import (
    AlignmentFrame,
    ClaimRow,
    NodeCard,
    NotPlaced,
    Scene,
    SceneItem,
    in_use,
)
from dra_sdk.tools.scheduling.picture.totals import (
    CardGroup,
    HardwareTotal,
    card_problems,
    hardware_totals,
    like_nodes,
)

_LEGEND: Final = (
    ("free", "free"),
    ("used", "in use, one colour for each claim"),
    ("admin", "admin access only"),
    ("tainted", "tainted, or in an incomplete pool"),
)
_ABOUT: Final = {
    "Free as a whole": "no claim holds any part of it",
    "Fragmentation": "how much of what is free is not in whole pieces of hardware, as simulate prints it",
}
_MAX_OPEN_CLAIMS: Final = 40
"""Longer lists are folded."""
_MAX_NAMES: Final = 12
_CARDS_IN_BATCH: Final = 24
"""A browser draws a batch when it comes into view. With 1, 2, 3, 4, 6 or 8 columns there is no gap between batches."""


def render_page(scene: Scene, title: str = "Devices and claims") -> str:
    """Return the whole page, from `<!DOCTYPE html>` on."""
    style, script = _resource("page.css"), _resource("page.js")
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


def _resource(name: str) -> str:
    return resources.files("dra_sdk.tools.scheduling.picture").joinpath(name).read_text()


def _body(scene: Scene, title: str) -> Html:
    drawing = Drawing.of(scene)
    return join(
        tag("header", tag("h1", title), tag("p", _headline(scene)), _tools(), _legend(drawing)),
        tag(
            "main",
            _totals_table(hardware_totals(scene.cards, scene.pieces)),
            _not_placed(scene.not_placed),
            cards_html(scene, drawing),
            _claims_table(scene.claims, drawing),
        ),
    )


def _headline(scene: Scene) -> str:
    nodes = sum(1 for card in scene.cards if card.is_node)
    parts = [counted(nodes, "node"), f"devices: {in_use(scene.tiles)}"]
    parts += [f"{counted(len(scene.claims), 'claim')} placed", f"{len(scene.not_placed)} not placed"]
    return " · ".join(parts)


def _totals_table(totals: Sequence[HardwareTotal]) -> Html | None:
    """Return how much hardware of each kind there is and is free."""
    if not totals:
        return None
    headings = (
        "Hardware",
        "In all",
        "Free as a whole",
        "Partly in use",
        "In use",
        "Tainted or incomplete",
        "Fragmentation",
    )
    head = tag("tr", *[tag("th", heading, scope="col", title=_ABOUT.get(heading)) for heading in headings])
    rows = [
        tag("tr", tag("td", row.kind), *[tag("td", str(number), class_="number") for number in _numbers(row)])
        for row in totals
    ]
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="totals")
    return tag("section", tag("div", table, class_="scrolled"), aria_label="Totals")


def _numbers(total: HardwareTotal) -> tuple[str | int, ...]:
    fragmentation = f"{total.fragmentation} %" if total.partly or total.fragmentation else "-"
    return total.pieces, total.free, total.partly, total.used, total.unavailable, fragmentation


def _tools() -> Html:
    field = tag("input", type="search", id="filter", placeholder="Find nodes, devices, claims, pods", aria_label="Find")
    theme = tag("button", "Light or dark", type="button", id="theme")
    return tag("div", field, theme, tag("output", id="found"), id="tools", hidden=True)


def _legend(drawing: Drawing) -> Html:
    states = [tag("span", tag("s", class_=f"tile {name}", style="--h:250"), text) for name, text in _LEGEND]
    if drawing.size is DrawingSize.SMALL:
        states += [tag("span", tag("s", class_=f"tile {drawing.shape(driver)}"), driver) for driver in drawing.drivers]
    return tag("p", *states, class_="legend")


def _not_placed(not_placed: Sequence[NotPlaced]) -> Html | None:
    """Return what was not placed, grouped by reason."""
    if not not_placed:
        return None
    by_reason = grouped(not_placed, lambda placement: placement.reason)
    items = [
        tag("li", tag("b", shortened([placement.subject for placement in alike], _MAX_NAMES)), tag("span", reason))
        for reason, alike in by_reason.items()
    ]
    return tag("section", tag("h2", "Not placed"), tag("ul", *items, class_="not-placed"), aria_label="Not placed")


def _claims_table(claims: Sequence[ClaimRow], drawing: Drawing) -> Html | None:
    if not claims:
        return None
    head = tag("tr", *[tag("th", column, scope="col") for column in ("Claim", "Used by", "Where", "Devices")])
    table = tag("table", tag("thead", head), tag("tbody", *[_claim_row(claim, drawing) for claim in claims]))
    heading = tag("h2", f"Claims ({len(claims)})")
    folded = tag("details", tag("summary", heading), table, open=len(claims) <= _MAX_OPEN_CLAIMS)
    return tag("section", folded, aria_label="Claims")


def _claim_row(row: ClaimRow, drawing: Drawing) -> Html:
    locations = sorted({device.node or device.accessible_from for _, device in row.devices})
    devices = [f"{request}: {'/'.join(device.id[1:])}" for request, device in row.devices]
    texts = (", ".join(row.pods) or "nobody", ", ".join(locations), ", ".join(devices))
    cells = [tag("td", content) for content in (drawing.chip(row.key, display_name(row.key)), *texts)]
    return tag("tr", *cells, data_claim=drawing.claims[row.key])


def cards_html(scene: Scene, drawing: Drawing) -> Html:
    """Return a section with a card for each node that has devices, and for each group of nodes that share devices."""
    bad = {id(card): problems for card in scene.cards if (problems := card_problems(card))}
    sections = [
        _group_html("Nodes with problems", [card for card in scene.cards if id(card) in bad], scene, drawing, bad)
    ]
    groups = like_nodes(card for card in scene.cards if id(card) not in bad)
    sections += [_group_html(_group_title(group), group.cards, scene, drawing, {}) for group in groups]
    empty = ", ".join(card.name for card in scene.cards if not card.tiles)
    rest = tag("p", f"Without devices: {empty}", class_="rest") if empty else None
    return tag("section", tag("h2", "Nodes"), *sections, rest, aria_label="Nodes")


def _group_title(group: CardGroup) -> str:
    if not group.cards[0].is_node:
        return group.hardware[:1].upper() + group.hardware[1:]
    return f"{counted(len(group.cards), 'node')} with {group.hardware}"


def _group_html(
    title: str,
    cards: Sequence[NodeCard],
    scene: Scene,
    drawing: Drawing,
    problems: Mapping[int, Sequence[str]],
) -> Html | None:
    """Return cards below a title that folds them."""
    if not cards:
        return None
    pictures = scene.driver_pictures
    drawn = [_card_html(card, drawing, pictures.get(card.name, ()), problems.get(id(card), ())) for card in cards]
    totals = hardware_totals(cards, scene.pieces)
    free, partly = sum(total.free for total in totals), sum(total.partly for total in totals)
    about = tag("small", f"{free} free as a whole, {partly} partly in use")
    summary = tag("summary", tag("b", title), about)
    batches = [drawn[at : at + _CARDS_IN_BATCH] for at in range(0, len(drawn), _CARDS_IN_BATCH)]
    grids = [tag("div", *batch, class_=f"cards {drawing.size}") for batch in batches]
    return tag("details", summary, *grids, class_="group", open=True, data_group=title)


def _card_html(card: NodeCard, drawing: Drawing, picture: Sequence[str], problems: Sequence[str]) -> Html:
    pods = ", ".join(map(display_name, card.pods))
    return tag(
        "article",
        tag("h3", card.name if card.is_node else f"For {card.name}", tag("small", in_use(card.tiles))),
        *[tag("p", problem, class_="taint") for problem in problems],
        tag("p", f"pods: {pods}", class_="pods") if pods else None,
        _frame_html(card.frame, card.name, drawing),
        tag("pre", "\n".join(picture), class_="driver-picture") if picture else None,
        class_="card" if card.is_node else "card several-nodes",
        data_node=card.name,
    )


def _frame_html(frame: AlignmentFrame, node: str, drawing: Drawing, *, nested: bool = False) -> Html:
    pools = [_pool_html(list(group), node, drawing) for _, group in groupby(frame.items, key=lambda item: item.pool)]
    about = f"{frame.title} of {node}"
    if nested and drawing.size is DrawingSize.SMALL:
        return tag("div", *pools, class_="frame", role="group", aria_label=about, title=about)
    frames = [_frame_html(nested_frame, node, drawing, nested=bool(frame.title)) for nested_frame in frame.frames]
    inner = tag("div", *pools, *frames, class_="frames")
    return tag("fieldset", tag("legend", frame.title), inner, title=about) if frame.title else inner


def _pool_html(items: Sequence[SceneItem], node: str, drawing: Drawing) -> Html:
    driver, pool = items[0].pool
    drawn = [
        partitioned_device_html(item, drawing) if isinstance(item, PartitionedDevice) else device_html(item, drawing)
        for item in items
    ]
    if drawing.size is not DrawingSize.FULL:
        return tag("ul", *drawn, class_="tiles pool")
    # The pool of a node is usually named after the node.
    name = join(driver, tag("small", f"pool {pool}") if pool != node else None)
    label = tag("h4", name, title=f"driver {driver}, pool {pool}")
    return tag("div", label, tag("ul", *drawn, class_="tiles"), class_="pool")
