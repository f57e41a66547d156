from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.picture.drawing import Drawing, Size
from dra_sdk.tools.scheduling.picture.scene import scene
from tests.tools.scheduling.worlds import GPU, claim, exactly, given, gpus, mig, nics, world


@pytest.mark.parametrize(("nodes", "size"), [(1, Size.FULL), (3, Size.FULL), (8, Size.MEDIUM), (21, Size.SMALL)])
def test_size(nodes: int, size: Size):
    fleet = [each for index in range(nodes) for each in (gpus(f"n{index}", 8), nics(f"n{index}", 8))]
    assert Drawing.of(scene(world(fleet))).size is size


def test_partitions_need_no_room_of_their_own():
    assert Drawing.of(scene(world([each for index in range(8) for each in mig(f"n{index}", 8)]))).size is Size.MEDIUM


def test_colours_of_claims_differ():
    old = [given(claim(f"c{index}", exactly("g", GPU)), ("g", GPU, "n1", f"gpu-{index}")) for index in range(8)]
    drawing = Drawing.of(scene(world(gpus("n1", 8), old)))
    hues = [drawing.colored(("default", each["metadata"]["name"]))["style"] for each in old]
    assert len(set(hues)) == 8
    assert drawing.chip(("default", "c0")) == '<span class="chip" style="--h:0" data-claim="0">c0</span>'


def test_shapes_of_drivers():
    drawing = Drawing.of(scene(world(gpus("n1"), nics("n1"))))
    assert [drawing.shape(each) for each in drawing.drivers] == ["shape-0", "shape-1"]
