"""Prepare and unprepare of one claim after another: what is answered, what is undone, what is left."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Iterator

import pytest

from dra_sdk import Claim, ContainerEdits, HeldDevice, PermanentError, PreparedDevice
from dra_sdk.errors import (
    ClaimError,
    ConfigError,
    DeviceHeldError,
    HookError,
    NotFoundError,
    StateError,
)
from dra_sdk.model.claim import ClaimRef
from dra_sdk.node.files import Files, claim_lock
from dra_sdk.wire.cdi.reading import check_spec
from tests.lamps import NAME, LampConfig, LampDriver
from tests.node.prepare.world import POOL, FailingDisk, FailingDriver, World

KIND = f"{NAME}/device"


# --- answers


def test_a_claim_is_prepared_answered_and_remembered(world: World) -> None:
    ref = world.claim("u-1", ("r", "lamp-0"), ("s/big", "lamp-1"))
    answer = world.preparer().prepare(ref)
    assert answer == (
        HeldDevice("r", POOL, "lamp-0", data={"lamp": "lamp-0"}, cdi_ids=(f"{KIND}=claim-u-1_r_lamp-0",)),
        HeldDevice("s/big", POOL, "lamp-1", data={"lamp": "lamp-1"}, cdi_ids=(f"{KIND}=claim-u-1_s.big_lamp-1",)),
    )
    assert world.shining() == {"lamp-0": "u-1", "lamp-1": "u-1"}
    assert world.states() == ["u-1.json"]
    (spec,) = world.specs().values()
    assert check_spec(spec) == spec


def test_each_request_gets_the_edits_of_its_own_devices_only(world: World) -> None:
    world.preparer().prepare(world.claim("u-1", ("a", "lamp-0"), ("b", "lamp-1")))
    (spec,) = world.specs().values()
    edits = {each["name"]: each["containerEdits"]["env"] for each in spec["devices"]}
    assert edits == {
        "claim-u-1_a_lamp-0": ["LAMP=lamp-0", "BRIGHTNESS=100"],
        "claim-u-1_b_lamp-1": ["LAMP=lamp-1", "BRIGHTNESS=100"],
    }


def test_devices_without_edits_have_no_cdi_id_and_make_no_spec(world: World) -> None:
    class Plain(LampDriver):
        def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
            yield from (device.prepared() for device in claim.devices)

    answer = world.preparer(Plain(world.lamps)).prepare(world.claim("u-1", "lamp-0", "lamp-1"))
    assert [each.cdi_ids for each in answer] == [(), ()]
    assert world.specs() == {}


def test_shares_of_one_device_are_answered_each_for_itself(world: World) -> None:
    class Shared(LampDriver):
        def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
            for device in claim.devices:
                yield device.prepared(ContainerEdits(env={"SHARE": str(device.share_id)}))

    share = {"request": "r", "device": "lamp-0"}
    ref = world.claim("u-1", {**share, "shareID": "s-1"}, {**share, "shareID": "s-2"})
    answer = world.preparer(Shared(world.lamps)).prepare(ref)
    assert [each.share_id for each in answer] == ["s-1", "s-2"]
    assert len({each.cdi_ids for each in answer}) == 2


def test_the_hook_sees_the_claim_its_configuration_and_the_published_device(world: World) -> None:
    seen: list[Claim[LampConfig]] = []

    class Look(LampDriver):
        def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
            seen.append(claim)
            yield from (device.prepared() for device in claim.devices)

    parameters = {"apiVersion": f"{NAME}/v1", "kind": "LampConfig", "brightness": 7}
    config = {"source": "FromClaim", "opaque": {"driver": NAME, "parameters": parameters}}
    ref = world.claim("u-1", "lamp-0", config=[config])
    world.preparer(Look(world.lamps)).prepare(ref)
    (claim,) = seen
    assert (claim.namespace, claim.name, claim.uid) == ("default", "claim-u-1", "u-1")
    assert claim.devices[0].config.brightness == 7
    assert claim.devices[0].device is not None
    assert claim.node.root == world.root
    assert claim.raw == world.api["u-1"]


def test_the_hook_can_ask_for_the_other_claims(world: World) -> None:
    others: list[str] = []

    class Look(LampDriver):
        def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
            others.extend(each.uid for each in claim.held())
            yield from super().dra_prepare(claim)

    preparer = world.preparer(Look(world.lamps))
    preparer.prepare(world.claim("u-1", "lamp-0"))
    preparer.prepare(world.claim("u-2", "lamp-1"))
    assert others == ["u-1"]
    assert [each.uid for each in preparer.held()] == ["u-1", "u-2"]


# --- replay


def test_a_replay_answers_the_same_without_api_and_without_the_hook(world: World) -> None:
    ref = world.claim("u-1", "lamp-0", "lamp-1")
    preparer = world.preparer()
    first = preparer.prepare(ref)
    world.api.clear()
    for again in (preparer, world.preparer(), world.preparer()):
        assert again.prepare(ref) == first
    assert world.fetched == ["u-1"]
    assert world.driver.prepared == ["u-1"]


@pytest.mark.parametrize("damage", ["file", "directory", "content"])
def test_a_replay_restores_the_cdi_spec(world: World, damage: str) -> None:
    ref = world.claim("u-1", "lamp-0")
    preparer = world.preparer()
    preparer.prepare(ref)
    before = world.specs()
    for path in list(world.cdi.iterdir()):
        path.write_bytes(b"{}") if damage == "content" else path.unlink()
    if damage == "directory":
        world.cdi.rmdir()
    preparer.prepare(ref)
    assert world.specs() == before


def test_a_restart_restores_cdi_specs_and_removes_those_of_nobody(world: World) -> None:
    world.preparer().prepare(world.claim("u-1", "lamp-0"))
    before = world.specs()
    (path,) = world.cdi.iterdir()
    path.rename(path.with_name(path.name.replace("u-1", "u-0")))
    world.preparer()
    assert world.specs() == before


def test_a_spec_that_cannot_be_restored_stops_no_other_claim(world: World, caplog: pytest.LogCaptureFixture) -> None:
    preparer = world.preparer()
    for index in range(2):
        preparer.prepare(world.claim(f"u-{index}", f"lamp-{index}"))
    before = world.specs()
    shutil.rmtree(world.cdi)
    with caplog.at_level(logging.WARNING):
        again = world.preparer(files=Files(FailingDisk(lambda step, path: step == "create" and "u-0" in path.name)))
    assert "claim default/claim-u-0 (u-0): cannot write CDI spec" in caplog.text
    assert list(world.specs()) == list(before)[1:]
    with pytest.raises(ClaimError, match="cannot write CDI spec"):
        again.prepare(ClaimRef("default", "claim-u-0", "u-0"))


# --- claims that cannot be prepared


def test_a_claim_that_is_missing_replaced_or_not_allocated_has_no_effect(world: World) -> None:
    preparer = world.preparer()
    with pytest.raises(NotFoundError, match="default/nobody not found"):
        preparer.prepare(ClaimRef("default", "nobody", "u-0"))
    ref = world.claim("u-1", "lamp-0")
    with pytest.raises(ClaimError, match="was replaced: it has UID u-1 now"):
        preparer.prepare(ClaimRef(ref.namespace, ref.name, "u-0"))
    world.api["u-1"]["status"] = {}
    with pytest.raises(ClaimError, match="not allocated"):
        preparer.prepare(ref)
    world.api["u-1"] = {"metadata": {"namespace": "default", "name": "claim-u-1", "uid": "u-1"}, "status": []}
    with pytest.raises(ClaimError, match="is not a ResourceClaim: status"):
        preparer.prepare(ref)
    assert world.driver.prepared == []
    assert world.is_clean()


def test_a_wrong_configuration_has_no_effect(world: World) -> None:
    parameters = {"apiVersion": f"{NAME}/v1", "kind": "LampConfig", "brightness": 700}
    config = {"source": "FromClass", "opaque": {"driver": NAME, "parameters": parameters}}
    with pytest.raises(ConfigError, match=r"config\[0\] of the DeviceClass: LampConfig: brightness"):
        world.preparer().prepare(world.claim("u-1", "lamp-0", config=[config]))
    assert world.is_clean()


def test_a_held_device_is_refused_until_it_is_given_back(world: World) -> None:
    preparer = world.preparer()
    first, second = world.claim("u-1", "lamp-0"), world.claim("u-2", "lamp-1", "lamp-0")
    preparer.prepare(first)
    with pytest.raises(DeviceHeldError, match=r"lamp-0 is held by claim default/claim-u-1 \(u-1\)"):
        preparer.prepare(second)
    assert world.states() == ["u-1.json"]
    preparer.unprepare(first)
    assert len(preparer.prepare(second)) == 2


def test_admin_access_sees_a_device_in_use(world: World) -> None:
    class Look(LampDriver):
        def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
            yield from (device.prepared() for device in claim.devices)

    preparer = world.preparer(Look(world.lamps))
    preparer.prepare(world.claim("u-1", "lamp-0"))
    preparer.prepare(world.claim("u-2", {"request": "r", "device": "lamp-0", "adminAccess": True}))
    with pytest.raises(DeviceHeldError, match="u-1"):
        preparer.prepare(world.claim("u-3", "lamp-0"))
    assert world.states() == ["u-1.json", "u-2.json"]


def test_a_cdi_name_that_another_claim_has_is_refused(world: World) -> None:
    class OneName(LampDriver):
        def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
            for device in claim.devices:
                yield device.prepared(ContainerEdits(env={"A": "1"}), cdi_name=device.name)

    preparer = world.preparer(OneName(world.lamps))
    first, second = (
        world.claim(f"u-{share}", {"request": "r", "device": "lamp-0", "shareID": share}) for share in "12"
    )
    preparer.prepare(first)
    with pytest.raises(HookError, match=r"CDI name 'lamp-0', which a device of claim default/claim-u-1 \(u-1\) has"):
        preparer.prepare(second)
    assert world.states() == ["u-1.json"]
    assert len(world.specs()) == 1
    preparer.unprepare(first)
    assert len(preparer.prepare(second)) == 1


# --- unprepare


def test_unprepare_leaves_nothing_needs_no_api_and_can_be_repeated(world: World) -> None:
    ref = world.claim("u-1", "lamp-0", "lamp-1")
    preparer = world.preparer()
    preparer.prepare(ref)
    world.api.clear()
    preparer.unprepare(ref)
    assert world.is_clean()
    preparer.unprepare(ref)
    world.preparer().unprepare(ref)
    assert world.fetched == ["u-1"]
    assert len(world.driver.undone) == 1


def test_unprepare_hands_over_what_was_remembered(world: World) -> None:
    ref = world.claim("u-1", {"request": "r/sub", "device": "lamp-0", "consumedCapacity": {"memory": "2Gi"}})
    world.preparer().prepare(ref)
    world.preparer().unprepare(ref)
    (held,) = world.driver.undone
    assert (held.namespace, held.name, held.uid) == ("default", "claim-u-1", "u-1")
    assert (held.complete, held.rebooted) == (True, False)
    assert held.journal == ({"lamp": "lamp-0"},)
    (device,) = held.devices
    assert (device.request, device.name, device.data) == ("r/sub", "lamp-0", {"lamp": "lamp-0"})
    assert str(device.consumed_capacity["memory"]) == "2Gi"


def test_a_claim_that_was_never_prepared_is_unprepared_with_success(world: World) -> None:
    world.preparer().unprepare(ClaimRef("default", "nobody", "u-9"))
    assert world.driver.undone == []
    assert world.is_clean()


def test_an_unprepare_that_fails_keeps_the_device_held_until_it_succeeds(world: World) -> None:
    driver = FailingDriver(world.lamps)
    preparer = world.preparer(driver)
    ref = world.claim("u-1", "lamp-0")
    preparer.prepare(ref)
    driver.undo_fails = True
    for again in (preparer, world.preparer(driver)):
        with pytest.raises(HookError, match=r"dra_unprepare .*switch is stuck"):
            again.unprepare(ref)
        with pytest.raises(DeviceHeldError):
            again.prepare(world.claim("u-2", "lamp-0"))
    driver.undo_fails = False
    preparer.unprepare(ref)
    assert world.is_clean()


class NoUndo:
    """A driver that changes nothing on the node, so it has nothing to undo."""

    dra_driver_info, dra_discover = LampDriver.dra_driver_info, LampDriver.dra_discover

    def __init__(self) -> None:
        self.during: Callable[[], None] = lambda: None

    def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
        self.during()
        yield from (device.prepared(ContainerEdits(env={"A": "1"})) for device in claim.devices)


def test_a_claim_is_written_before_the_hook_only_if_it_can_be_undone(world: World) -> None:
    seen: list[list[str]] = []
    plain = NoUndo()
    plain.during = lambda: seen.append(world.states())
    preparer = world.preparer(plain)
    preparer.prepare(world.claim("u-1", "lamp-0"))
    preparer.unprepare(world.claim("u-1", "lamp-0"))

    def look(step: str) -> None:
        if step == "prepare: begin":
            seen.append(world.states())

    world.preparer(LampDriver(world.lamps, look)).prepare(world.claim("u-2", "lamp-0"))
    assert seen == [[], ["u-2.json"]]


def test_the_spec_of_a_claim_without_state_goes_with_its_unprepare(world: World) -> None:
    preparer = world.preparer(NoUndo(), shared=True)
    ref = world.claim("u-1", "lamp-0")
    preparer.prepare(ref)
    (world.claims / "u-1.json").unlink()
    with world.locks[0].hold([claim_lock("u-1")]):  # another process is at work on the claim
        again = world.preparer(NoUndo(), shared=True)
    assert len(world.specs()) == 1
    again.unprepare(ref)
    assert world.is_clean()


def test_a_start_leaves_claims_alone_that_another_process_works_on(world: World) -> None:
    old = world.preparer(shared=True)
    ref = world.claim("u-1", "lamp-0")
    old.prepare(ref)
    shutil.rmtree(world.cdi)
    with world.locks[0].hold([claim_lock("u-1")]):
        new = world.preparer(shared=True)
    assert world.specs() == {}
    assert len(new.prepare(ref)) == 1
    assert len(world.specs()) == 1
    old.unprepare(ref)
    assert world.is_clean()


def test_a_damaged_state_file_holds_its_devices_until_somebody_decides(world: World) -> None:
    """Whether it still tells which they are or not."""
    world.preparer().prepare(world.claim("u-1", "lamp-0"))
    path = world.claims / "u-1.json"
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    preparer = world.preparer()
    with pytest.raises(DeviceHeldError, match=r"device node-a/lamp-0 is held by claim default/claim-u-1 \(u-1\)"):
        preparer.prepare(world.claim("u-2", "lamp-0"))
    assert len(preparer.prepare(world.claim("u-3", "lamp-1"))) == 1
    assert [(claim.uid, claim.complete) for claim in preparer.held(except_uid="u-3")] == [("u-1", False)]
    path.write_bytes(b"")
    for uid, lamp in (("u-2", "lamp-0"), ("u-4", "lamp-2")):
        with pytest.raises(StateError, match="does not say which devices its claim holds"):
            preparer.prepare(world.claim(uid, lamp))
    assert len(preparer.prepare(world.claim("u-3", "lamp-1"))) == 1, "what is prepared is answered as before"
    preparer.unprepare(world.claim("u-3", "lamp-1"))
    with pytest.raises(StateError):
        preparer.unprepare(world.claim("u-1", "lamp-0"))
    assert world.shining() == {"lamp-0": "u-1"}
    path.write_bytes(whole)
    preparer.unprepare(world.claim("u-1", "lamp-0"))
    assert len(preparer.prepare(world.claim("u-2", "lamp-0"))) == 1


def test_a_driver_without_unprepare_just_forgets(world: World) -> None:
    preparer = world.preparer(NoUndo())
    ref = world.claim("u-1", "lamp-0")
    preparer.prepare(ref)
    preparer.unprepare(ref)
    assert world.is_clean()


# --- reboots


def test_after_a_reboot_the_hook_runs_again(world: World) -> None:
    ref = world.claim("u-1", "lamp-0")
    world.preparer().prepare(ref)
    (world.lamps / "lamp-0").unlink()  # without power no lamp shines
    rebooted = world.preparer(boot_id="boot-2")
    assert len(rebooted.prepare(ref)) == 1
    assert world.driver.prepared == ["u-1", "u-1"]
    assert [(held.rebooted, held.complete) for held in world.driver.undone] == [(True, True)]
    assert rebooted.prepare(ref)
    assert world.driver.prepared == ["u-1", "u-1"]


def test_after_a_reboot_unprepare_tells_the_hook_so(world: World) -> None:
    ref = world.claim("u-1", "lamp-0")
    world.preparer().prepare(ref)
    world.preparer(boot_id="boot-2").unprepare(ref)
    assert [held.rebooted for held in world.driver.undone] == [True]
    assert world.is_clean()


def test_after_a_reboot_specs_are_not_restored_before_the_devices_are(world: World) -> None:
    world.preparer().prepare(world.claim("u-1", "lamp-0"))
    shutil.rmtree(world.cdi)
    world.preparer(boot_id="boot-2")
    assert world.specs() == {}


def test_a_claim_of_the_last_boot_still_holds_its_device(world: World) -> None:
    world.preparer().prepare(world.claim("u-1", "lamp-0"))
    with pytest.raises(DeviceHeldError):
        world.preparer(boot_id="boot-2").prepare(world.claim("u-2", "lamp-0"))


# --- a claim that changed while its state was kept


def test_a_claim_that_was_half_prepared_may_come_back_with_other_devices(world: World) -> None:
    driver = FailingDriver(world.lamps)
    driver.fails_at, driver.undo_fails = "lamp-1", True
    ref = world.claim("u-1", "lamp-0", "lamp-1")
    with pytest.raises(HookError):
        world.preparer(driver).prepare(ref)
    driver.fails_at, driver.undo_fails = None, False
    world.claim("u-1", "lamp-2")
    world.preparer(driver).prepare(ref)
    assert world.shining() == {"lamp-2": "u-1"}
    assert isinstance(driver.undone[0].devices[0], HeldDevice)


def test_a_claim_that_was_half_prepared_and_is_gone_can_be_unprepared(world: World) -> None:
    driver = FailingDriver(world.lamps)
    driver.fails_at, driver.undo_fails = "lamp-1", True
    ref = world.claim("u-1", "lamp-0", "lamp-1")
    with pytest.raises(HookError):
        world.preparer(driver).prepare(ref)
    driver.undo_fails = False
    world.api.clear()
    world.preparer(driver).unprepare(ref)
    assert world.is_clean()


def test_a_permanent_error_says_so_and_leaves_nothing(world: World) -> None:
    world.lamps.joinpath("lamp-0").write_text("somebody")
    with pytest.raises(PermanentError, match="lamp-0 is on for 'somebody'") as caught:
        world.preparer().prepare(world.claim("u-1", "lamp-0"))
    assert not caught.value.retriable
    assert world.states() == []


def test_each_claim_has_one_line_in_the_log_when_it_comes_and_when_it_goes(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    ref, preparer = world.claim("u-1", "lamp-0", "lamp-1"), world.preparer()
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            preparer.prepare(ref)
        for _ in range(2):
            preparer.unprepare(ref)
    name = f"claim {ref.namespace}/{ref.name} (u-1)"
    lines = [re.sub(r"in \d+ ms", "in N ms", record.getMessage()) for record in caplog.records]
    assert lines == [
        f"{name}: prepared {POOL}/lamp-0, {POOL}/lamp-1 in N ms",
        f"{name}: unprepared {POOL}/lamp-0, {POOL}/lamp-1 in N ms",
    ]
