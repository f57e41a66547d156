from __future__ import annotations

import base64
import hashlib
import re

import pytest

from dra_sdk.tools.scheduling.cluster import schedule
from dra_sdk.tools.scheduling.picture import NotPlaced, build_scene, render_page
from dra_sdk.tools.scheduling.picture.drawing import Drawing
from dra_sdk.tools.scheduling.picture.page import cards_html
from tests.tools.scheduling.clusters import (
    GPU,
    JSON,
    NIC,
    NUMA,
    ROOT,
    claim,
    cluster,
    device,
    device_class,
    exactly,
    gpus,
    mig,
    nics,
    pod,
    pool_slice,
    with_devices,
)
from tests.tools.scheduling.picture.html_page import ATTRIBUTES, KNOWN, Page

HOSTILE = """"'><script>alert(1)</script><img src=x onerror=alert(1)>&amp;</style></title>"""


def fleet(nodes: int) -> list[JSON]:
    return [raw_slice for index in range(nodes) for raw_slice in (gpus(f"n{index}", 8), nics(f"n{index}", 8))]


def test_the_whole_page():
    wanted = [
        claim("pair", exactly("gpu", GPU), exactly("nic", NIC), constraints=[{"matchAttribute": ROOT}]),
        pod("p", "pair"),
    ]
    cpus = device("numa-0", {}, {"cpu": "32"}, allowMultipleAllocations=True)
    half = with_devices(
        claim("cpus", exactly("c", "cpu")), ("c", "dra.cpu", "n1", "numa-0"), shareID="s", consumedCapacity={"cpu": "8"}
    )
    tainted = gpus("n2", 1, taints=[{"key": "broken", "effect": "NoSchedule"}])
    outcome = schedule(
        cluster(gpus("n1"), nics("n1"), tainted, pool_slice("n1", "dra.cpu", [cpus]), half, wanted, nodes=["n3"])
    )
    shown = Page(
        render_page(build_scene(outcome.snapshot, [NotPlaced("pod q", "no room"), NotPlaced("pod r", "no room")]))
    )
    for text in ("3 nodes · devices: 3 of 6 in use · 2 claims placed · 2 not placed", "pod q, pod r no room",
                 "pods: p", "NUMA node 0", "pci0000:00", "A100 · 40Gi", "cpu: 24 of 32 left", "taint broken:NoSchedule",
                 "Without devices: n3", "pair p n1 gpu: n1/gpu-0, nic: n1/nic-0"):  # fmt: skip
        assert text in shown.text
    used = [
        attributes
        for attributes in shown.having("tile")
        if "used" in str(attributes["class"]).split() and attributes.get("data-claim") is not None
    ]
    assert len({attributes["data-claim"] for attributes in used}) == 2, "both devices of a claim have one colour"
    assert "used by claim pair, request gpu" in str(used[1]["title"])


def test_partitions():
    old = with_devices(claim("c", exactly("m", GPU)), ("m", GPU, "n1", "gpu-0-mig-3g-20gb-4"))
    shown = Page(render_page(build_scene(cluster(mig("n1"), old))))
    assert "memory-slice-0…7: 4 of 8 used" in [attributes.get("aria-label") for _, attributes in shown.tags]
    assert "memory: 20224Mi of 40192Mi left" in shown.text
    assert "available: 1g.5gb \N{MULTIPLICATION SIGN}4 2g.10gb \N{MULTIPLICATION SIGN}2" in shown.text


@pytest.mark.parametrize("nodes", [1, 8, 30])
def test_each_size_is_valid_html_and_names_every_device(nodes: int):
    shown = Page(render_page(build_scene(cluster(fleet(nodes)))))
    assert {tag for tag, _ in shown.tags} <= KNOWN
    assert len([attributes for attributes in shown.having("tile") if attributes.get("title")]) == 16 * nodes
    labels = " ".join(attributes.get("aria-label") or "" for attributes in shown.having("tile"))
    for index in range(8):
        assert re.search(rf"\bgpu-{index}\b", f"{shown.text} {labels}"), "a screen reader finds it without tooltips"


def test_partitions_of_eight_nodes():
    parts = [raw_slice for index in range(8) for raw_slice in mig(f"n{index}", 8)]
    old = [with_devices(claim(f"c{i}", exactly("m", GPU)), ("m", GPU, f"n{i}", "gpu-0-mig-1g-5gb-0")) for i in range(8)]
    shown = Page(render_page(build_scene(cluster(parts, old))))
    assert len(shown.having("counter-set")) == 64
    assert len(shown.having("part")) == 8
    small = [raw_slice for index in range(41) for raw_slice in mig(f"n{index}", 8)]
    sets = Page(render_page(build_scene(cluster(small, old)))).having("counter-set")
    assert str(sets[0]["title"]).startswith("gpu-0: gpu-0-mig-1g-5gb-0 by c0 in use; available:")


def test_the_page_loads_nothing():
    content = render_page(build_scene(cluster(fleet(1))))
    assert not re.search(r"https?://|src=|href=|url\(|@import", content)
    policy = next(attributes["content"] for tag, attributes in Page(content).tags if "http-equiv" in attributes)
    script = content.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


@pytest.mark.parametrize("nodes", [1, 8, 30])
def test_names_with_markup_are_escaped(nodes: int):
    values = {"productName": HOSTILE, NUMA: HOSTILE, ROOT: HOSTILE, HOSTILE: HOSTILE, "profile": HOSTILE}
    taints = [{"key": HOSTILE, "value": HOSTILE, "effect": "NoSchedule"}]
    bad = [
        device(HOSTILE, values, {HOSTILE: "8"}, taints=taints, allowMultipleAllocations=True),
        device("other", values),
    ]
    counters = {
        "name": HOSTILE,
        "counters": {HOSTILE: {"value": "3"}, f"{HOSTILE}-0": {"value": "1"}, f"{HOSTILE}-1": {"value": "1"}},
    }
    consumes = [{"counterSet": HOSTILE, "counters": counters["counters"]}]
    parts = [device("part", values, consumesCounters=consumes), device("more", values, consumesCounters=consumes)]
    slices = [
        pool_slice(HOSTILE, GPU, bad),
        pool_slice(HOSTILE, NIC, parts, count=2),
        pool_slice(HOSTILE, NIC, part="1", count=2, sharedCounters=[counters]),
        pool_slice(
            "net",
            HOSTILE,
            [device("x")],
            nodeSelector={"nodeSelectorTerms": [{"matchExpressions": [{"key": HOSTILE, "operator": "Exists"}]}]},
        ),
    ]
    old = with_devices(claim(HOSTILE, exactly(HOSTILE, GPU), namespace=HOSTILE), (HOSTILE, GPU, HOSTILE, HOSTILE),
                (HOSTILE, NIC, HOSTILE, "part"), pod=HOSTILE, shareID="s", consumedCapacity={HOSTILE: "1"})  # fmt: skip
    objects = [*slices, *fleet(nodes - 1), old, pod(HOSTILE, node=HOSTILE, namespace=HOSTILE), device_class("x")]
    content = render_page(build_scene(cluster(objects), [NotPlaced(HOSTILE, HOSTILE)]), title=HOSTILE)
    shown = Page(content)
    assert {tag for tag, _ in shown.tags} <= KNOWN
    assert {name for _, attributes in shown.tags for name in attributes} <= ATTRIBUTES
    assert [tag for tag, _ in shown.tags].count("script") == 1
    assert [tag for tag, _ in shown.tags].count("style") == 1
    styles = [str(attributes["style"]) for _, attributes in shown.tags if "style" in attributes]
    assert all(re.fullmatch(r"--n:\d+|--h:\d+(;left:[\d.]+%)?(;width:[\d.]+%)?", style) for style in styles)
    assert HOSTILE in " ".join(shown.texts)


def test_many_claims_are_folded():
    old = [with_devices(claim(f"c{index}", exactly("g", GPU)), ("g", GPU, f"n{index}", "gpu-0")) for index in range(41)]
    slices = [gpus(f"n{index}", 1) for index in range(41)]
    folded = [
        attributes for tag, attributes in Page(render_page(build_scene(cluster(slices, old)))).tags if tag == "details"
    ]
    open_ = [
        attributes
        for tag, attributes in Page(render_page(build_scene(cluster(slices, old[:40])))).tags
        if tag == "details"
    ]
    assert ("open" in folded[-1], "open" in open_[-1]) == (False, True)


def test_many_unplaced_pods_with_one_reason():
    shown = Page(render_page(build_scene(cluster(), [NotPlaced(f"pod p{index}", "no room") for index in range(14)])))
    assert "pod p11 and 2 more no room" in shown.text


def drawn(*objects: object, nodes: tuple[str, ...] = ()) -> Page:
    made = build_scene(cluster(*objects, nodes=nodes))  # type: ignore[arg-type]
    return Page(cards_html(made, Drawing.of(made)))


def test_a_node():
    page = drawn(gpus("n1"), nics("n1"), pod("p", node="n1", namespace="ml"))
    assert page.text.startswith("Nodes 1 node with ")
    assert (
        "4 free as a whole, 0 partly in use n1 0 of 4 in use pods: ml/p NUMA node 0 pci0000:00 gpu.nvidia.com"
        in page.text
    )
    assert [attributes["title"] for tag, attributes in page.tags if tag == "fieldset"][:2] == [
        "NUMA node 0 of n1",
        "pci0000:00 of n1",
    ]


def test_nodes_with_problems_come_first_and_like_nodes_are_together():
    broken = gpus("n3", 1, taints=[{"key": "broken", "effect": "NoSchedule"}])
    page = drawn([gpus("n1", 8), gpus("n2", 2), broken, gpus("n4", 8)])
    groups = [attributes["data-group"] for tag, attributes in page.tags if "data-group" in attributes]
    assert groups[0] == "Nodes with problems"
    assert [title.split(" with ")[0] for title in groups[1:]] == ["2 nodes", "1 node"]
    assert [attributes["data-node"] for _, attributes in page.tags if "data-node" in attributes] == [
        "n3",
        "n1",
        "n4",
        "n2",
    ]
    assert "n3 0 of 1 in use gpu-0: taint broken:NoSchedule" in page.text


def test_a_pool_that_is_not_named_after_its_node():
    other = pool_slice("rack", GPU, [device("a", nodeName="n1")], perDeviceNodeSelection=True)
    assert "gpu.nvidia.com pool rack a" in drawn(other).text


def test_devices_that_several_nodes_can_use():
    page = drawn(pool_slice("rack", GPU, [device("a")], allNodes=True), nodes=("n1", "n2"))
    assert "For every node 0 of 1 in use" in page.text
    assert page.text.endswith("Without devices: n1, n2")
    assert len(page.having("several-nodes")) == 1


def test_many_nodes_are_in_batches_of_few_elements():
    page = drawn([raw_slice for index in range(50) for raw_slice in (*mig(f"n{index}", 8), nics(f"n{index}", 8))])
    assert len(page.having("cards")) == 3, "a browser draws what is in view"
    assert len(page.having("card")) == 50
    assert len(page.tags) < 80 * 50
    frames = [attributes["title"] for attributes in page.having("frame")]
    assert frames[:2] == ["pci0000:00 of n0", "pci0000:01 of n0"]
    assert len(frames) == 8 * 50
