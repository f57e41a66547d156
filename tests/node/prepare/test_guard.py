"""One device, one claim: and the two exceptions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dra_sdk import AllocatedDevice
from dra_sdk.errors import DeviceHeldError, HookError
from dra_sdk.node.prepare.guard import refuse_held, refuse_taken_names
from dra_sdk.wire.state import ClaimState, DeviceState, Phase


def mine(name: str = "d", *, pool: str = "p", share: str | None = None, admin: bool = False) -> AllocatedDevice[None]:
    return AllocatedDevice("r", pool, name, None, share_id=share, admin_access=admin)


def theirs(
    name: str = "d",
    *,
    pool: str = "p",
    share: str | None = None,
    admin: bool = False,
    phase: Phase = Phase.COMPLETED,
    boot_id: str = "boot-1",
) -> ClaimState:
    device = DeviceState(request="r", pool=pool, name=name, share_id=share, admin_access=admin)
    return ClaimState(namespace="ns", name="other", uid="u-9", boot_id=boot_id, phase=phase, devices=[device])


@pytest.mark.parametrize(
    ("wanted", "held"),
    [
        (mine(), theirs()),
        (mine(), theirs(phase=Phase.STARTED)),
        (mine(), theirs(boot_id="boot-0")),
        (mine(share="s-1"), theirs()),
        (mine(), theirs(share="s-1")),
        (mine(share=""), theirs(share="")),
    ],
)
def test_a_held_device_is_refused_and_its_holder_named(wanted: AllocatedDevice[None], held: ClaimState) -> None:
    with pytest.raises(DeviceHeldError, match=r"device p/d is held by claim ns/other \(u-9\)"):
        refuse_held([mine("free"), wanted], [theirs("elsewhere"), held])


@pytest.mark.parametrize(
    ("wanted", "held"),
    [
        (mine(), theirs("e")),
        (mine(), theirs(pool="q")),
        (mine(admin=True), theirs()),
        (mine(), theirs(admin=True)),
        (mine(admin=True), theirs(admin=True)),
        (mine(share="s-1"), theirs(share="s-2")),
        (mine(share="s-1"), theirs(admin=True)),
    ],
)
def test_what_may_be_held_together_is_not_refused(wanted: AllocatedDevice[None], held: ClaimState) -> None:
    refuse_held([wanted], [held])


def test_one_share_among_whole_devices_opens_no_door() -> None:
    for wanted in ([mine(), mine(share="s-1")], [mine(share="s-1"), mine()]):
        with pytest.raises(DeviceHeldError):
            refuse_held(wanted, [theirs(share="s-2")])


def test_admin_access_of_one_request_opens_no_door_for_another() -> None:
    for wanted in ([mine(admin=True), mine()], [mine(), mine(admin=True)]):
        with pytest.raises(DeviceHeldError):
            refuse_held(wanted, [theirs()])


def test_every_device_of_every_claim_counts() -> None:
    many = replace(theirs(), devices=[DeviceState("r", "p", f"d-{index}") for index in range(3)])
    with pytest.raises(DeviceHeldError, match="p/d-2"):
        refuse_held([mine("d-2")], [theirs("x"), many])


def test_nobody_else_holds_nothing() -> None:
    refuse_held([mine()], [])
    refuse_held([], [theirs()])


def test_a_cdi_name_of_another_claim_is_refused_and_its_holder_named() -> None:
    def named(*names: str) -> ClaimState:
        return replace(theirs(), devices=[DeviceState("r", "p", "d", cdi_ids=[f"a/b={name}" for name in names])])

    refuse_taken_names(named("x"), [named("y"), named(), theirs()])
    with pytest.raises(HookError, match=r"the CDI name 'x', which a device of claim ns/other \(u-9\) has"):
        refuse_taken_names(named("w", "x"), [named("y"), named("z", "x")])
