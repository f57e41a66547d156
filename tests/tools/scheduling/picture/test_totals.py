"""How much hardware there is, is free, and is scattered."""

from __future__ import annotations

from dra_sdk.tools.scheduling.cluster.fragmentation import driver_fragmentation, pool_fragmentation
from dra_sdk.tools.scheduling.picture.scene import build_scene
from dra_sdk.tools.scheduling.picture.totals import HardwareTotal, card_problems, hardware_totals, like_nodes
from tests.tools.scheduling.clusters import GPU, claim, cluster, device, exactly, gpus, mig, pool_slice, with_devices


def totals(*objects: object) -> list[HardwareTotal]:
    scene = build_scene(cluster(*objects))  # type: ignore[arg-type]
    return hardware_totals(scene.cards, scene.pieces)


def numbers(total: HardwareTotal) -> tuple[int, ...]:
    return total.pieces, total.free, total.partly, total.used, total.unavailable, total.fragmentation


def held(name: str, *devices: str) -> object:
    return with_devices(claim(name, exactly("g", GPU)), *(("g", GPU, "n1", name) for name in devices))


def test_the_figures_are_those_that_simulate_prints() -> None:
    shared = pool_slice("n1", GPU, [device("a", {"model": "M"}, {"memory": "8Gi"}, allowMultipleAllocations=True)])
    quarter = with_devices(
        claim("c", exactly("x", GPU)), ("x", GPU, "n1", "a"), shareID="s", consumedCapacity={"memory": "2Gi"}
    )
    clusters = [
        (gpus("n1", 4), held("c", "gpu-0")),
        (gpus("n1", 2, taints=[{"key": "broken", "effect": "NoSchedule"}]),),
        (mig("n1", 3), held("small", "gpu-0-mig-1g-5gb-0"), held("all", "gpu-1-mig-7g-40gb-0")),
        (shared, quarter),
    ]
    for objects in clusters:
        (drawn,) = totals(*objects)
        (printed,) = driver_fragmentation(pool_fragmentation(cluster(*objects)))  # type: ignore[arg-type]
        assert (drawn.pieces, drawn.fragmentation) == (printed.pieces, round(100 * printed.figure))


def test_devices_with_one_pci_address_are_one_piece() -> None:
    address = {"resource.kubernetes.io/pciBusID": "0000:01:00.0"}
    parts = pool_slice("n1", GPU, [device(name, {"model": "M", **address}) for name in ("a", "b")])
    (found,) = totals(parts, held("c", "a"))
    assert numbers(found) == (1, 0, 1, 0, 0, 100)


def test_whole_devices() -> None:
    tainted = gpus("n2", 1, taints=[{"key": "broken", "effect": "NoSchedule"}])
    (found,) = totals(gpus("n1", 4), tainted, held("c", "gpu-0"))
    assert numbers(found) == (5, 3, 0, 1, 1, 0)


def test_a_gpu_with_a_claim_on_one_partition_is_partly_in_use() -> None:
    (found,) = totals(mig("n1", 3), held("small", "gpu-0-mig-1g-5gb-0"), held("all", "gpu-1-mig-7g-40gb-0"))
    assert numbers(found)[:5] == (3, 1, 1, 1, 0)
    assert 40 < found.fragmentation < 50, "nearly one GPU of nearly two that are free"


def test_a_shared_device_has_what_its_claims_leave() -> None:
    shared = pool_slice("n1", GPU, [device("a", {"model": "M"}, {"memory": "8Gi"}, allowMultipleAllocations=True)])
    quarter = with_devices(
        claim("c", exactly("x", GPU)), ("x", GPU, "n1", "a"), shareID="s", consumedCapacity={"memory": "2Gi"}
    )
    (found,) = totals(shared, quarter)
    assert (found.kind, numbers(found)) == ("M", (1, 0, 1, 0, 0, 100))


def test_nodes_are_alike_by_their_hardware() -> None:
    fabric = pool_slice("fabric", "f.example.com", [device("link")], allNodes=True)
    cards = build_scene(cluster(gpus("n1", 2), gpus("n2", 2), gpus("n3", 4), fabric)).cards
    assert [[card.name for card in group.cards] for group in like_nodes(cards)] == [
        ["n1", "n2"],
        ["n3"],
        ["every node"],
    ]


def test_problems_of_a_card() -> None:
    snapshot = cluster(gpus("n1", 2, taints=[{"key": "t", "effect": "NoSchedule"}])).without("Node", ("", "n1"))
    (card,) = build_scene(snapshot).cards
    assert card_problems(card) == ["there is no such node", "gpu-0, gpu-1: taint t:NoSchedule"]
    (fine,) = build_scene(cluster(gpus("n1"))).cards
    assert card_problems(fine) == []
