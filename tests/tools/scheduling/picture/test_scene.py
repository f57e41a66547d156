from __future__ import annotations

from dra_sdk.tools.scheduling.picture.published_devices import DeviceTile, PartitionedDevice
from dra_sdk.tools.scheduling.picture.scene import AlignmentFrame, SceneItem, build_scene, in_use
from tests.tools.scheduling.clusters import (
    GPU,
    NUMA,
    ROOT,
    claim,
    cluster,
    device,
    exactly,
    gpus,
    mig,
    nics,
    pod,
    pool_slice,
    with_devices,
)


def names(items: tuple[SceneItem, ...]) -> list[str]:
    return [item.name for item in items]


def shape(frame: AlignmentFrame) -> object:
    return (frame.title, names(frame.items), [shape(inner) for inner in frame.frames])


def test_devices_of_all_drivers_in_their_frames():
    card = build_scene(cluster(gpus("n1"), nics("n1"))).cards[0]
    assert shape(card.frame) == (
        "",
        [],
        [
            ("NUMA node 0", [], [("pci0000:00", ["gpu-0", "nic-0"], [])]),
            ("NUMA node 1", [], [("pci0000:01", ["gpu-1", "nic-1"], [])]),
        ],
    )


def test_devices_without_alignment_and_frames_sorted_by_number():
    devices = [device(f"d{node}", {NUMA: node}) for node in (10, 2)]
    loose = [device("free"), device("nowhere", {NUMA: -1, ROOT: ""}), device("several", {ROOT: ["a", "b"]})]
    card = build_scene(cluster(pool_slice("n1", GPU, [*devices, *loose]))).cards[0]
    assert names(card.frame.items) == ["free", "nowhere", "several"]
    assert [frame.title for frame in card.frame.frames] == ["NUMA node 2", "NUMA node 10"]


def test_partitions_are_shown_by_counter_set():
    frame = build_scene(cluster(mig("n1", 2))).cards[0].frame
    boards = [item for numa in frame.frames for root in numa.frames for item in root.items]
    assert [(type(board), board.name) for board in boards] == [
        (PartitionedDevice, "gpu-0"),
        (PartitionedDevice, "gpu-1"),
    ]
    assert isinstance(boards[0], PartitionedDevice)
    assert len(boards[0].tiles) == 14


def test_cards():
    fabric = pool_slice("fabric", "f.example.com", [device("link")], allNodes=True)
    old = with_devices(claim("c", exactly("g", GPU)), ("g", GPU, "n1", "gpu-0"), pod="p")
    drawn = build_scene(cluster(gpus("n1"), fabric, old, pod("p", "c", node="n1"), nodes=["n0"]))
    assert [(card.name, card.is_node, in_use(card.tiles)) for card in drawn.cards] == [
        ("n0", True, "0 of 0 in use"), ("n1", True, "1 of 2 in use"), ("every node", False, "0 of 1 in use"),
    ]  # fmt: skip
    assert drawn.cards[1].pods == (("default", "p"),)
    (row,) = drawn.claims
    assert (row.key, row.color, row.pods) == (("default", "c"), 0, ("p",))
    assert [(request, tile.name) for request, tile in row.devices] == [("g", "gpu-0")]


def test_devices_of_nodes_that_do_not_exist():
    snapshot = cluster(gpus("n1")).without("Node", ("", "n1"))
    (card,) = build_scene(snapshot).cards
    assert (card.name, card.is_node) == ("n1 (no such node)", False)


def test_partitions_in_use_have_no_total():
    old = with_devices(claim("c", exactly("m", GPU)), ("m", GPU, "n1", "gpu-0-mig-1g-5gb-0"))
    assert in_use(build_scene(cluster(mig("n1"), old)).cards[0].tiles) == "1 in use"
    assert all(isinstance(tile, DeviceTile) for tile in build_scene(cluster(mig("n1"))).tiles)
