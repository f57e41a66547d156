from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.picture.boards import board
from dra_sdk.tools.scheduling.picture.drawing import Drawing, Size
from dra_sdk.tools.scheduling.picture.partitions import Board
from dra_sdk.tools.scheduling.picture.scene import scene
from tests.tools.scheduling.picture.hostile import Page
from tests.tools.scheduling.worlds import GPU, claim, exactly, given, mig, world


def drawn(size: Size, *devices: str) -> Page:
    old = [given(claim(each, exactly("m", GPU)), ("m", GPU, "n1", f"gpu-0-mig-{each}")) for each in devices]
    made = scene(world(mig("n1"), old))
    (item,) = made.cards[0].frame.frames[0].frames[0].items
    assert isinstance(item, Board)
    return Page(board(item, Drawing(size, Drawing.of(made).claims, (GPU,))))


def test_in_full():
    page = drawn(Size.FULL, "3g-20gb-0", "1g-5gb-4")
    assert page.text.startswith(
        "gpu-0-counter-set 5 of 8 slots used memory: 15Gi of 40192Mi left multiprocessors: 28 of 98"
    )
    assert len(page.having("tile")) == 2
    assert [each["data-claim"] for each in page.having("on")[:5]] == ["0", "0", "0", "0", "1"]
    assert str(page.tags[0][1]["title"]).endswith("14 devices can be cut from it")


def test_medium():
    page = drawn(Size.MEDIUM, "3g-20gb-0")
    assert "memory: 20224Mi left 3g.20gb 3g-20gb-0 room for" in page.text
    assert "multiprocessors" not in page.text


def test_small():
    page = drawn(Size.SMALL, "7g-40gb-0")
    assert page.text == "gpu-0-counter-set: gpu-0-mig-7g-40gb-0 by 7g-40gb-0 in use; room for nothing more"
    assert [each["aria-label"] for each in page.having("strip")] == ["memory-slice-0…7: 8 of 8 used"]


@pytest.mark.parametrize("size", Size)
def test_nothing_in_use(size: Size):
    assert drawn(size).having("on") == []
