"""Nodes as cards: the alignment frames of each, and in them its devices, those of one pool together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from dra_sdk.tools.scheduling.cluster.names import shown
from dra_sdk.tools.scheduling.picture.boards import board
from dra_sdk.tools.scheduling.picture.drawing import Drawing, Size
from dra_sdk.tools.scheduling.picture.markup import Html, join, tag
from dra_sdk.tools.scheduling.picture.partitions import Board
from dra_sdk.tools.scheduling.picture.scene import Card, Frame, Item
from dra_sdk.tools.scheduling.picture.tiles import tile


def cards(all_cards: Sequence[Card], drawing: Drawing) -> Html:
    """A section with a card for each node that has devices, and one for each group of nodes that share some."""
    drawn = [_card(each, drawing) for each in all_cards if each.tiles]
    empty = ", ".join(each.name for each in all_cards if not each.tiles)
    rest = tag("p", f"Without devices: {empty}", class_="rest") if empty else None
    grid = tag("div", *drawn, class_=f"cards {drawing.size}")
    return tag("section", tag("h2", "Nodes"), grid, rest, aria_label="Nodes")


def _card(card: Card, drawing: Drawing) -> Html:
    pods = ", ".join(map(shown, card.pods))
    return tag(
        "article",
        tag(
            "h3",
            card.name if card.is_node else f"For {card.name}",
            tag("small", card.in_use),
        ),
        tag("p", f"pods: {pods}", class_="pods") if pods else None,
        _frame(card.frame, card.name, drawing),
        class_="card" if card.is_node else "card network",
    )


def _frame(frame: Frame, node: str, drawing: Drawing) -> Html:
    inner = tag(
        "div",
        *[_pool(list(group), node, drawing) for _, group in groupby(frame.items, key=_pool_of)],
        *[_frame(each, node, drawing) for each in frame.frames],
        class_="frames",
    )
    if not frame.title:
        return inner
    return tag("fieldset", tag("legend", frame.title), inner, title=f"{frame.title} of {node}")


def _pool_of(item: Item) -> tuple[str, str]:
    return (item.set.driver, item.set.pool) if isinstance(item, Board) else item.id[:2]


def _pool(items: Sequence[Item], node: str, drawing: Drawing) -> Html:
    driver, pool = _pool_of(items[0])
    # A pool of one node is usually named after it.
    name = join(driver, tag("small", f"pool {pool}") if pool != node else None)
    label = tag("h4", name, title=f"driver {driver}, pool {pool}") if drawing.size is Size.FULL else None
    drawn = [board(each, drawing) if isinstance(each, Board) else tile(each, drawing) for each in items]
    return tag("div", label, tag("ul", *drawn, class_="tiles"), class_="pool")
