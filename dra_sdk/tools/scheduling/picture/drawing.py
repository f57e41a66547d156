"""How everything in one picture is drawn: how large, and in which colours and shapes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from dra_sdk.tools.scheduling.cluster.names import Key, shown
from dra_sdk.tools.scheduling.picture.markup import Html, tag
from dra_sdk.tools.scheduling.picture.scene import Frame, Scene

_GOLDEN: Final = 137.508
_SHAPES: Final = 3


class Size(StrEnum):
    """How much room a device gets: all of it, its name and its claims, or a small square."""

    FULL = "full"
    MEDIUM = "medium"
    SMALL = "small"


_MOST: Final = ((48, Size.FULL), (320, Size.MEDIUM))
"""Up to how many things are drawn at which size."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """The size, the number of each claim, which makes its colour, and the drivers, which have shapes when small."""

    size: Size
    claims: dict[Key, int]
    drivers: tuple[str, ...]

    @classmethod
    def of(cls, scene: Scene) -> Drawing:
        """What suits a scene."""
        things = sum(_things(each.frame) for each in scene.cards)
        size = next((size for most, size in _MOST if things <= most), Size.SMALL)
        drivers = tuple(dict.fromkeys(each.id[0] for each in scene.tiles))
        return cls(size, {each.key: each.color for each in scene.claims}, drivers)

    def colored(self, claim: Key, style: str = "") -> dict[str, Any]:
        """The attributes of an element in a claim's colour; hues are a golden angle apart, to differ from the next."""
        number = self.claims[claim]
        return {"style": f"--h:{number * _GOLDEN % 360:.0f}{style}", "data_claim": number}

    def shape(self, driver: str) -> str:
        """The class of the shape of a driver's devices."""
        return f"shape-{self.drivers.index(driver) % _SHAPES}"

    def chip(self, claim: Key, text: str = "") -> Html:
        """A claim's name in its colour."""
        return tag("span", text or shown(claim), class_="chip", **self.colored(claim))


def _things(frame: Frame) -> int:
    return len(frame.items) + sum(map(_things, frame.frames))
