from __future__ import annotations

from dra_sdk.tools.scheduling.allocator import Allocated, DeviceId
from dra_sdk.tools.scheduling.allocator.amounts import UNIT
from tests.tools.scheduling.allocator.build import DRIVER, claim, held, request

GPU = DeviceId(DRIVER, "n1", "gpu-0")


def share(share_id: str, **consumed: str) -> dict[str, object]:
    return held("gpu-0", shareID=share_id, consumedCapacity=consumed)


def test_claims_hold_the_devices_of_their_allocation() -> None:
    found = Allocated.of([held("gpu-0", "gpu-1"), claim(request("r"))])
    assert {each.device for each in found.devices} == {"gpu-0", "gpu-1"}
    assert str(GPU) == "gpu.example.com/n1/gpu-0"


def test_admin_access_holds_nothing() -> None:
    assert not Allocated.of([held("gpu-0", adminAccess=True)]).devices


def test_shares_add_up() -> None:
    found = Allocated.of([share("a", memory="1Gi"), share("b", memory="2Gi", cores="500m")])
    assert found.capacity[GPU] == {"memory": 3 * 2**30 * UNIT, "cores": UNIT // 2}
    assert not found.devices
    assert found.holds(GPU)


def test_what_is_removed_is_free_again() -> None:
    claims = [held("gpu-1"), share("a", memory="1Gi"), share("b", memory="2Gi")]
    found = Allocated.of(claims)
    for each in claims[:2]:
        found.remove(each)
    assert not found.devices
    assert found.shares == {GPU: {"b"}}
    found.remove(claims[2])
    assert not found.holds(GPU)


def test_without_sharing_shared_devices_are_taken_by_one() -> None:
    found = Allocated.of([share("a")])
    assert GPU not in found.exclusive(sharing=True)
    assert GPU in found.exclusive(sharing=False)


def test_a_copy_is_independent_and_every_change_counts() -> None:
    found = Allocated.of([share("a", memory="1")])
    other, before = found.copy(), found.revision
    other.add(share("b", memory="1"))
    assert found.capacity[GPU] == {"memory": UNIT}
    assert found.revision == before
    found.add(held("gpu-2"))
    assert found.revision > before
