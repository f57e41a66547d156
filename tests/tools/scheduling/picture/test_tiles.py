from __future__ import annotations

from dra_sdk.tools.scheduling.picture.drawing import Drawing, Size
from dra_sdk.tools.scheduling.picture.scene import scene
from dra_sdk.tools.scheduling.picture.tiles import bar, details, problems, shares, tile
from tests.tools.scheduling.picture.hostile import Page
from tests.tools.scheduling.worlds import GPU, claim, device, exactly, given, gpus, pool_slice, world

SHARED = pool_slice("n1", GPU, [device("a", {"model": "M"}, {"memory": "8Gi"}, allowMultipleAllocations=True)])
HALF = given(
    claim("half", exactly("x", GPU)), ("x", GPU, "n1", "a"), shareID="s", consumedCapacity={"memory": "2Gi"}
)  # fmt: skip


def test_classes_tell_the_state():
    old = given(claim("c", exactly("x", GPU)), ("x", GPU, "n1", "gpu-0"))
    admin = given(claim("a", exactly("x", GPU)), ("x", GPU, "n1", "gpu-1"), adminAccess=True)
    drawn = scene(world(gpus("n1", 3, taints=[{"key": "t", "effect": "NoSchedule"}]), old, admin))
    pages = [Page(tile(each, Drawing.of(drawn))) for each in drawn.tiles]
    assert [each.tags[0][1]["class"] for each in pages] == [
        "tile used shape-0 tainted", "tile admin shape-0 tainted", "tile free shape-0 tainted",
    ]  # fmt: skip
    assert "a (admin)" in pages[1].text
    assert "data-claim" not in pages[2].tags[0][1]


def test_a_shared_device():
    drawn = scene(world(SHARED, HALF))
    (device_,) = drawn.tiles
    (amounts,) = shares(device_)
    assert (str(amounts.left), amounts.share(amounts.parts[0][1])) == ("6Gi", 25.0)
    drawing = Drawing.of(drawn)
    assert 'width:25.00%"' in bar(amounts, drawing)
    assert "memory: 6Gi of 8Gi left" in Page(tile(device_, drawing)).text
    medium = Drawing(Size.MEDIUM, drawing.claims, drawing.drivers)
    assert Page(tile(device_, medium)).text == "a half memory: 6Gi left"
    assert "memory: 6Gi of 8Gi left" in bar(amounts, medium, named=False)


def test_details():
    (device_,) = scene(world(SHARED, HALF)).tiles
    assert details(device_).splitlines() == [
        "gpu.nvidia.com/n1/a", "used by claim half, request x", 'model: "M"', "memory: 8Gi",
    ]  # fmt: skip
    free = scene(world(gpus("n1", 1))).tiles[0]
    assert details(free).splitlines()[1] == "free"
    assert problems(free) == []


def test_a_small_device_says_what_it_is_to_who_cannot_see_it():
    drawn = scene(world(SHARED, HALF))
    small = Drawing(Size.SMALL, Drawing.of(drawn).claims, (GPU,))
    assert Page(tile(drawn.tiles[0], small)).text == "a: half"
