from __future__ import annotations

from dra_sdk.model.quantity import Quantity
from dra_sdk.tools.scheduling.allocator import Inventory
from dra_sdk.tools.scheduling.picture.published_devices import (
    AmountBar,
    DeviceTile,
    PartitionedDevice,
    partition_kind,
    partitioned_device,
    published_devices,
)
from tests.tools.scheduling.clusters import GPU, NUMA, claim, device, exactly, gpus, mig, obj, pool_slice, with_devices


def one(*slices: object, claims: object = ()) -> DeviceTile:
    return published_devices(Inventory(slices), claims).tiles[0]  # type: ignore[arg-type]


def test_a_device():
    tile = one(gpus("n1"))
    assert (tile.id, tile.name, tile.node, tile.accessible_from) == ((GPU, "n1", "gpu-0"), "gpu-0", "n1", "")
    assert tile.attributes[NUMA] == 0
    assert str(tile.capacity["memory"]) == "40Gi"
    assert tile.uses == ()


def test_uses():
    old = with_devices(
        claim("c", exactly("g", GPU)), ("g", GPU, "n1", "gpu-0"), shareID="s", consumedCapacity={"memory": "1Gi"}
    )
    admin = with_devices(claim("a", exactly("g", GPU)), ("g", GPU, "n1", "gpu-0"), adminAccess=True)
    tile = one(gpus("n1"), claims=[old, admin, claim("waits", exactly("g", GPU))])
    assert [(use.claim[1], use.admin) for use in tile.uses] == [("c", False), ("a", True)]
    assert [use.claim[1] for use in tile.holders] == ["c"]
    assert str(tile.uses[0].consumed["memory"]) == "1Gi"


def test_nodes_that_can_use_a_device():
    term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["a", "b"]}]}
    devices = [
        device("on", nodeName="n7"),
        device("all", allNodes=True),
        device(
            "some",
            nodeSelector={"nodeSelectorTerms": [term, {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]},
        ),
    ]
    published = published_devices(Inventory([pool_slice("p", GPU, devices, perDeviceNodeSelection=True)]), [])
    assert [(tile.node, tile.accessible_from) for tile in published.tiles] == [
        ("n7", ""), ("", "every node"), ("", "nodes where rack In a,b or gpu Exists"),
    ]  # fmt: skip


def test_only_the_newest_generation_and_notes_on_incomplete_pools():
    new = gpus("n1", 1)
    new["metadata"]["name"] = "newer"
    new["spec"]["pool"] |= {"generation": 2, "resourceSliceCount": 3}
    published = published_devices(Inventory([gpus("n1", 4), new]), [])
    assert [tile.name for tile in published.tiles] == ["gpu-0"]
    assert published.tiles[0].note == "incomplete pool: 1 of 3 slices of generation 2 exist"


def test_taints_of_slices_and_of_rules():
    spec = {"deviceSelector": {"device": "gpu-0"}, "taint": {"key": "x", "effect": "NoExecute"}}
    rule = obj("DeviceTaintRule", "r", version="resource.k8s.io/v1beta2", spec=spec)
    slice_ = gpus("n1", taints=[{"key": "a", "value": "b", "effect": "NoSchedule"}])
    published = published_devices(Inventory([slice_], rules=[rule]), [])
    assert [tile.taints for tile in published.tiles] == [("a=b:NoSchedule", "x:NoExecute"), ("a=b:NoSchedule",)]


def test_a_device_that_an_invalid_slice_has_twice_is_shown_twice():
    tiles = published_devices(Inventory([pool_slice("n1", GPU, [device("a"), device("a")])]), []).tiles
    assert [(tile.name, tile.note) for tile in tiles] == [("a", "invalid pool: duplicate device name a")] * 2


def test_counters():
    published = published_devices(Inventory(mig("n1")), [])
    assert [(counter_set.name, len(counter_set.counters)) for counter_set in published.counter_sets] == [
        ("gpu-0-counter-set", 11)
    ]
    assert str(published.tiles[0].counters["gpu-0-counter-set", "memory"]) == "4864Mi"


def made(*used: str) -> PartitionedDevice:
    claims = [with_devices(claim(name, exactly("m", GPU)), ("m", GPU, "n1", f"gpu-0-mig-{name}")) for name in used]
    published = published_devices(Inventory(mig("n1")), claims)
    return partitioned_device(published.counter_sets[0], published.tiles)


def test_numbered_slots_are_a_strip():
    board = made("1g-5gb-1", "3g-20gb-4")
    (strip,) = board.strips
    assert strip.name == "memory-slice-0…7"
    assert [cell and cell[1] for cell in strip.cells] == [None, "1g-5gb-1", None, None, *["3g-20gb-4"] * 4]
    assert [bar.name for bar in board.bars] == ["memory", "multiprocessors", "copy-engines"]


def test_bars():
    memory = made("1g-5gb-1", "3g-20gb-4").bars[0]
    assert str(memory.left) == "15Gi"
    assert [round(memory.share(amount)) for _, amount in memory.parts] == [12, 50]
    assert AmountBar("x", Quantity(0), ()).share(Quantity(1)) == 0.0


def test_partitions_that_are_still_possible():
    assert dict(made().possible) == {"1g.5gb": 7, "2g.10gb": 3, "3g.20gb": 2, "4g.20gb": 1, "7g.40gb": 1}
    assert dict(made("4g-20gb-0").possible) == {"1g.5gb": 3, "2g.10gb": 1}
    assert made("7g-40gb-0").possible == ()


def test_partition_kinds():
    def of(name: str, **attributes: object) -> str:
        return partition_kind(
            published_devices(Inventory([pool_slice("n", GPU, [device(name, attributes)])]), []).tiles[0]
        )

    assert of("a-0", profile="1g.5gb", type="mig") == "1g.5gb"
    assert of("a-0", **{"x.example.com/type": "small"}) == "small"
    assert of("part-12") == "part"
