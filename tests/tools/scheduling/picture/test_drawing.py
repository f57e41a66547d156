from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.picture.drawing import (
    Drawing,
    DrawingSize,
    Html,
    bar_html,
    capacity_bars,
    device_html,
    device_tooltip,
    escaped,
    join,
    partitioned_device_html,
    tag,
)
from dra_sdk.tools.scheduling.picture.published_devices import PartitionedDevice
from dra_sdk.tools.scheduling.picture.scene import build_scene
from tests.tools.scheduling.clusters import (
    GPU,
    claim,
    cluster,
    device,
    exactly,
    gpus,
    mig,
    nics,
    pool_slice,
    with_devices,
)
from tests.tools.scheduling.picture.html_page import Page


def test_strings_are_escaped_and_elements_are_not():
    assert tag("b", "<i>", tag("i", "a & b")) == "<b>&lt;i&gt;<i>a &amp; b</i></b>"
    assert isinstance(tag("b"), Html)
    assert join("<", None, Html("<br>")) == "&lt;<br>"


def test_attributes():
    made = tag("p", title='"><script>', class_="a", data_claim=0, hidden=True, open=False, name=None)
    assert made == '<p title="&quot;&gt;&lt;script&gt;" class="a" data-claim="0" hidden></p>'


def test_void_elements():
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8">'


def test_unprintable_characters_are_replaced():
    assert (
        escaped("a\x00\x1b[31m\u202eb\nc")
        == "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}b\nc"
    )


@pytest.mark.parametrize(
    ("nodes", "size"), [(1, DrawingSize.FULL), (3, DrawingSize.FULL), (8, DrawingSize.MEDIUM), (21, DrawingSize.SMALL)]
)
def test_size(nodes: int, size: DrawingSize):
    fleet = [raw_slice for index in range(nodes) for raw_slice in (gpus(f"n{index}", 8), nics(f"n{index}", 8))]
    assert Drawing.of(build_scene(cluster(fleet))).size is size


def test_partitions_do_not_count_for_the_size():
    assert (
        Drawing.of(build_scene(cluster([raw_slice for index in range(8) for raw_slice in mig(f"n{index}", 8)]))).size
        is DrawingSize.MEDIUM
    )


def test_colours_of_claims_differ():
    old = [with_devices(claim(f"c{index}", exactly("g", GPU)), ("g", GPU, "n1", f"gpu-{index}")) for index in range(8)]
    drawing = Drawing.of(build_scene(cluster(gpus("n1", 8), old)))
    hues = [drawing.colored(("default", old_claim["metadata"]["name"]))["style"] for old_claim in old]
    assert len(set(hues)) == 8
    assert drawing.chip(("default", "c0")) == '<span class="chip" style="--h:0" data-claim="0">c0</span>'


def test_shapes_of_drivers():
    drawing = Drawing.of(build_scene(cluster(gpus("n1"), nics("n1"))))
    assert [drawing.shape(driver) for driver in drawing.drivers] == ["shape-0", "shape-1"]


SHARED = pool_slice("n1", GPU, [device("a", {"model": "M"}, {"memory": "8Gi"}, allowMultipleAllocations=True)])
HALF = with_devices(
    claim("half", exactly("x", GPU)), ("x", GPU, "n1", "a"), shareID="s", consumedCapacity={"memory": "2Gi"}
)  # fmt: skip


def test_css_classes_show_the_state():
    old = with_devices(claim("c", exactly("x", GPU)), ("x", GPU, "n1", "gpu-0"))
    admin = with_devices(claim("a", exactly("x", GPU)), ("x", GPU, "n1", "gpu-1"), adminAccess=True)
    drawn = build_scene(cluster(gpus("n1", 3, taints=[{"key": "t", "effect": "NoSchedule"}]), old, admin))
    pages = [Page(device_html(tile, Drawing.of(drawn))) for tile in drawn.tiles]
    assert [page.tags[0][1]["class"] for page in pages] == [
        "tile used shape-0 tainted", "tile admin shape-0 tainted", "tile free shape-0 tainted",
    ]  # fmt: skip
    assert "a (admin)" in pages[1].text
    assert "data-claim" not in pages[2].tags[0][1]


def test_a_shared_device():
    drawn = build_scene(cluster(SHARED, HALF))
    (device_,) = drawn.tiles
    (amounts,) = capacity_bars(device_)
    assert (str(amounts.left), amounts.share(amounts.parts[0][1])) == ("6Gi", 25.0)
    drawing = Drawing.of(drawn)
    assert 'width:25.00%"' in bar_html(amounts, drawing)
    assert "memory: 6Gi of 8Gi left" in Page(device_html(device_, drawing)).text
    medium = Drawing(DrawingSize.MEDIUM, drawing.claims, drawing.drivers)
    assert Page(device_html(device_, medium)).text == "a half memory: 6Gi left"
    assert "memory: 6Gi of 8Gi left" in bar_html(amounts, medium), "the label of the bar is whole"


def test_the_tooltip_has_all_details():
    (device_,) = build_scene(cluster(SHARED, HALF)).tiles
    assert device_tooltip(device_).splitlines() == [
        "gpu.nvidia.com/n1/a", "used by claim half, request x", 'model: "M"', "memory: 8Gi",
    ]  # fmt: skip
    free = build_scene(cluster(gpus("n1", 1))).tiles[0]
    assert device_tooltip(free).splitlines()[1] == "free"
    assert free.problems == []


def test_a_small_device_has_a_text_for_screen_readers():
    drawn = build_scene(cluster(SHARED, HALF))
    small = Drawing(DrawingSize.SMALL, Drawing.of(drawn).claims, (GPU,))
    assert Page(device_html(drawn.tiles[0], small)).tags[0][1]["aria-label"] == "a: half"


def drawn(size: DrawingSize, *devices: str) -> Page:
    old = [with_devices(claim(name, exactly("m", GPU)), ("m", GPU, "n1", f"gpu-0-mig-{name}")) for name in devices]
    made = build_scene(cluster(mig("n1"), old))
    (item,) = made.cards[0].frame.frames[0].frames[0].items
    assert isinstance(item, PartitionedDevice)
    return Page(partitioned_device_html(item, Drawing(size, Drawing.of(made).claims, (GPU,))))


def test_a_partitioned_device_at_full_size():
    page = drawn(DrawingSize.FULL, "3g-20gb-0", "1g-5gb-4")
    assert page.text.startswith("gpu-0 5 of 8 slots used memory: 15Gi of 40192Mi left multiprocessors: 28 of 98")
    assert len(page.having("tile")) == 2
    runs = page.having("on")[:2]
    assert [(run["data-claim"], str(run["style"]).partition(";")[2]) for run in runs] == [
        ("0", "left:0.00%;width:50.00%"), ("1", "left:50.00%;width:12.50%"),
    ]  # fmt: skip
    assert str(page.tags[0][1]["title"]).endswith("14 devices share it")


def test_a_partitioned_device_at_medium_size():
    page = drawn(DrawingSize.MEDIUM, "3g-20gb-0")
    assert "memory: 20224Mi left 3g.20gb 3g-20gb-0 available:" in page.text
    assert "multiprocessors" not in page.text


def test_a_partitioned_device_at_small_size():
    page = drawn(DrawingSize.SMALL, "7g-40gb-0")
    (item,) = page.having("counter-set")
    assert item["title"] == "gpu-0: gpu-0-mig-7g-40gb-0 by 7g-40gb-0 in use; available: none"
    assert item["role"] == "img", "a screen reader reads the title"
    assert [attributes["aria-label"] for attributes in page.having("strip")] == ["memory-slice-0…7: 8 of 8 used"]


@pytest.mark.parametrize("size", DrawingSize)
def test_nothing_in_use(size: DrawingSize):
    assert drawn(size).having("on") == []
