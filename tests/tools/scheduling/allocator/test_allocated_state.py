from __future__ import annotations

from dra_sdk.tools.scheduling.allocator import AllocatedState, DeviceId
from dra_sdk.tools.scheduling.allocator.quantities import NANOS_PER_UNIT
from tests.tools.scheduling.allocator.build import DRIVER, claim, held, request

GPU = DeviceId(DRIVER, "n1", "gpu-0")


def share(share_id: str, **consumed: str) -> dict[str, object]:
    return held("gpu-0", shareID=share_id, consumedCapacity=consumed)


def test_claims_hold_the_devices_of_their_allocation() -> None:
    state = AllocatedState.of([held("gpu-0", "gpu-1"), claim(request("r"))])
    assert {device.device for device in state.devices} == {"gpu-0", "gpu-1"}
    assert str(GPU) == "gpu.example.com/n1/gpu-0"


def test_admin_access_holds_nothing() -> None:
    assert not AllocatedState.of([held("gpu-0", adminAccess=True)]).devices


def test_shares_add_up() -> None:
    state = AllocatedState.of([share("a", memory="1Gi"), share("b", memory="2Gi", cores="500m")])
    assert state.aggregated_capacity[GPU] == {"memory": 3 * 2**30 * NANOS_PER_UNIT, "cores": NANOS_PER_UNIT // 2}
    assert not state.devices
    assert state.is_in_use(GPU)


def test_removed_devices_are_free_again() -> None:
    claims = [held("gpu-1"), share("a", memory="1Gi"), share("b", memory="2Gi")]
    state = AllocatedState.of(claims)
    for released in claims[:2]:
        state.remove(released)
    assert not state.devices
    assert state.share_ids == {GPU: {"b"}}
    state.remove(claims[2])
    assert not state.is_in_use(GPU)


def test_without_sharing_a_shared_device_is_unavailable_to_others() -> None:
    state = AllocatedState.of([share("a")])
    assert GPU not in state.unavailable_devices(sharing=True)
    assert GPU in state.unavailable_devices(sharing=False)
