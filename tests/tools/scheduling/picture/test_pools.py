from __future__ import annotations

from dra_sdk.tools.scheduling.allocator import Inventory
from dra_sdk.tools.scheduling.picture.pools import Tile, pools
from tests.tools.scheduling.worlds import GPU, NUMA, claim, device, exactly, given, gpus, mig, obj, pool_slice


def one(*slices: object, claims: object = ()) -> Tile:
    return pools(Inventory(slices), claims).tiles[0]  # type: ignore[arg-type]


def test_a_device():
    found = one(gpus("n1"))
    assert (found.id, found.name, found.place, found.reach) == ((GPU, "n1", "gpu-0"), "gpu-0", "n1", "")
    assert found.attributes[NUMA] == 0
    assert str(found.capacity["memory"]) == "40Gi"
    assert found.uses == ()


def test_uses():
    old = given(
        claim("c", exactly("g", GPU)), ("g", GPU, "n1", "gpu-0"), shareID="s", consumedCapacity={"memory": "1Gi"}
    )
    admin = given(claim("a", exactly("g", GPU)), ("g", GPU, "n1", "gpu-0"), adminAccess=True)
    found = one(gpus("n1"), claims=[old, admin, claim("waits", exactly("g", GPU))])
    assert [(each.claim[1], each.admin) for each in found.uses] == [("c", False), ("a", True)]
    assert [each.claim[1] for each in found.holders] == ["c"]
    assert str(found.uses[0].consumed["memory"]) == "1Gi"


def test_places():
    term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["a", "b"]}]}
    devices = [
        device("on", nodeName="n7"),
        device("all", allNodes=True),
        device(
            "some",
            nodeSelector={"nodeSelectorTerms": [term, {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]},
        ),
    ]
    found = pools(Inventory([pool_slice("p", GPU, devices, perDeviceNodeSelection=True)]), [])
    assert [(each.place, each.reach) for each in found.tiles] == [
        ("n7", ""), ("", "every node"), ("", "nodes where rack In a,b or gpu Exists"),
    ]  # fmt: skip


def test_the_newest_generation_counts_and_incomplete_pools_are_told_of():
    new = gpus("n1", 1)
    new["metadata"]["name"] = "newer"
    new["spec"]["pool"] |= {"generation": 2, "resourceSliceCount": 3}
    found = pools(Inventory([gpus("n1", 4), new]), [])
    assert [each.name for each in found.tiles] == ["gpu-0"]
    assert found.tiles[0].note == "incomplete pool: 1 of 3 slices of generation 2 are there"


def test_taints_of_slices_and_of_rules():
    spec = {"deviceSelector": {"device": "gpu-0"}, "taint": {"key": "x", "effect": "NoExecute"}}
    rule = obj("DeviceTaintRule", "r", version="resource.k8s.io/v1beta2", spec=spec)
    slice_ = gpus("n1", taints=[{"key": "a", "value": "b", "effect": "NoSchedule"}])
    found = pools(Inventory([slice_], rules=[rule]), [])
    assert [each.taints for each in found.tiles] == [("a=b:NoSchedule", "x:NoExecute"), ("a=b:NoSchedule",)]


def test_counters():
    found = pools(Inventory(mig("n1")), [])
    assert [(each.name, len(each.counters)) for each in found.sets] == [("gpu-0-counter-set", 11)]
    assert str(found.tiles[0].counters["gpu-0-counter-set", "memory"]) == "4864Mi"
