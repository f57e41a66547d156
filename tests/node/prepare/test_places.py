"""State lies where a power failure leaves what the driver needs, and follows the driver when it changes."""

from __future__ import annotations

from pathlib import Path

from dra_sdk.node.prepare.files import Files
from dra_sdk.node.prepare.places import claim_store, settle
from dra_sdk.node.prepare.store import ClaimStore
from dra_sdk.wire.state import ClaimState, Phase

BOOT = "0a1b2c3d"


def opened(data: Path, *, undoable: bool, boot: str = BOOT, shared: bool = False) -> ClaimStore:
    store = claim_store(data, boot, Files(), undoable=undoable, shared=shared)
    settle(store, data, boot)
    store.open()
    return store


def state(uid: str, boot: str = BOOT) -> ClaimState:
    return ClaimState(namespace="ns", name="c", uid=uid, boot_id=boot, phase=Phase.COMPLETED, devices=[])


def names(store: ClaimStore) -> list[str]:
    return [each.uid for each in store.all()]


def test_a_driver_that_undoes_keeps_its_state_over_reboots(tmp_path: Path) -> None:
    opened(tmp_path, undoable=True).put(state("u-1"))
    assert names(opened(tmp_path, undoable=True, boot="another")) == ["u-1"]


def test_a_driver_that_undoes_nothing_starts_anew_after_a_reboot(tmp_path: Path) -> None:
    store = opened(tmp_path, undoable=False)
    store.put(state("u-1"))
    assert names(opened(tmp_path, undoable=False)) == ["u-1"]
    store.path("u-1").write_bytes(b"torn by a power failure")
    assert names(opened(tmp_path, undoable=False, boot="another")) == []
    assert [path.name for path in tmp_path.iterdir()] == ["claims-another"]


def test_claims_follow_a_driver_that_gains_or_loses_the_hook(tmp_path: Path) -> None:
    opened(tmp_path, undoable=False).put(state("u-1"))
    gained = opened(tmp_path, undoable=True)
    assert names(gained) == ["u-1"]
    gained.put(state("u-2"))
    lost = opened(tmp_path, undoable=False)
    assert names(lost) == ["u-1", "u-2"]
    assert [path.name for path in tmp_path.iterdir()] == [f"claims-{BOOT}"]


def test_two_instances_meet_in_the_durable_place_whatever_they_are(tmp_path: Path) -> None:
    old, new = opened(tmp_path, undoable=True, shared=True), opened(tmp_path, undoable=False, shared=True)
    old.put(state("u-1"))
    assert names(new) == ["u-1"]
