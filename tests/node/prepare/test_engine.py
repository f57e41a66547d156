"""Prepare and unprepare of one claim after another: what is answered, what is undone, what is left."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dra_sdk import Claim, ContainerEdits, HeldClaim, HeldDevice, Node, PermanentError, PreparedDevice
from dra_sdk.errors import (
    ClaimError,
    ConfigError,
    DeviceHeldError,
    HookError,
    NotFoundError,
    StateError,
)
from dra_sdk.model.claim import ClaimRef
from dra_sdk.node.files import Files
from dra_sdk.node.prepare.checkpoint_store import claim_lock
from dra_sdk.wire.cdi.reading import check_spec
from tests.node.prepare.world import DRIVER, POOL, LampConfig, LampDriver, World

KIND = f"{DRIVER}/device"


class Broken(LampDriver):
    """Raises at one device of prepare, or in unprepare, as long as it is told to."""

    def __init__(self, lamps: Path) -> None:
        super().__init__(lamps)
        self.fails_at: str | None = None
        self.after_on = False
        self.undo_fails = False

    def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
        self.prepared.append(claim.uid)
        for device in claim.devices:
            if device.name == self.fails_at and not self.after_on:
                raise OSError(5, f"{device.name} is burnt")
            self.put_on(device.name, claim.uid)
            if device.name == self.fails_at:
                raise OSError(5, f"{device.name} is burnt")
            yield device.prepared(ContainerEdits(env={"L": device.name}), data={"lamp": device.name})
        if self.fails_at == "end":
            raise OSError(5, "burnt at the end")

    def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
        if self.undo_fails:
            raise OSError(16, "switch is stuck")
        super().dra_unprepare(claim, node)


class FailingDisk:
    """Makes the steps fail that `when` picks."""

    def __init__(self, when: Any) -> None:
        self.when = when

    def __call__(self, step: str, path: Path) -> None:
        if self.when and self.when(step, path):
            raise OSError(28, "No space left on device")


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
    assert edits == {"claim-u-1_a_lamp-0": ["LAMP_0=100"], "claim-u-1_b_lamp-1": ["LAMP_1=100"]}


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

    parameters = {"apiVersion": f"{DRIVER}/v1", "kind": "LampConfig", "brightness": 7}
    config = {"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": parameters}}
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
    parameters = {"apiVersion": f"{DRIVER}/v1", "kind": "LampConfig", "brightness": 700}
    config = {"source": "FromClass", "opaque": {"driver": DRIVER, "parameters": parameters}}
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
    driver = Broken(world.lamps)
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


def test_a_claim_is_written_before_the_hook_only_where_there_is_something_to_undo(world: World) -> None:
    seen: list[list[str]] = []
    plain = NoUndo()
    plain.during = lambda: seen.append(world.states())
    preparer = world.preparer(plain)
    preparer.prepare(world.claim("u-1", "lamp-0"))
    preparer.unprepare(world.claim("u-1", "lamp-0"))

    def look(step: str) -> None:
        if step == "hook: begin":
            seen.append(world.states())

    world.preparer(LampDriver(world.lamps, look)).prepare(world.claim("u-2", "lamp-0"))
    assert seen == [[], ["u-2.json"]]


def test_the_spec_of_a_claim_whose_state_was_never_written_goes_with_its_unprepare(world: World) -> None:
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
    assert [(claim.uid, claim.complete) for claim in preparer.held(but="u-3")] == [("u-1", False)]
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


# --- hooks that fail


@pytest.mark.parametrize("after_on", [False, True])
@pytest.mark.parametrize("fails_at", ["lamp-0", "lamp-1", "lamp-2", "end"])
def test_a_hook_that_fails_at_any_device_leaves_nothing(world: World, fails_at: str, after_on: bool) -> None:
    driver = Broken(world.lamps)
    driver.fails_at, driver.after_on = fails_at, after_on
    preparer = world.preparer(driver)
    ref = world.claim("u-1", "lamp-0", "lamp-1", "lamp-2")
    with pytest.raises(HookError, match=r"dra_prepare of driver .* burnt"):
        preparer.prepare(ref)
    assert world.is_clean()
    (held,) = driver.undone
    done = 3 if fails_at == "end" else int(fails_at[-1])
    assert [device.data for device in held.devices] == [
        {"lamp": f"lamp-{index}"} if index < done else {} for index in range(3)
    ]
    assert not held.complete
    driver.fails_at = None
    assert len(preparer.prepare(ref)) == 3


def yields(*names: str) -> Any:
    """A driver that puts every lamp on, and answers for the lamps called `names`."""

    class Wrong(LampDriver):
        def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[Any]:
            for device in claim.devices:
                self.put_on(device.name, claim.uid)
            for name in names:
                yield PreparedDevice("r", POOL, name, data={"lamp": name}) if name else name

    return Wrong


@pytest.mark.parametrize(
    "names",
    [(), ("lamp-0",), ("lamp-0", "lamp-0"), ("lamp-0", "lamp-1", "lamp-1"), ("lamp-0", "lamp-1", "lamp-7"), ("",)],
)
def test_an_answer_that_breaks_the_contract_is_undone(world: World, names: tuple[str, ...]) -> None:
    driver = yields(*names)(world.lamps)
    with pytest.raises(HookError, match=r"dra_prepare of driver lamps\.example\.com yielded"):
        world.preparer(driver).prepare(world.claim("u-1", "lamp-0", "lamp-1"))
    assert world.is_clean()
    assert len(driver.undone) == 1


def test_edits_that_cdi_refuses_are_undone_with_all_data(world: World) -> None:
    class Wrong(LampDriver):
        def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
            for device in claim.devices:
                self.put_on(device.name, claim.uid)
                yield device.prepared(ContainerEdits(env={"A=B": "1"}), data={"lamp": device.name})

    driver = Wrong(world.lamps)
    with pytest.raises(Exception, match="device claim-u-1_r_lamp-0: env: the name of a variable"):
        world.preparer(driver).prepare(world.claim("u-1", "lamp-0"))
    assert world.is_clean()
    assert driver.undone[0].devices[0].data == {"lamp": "lamp-0"}


def test_where_undoing_fails_too_the_next_prepare_heals(world: World) -> None:
    driver = Broken(world.lamps)
    driver.fails_at, driver.undo_fails = "lamp-1", True
    preparer = world.preparer(driver)
    ref = world.claim("u-1", "lamp-0", "lamp-1")
    with pytest.raises(HookError, match="lamp-1 is burnt") as caught:
        preparer.prepare(ref)
    (note,) = caught.value.__notes__
    assert note.startswith("undoing it failed as well: dra_unprepare of driver lamps.example.com failed: OSError: ")
    assert world.states() == ["u-1.json"]
    with pytest.raises(DeviceHeldError):
        preparer.prepare(world.claim("u-2", "lamp-0"))
    driver.fails_at = None
    with pytest.raises(HookError, match="switch is stuck"):
        preparer.prepare(ref)
    driver.undo_fails = False
    assert len(world.preparer(driver).prepare(ref)) == 2
    assert driver.undone[0].devices[0].data == {"lamp": "lamp-0"}


def test_where_undoing_fails_too_the_last_devices_data_is_kept(world: World) -> None:
    driver = Broken(world.lamps)
    driver.fails_at, driver.undo_fails = "end", True
    ref = world.claim("u-1", "lamp-0")
    with pytest.raises(HookError, match="burnt at the end"):
        world.preparer(driver).prepare(ref)
    driver.undo_fails = False
    world.preparer(driver).unprepare(ref)
    assert driver.undone[0].devices[0].data == {"lamp": "lamp-0"}
    assert world.is_clean()


def test_the_claims_of_the_hook_are_closed_after_it(world: World) -> None:
    """A hook that keeps its claim must not bring back the state of a claim that is gone."""
    kept: list[Claim[LampConfig]] = []

    class Keep(LampDriver):
        def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
            kept.append(claim)
            yield from super().dra_prepare(claim)

    preparer = world.preparer(Keep(world.lamps))
    ref = world.claim("u-1", "lamp-0")
    preparer.prepare(ref)
    preparer.unprepare(ref)
    with pytest.raises(HookError, match="journal is closed"):
        kept[0].journal({"x": 1})
    assert world.is_clean()


# --- disks that fail


def is_spec(path: Path) -> bool:
    return path.parent.name == "cdi"


@pytest.mark.parametrize("steps", [{"create"}, {"fsync"}, {"rename"}, {"create", "unlink"}])
def test_a_cdi_directory_that_cannot_be_written_holds_no_device(world: World, steps: set[str]) -> None:
    disk = FailingDisk(lambda step, path: is_spec(path) and step in steps)
    preparer = world.preparer(files=Files(disk))
    ref = world.claim("u-1", "lamp-0", "lamp-1")
    with pytest.raises(ClaimError, match=r"cannot write CDI spec .*u-1.json: No space left on device"):
        preparer.prepare(ref)
    assert world.is_clean()
    assert [device.data for device in world.driver.undone[0].devices] == [{"lamp": "lamp-0"}, {"lamp": "lamp-1"}]
    disk.when = None
    assert len(preparer.prepare(ref)) == 2


def test_a_cdi_directory_that_became_a_file_holds_no_device(world: World) -> None:
    preparer = world.preparer()
    world.cdi.rmdir()
    world.cdi.touch()
    ref = world.claim("u-1", "lamp-0")
    with pytest.raises(ClaimError, match="cannot write CDI spec"):
        preparer.prepare(ref)
    assert (world.shining(), world.states()) == ({}, [])
    preparer.unprepare(ref)
    world.cdi.unlink()
    assert len(preparer.prepare(ref)) == 1


class Counting:
    """A disk that fails at step number `first`, and at all after it where it is broken for good."""

    def __init__(self, first: int, *, for_good: bool) -> None:
        self.first, self.for_good = first, for_good
        self.steps = 0
        self.repaired = True

    def __call__(self, step: str, path: Path) -> None:
        if self.repaired:
            return
        self.steps += 1
        if self.steps == self.first or (self.for_good and self.steps > self.first):
            raise OSError(28, "No space left on device")


def failure(call: Callable[[ClaimRef], Any], ref: ClaimRef) -> str | None:
    """What a call failed with, if it did."""
    try:
        call(ref)
    except (StateError, ClaimError) as error:
        return str(error)
    return None


@pytest.mark.parametrize("for_good", [False, True])
def test_a_disk_that_fails_at_any_step_of_prepare_loses_nothing(tmp_path: Path, for_good: bool) -> None:
    """An error; nothing left if the disk failed only once; and when it works again both calls succeed."""
    for first in range(1, 100):
        for then in ("prepare", "unprepare"):
            world = World(tmp_path / f"{first}-{then}")
            disk = Counting(first, for_good=for_good)
            preparer = world.preparer(files=Files(disk))
            ref = world.claim("u-1", "lamp-0", "lamp-1")
            disk.repaired = False
            refusal = failure(preparer.prepare, ref)
            if refusal is None:
                assert first == 29, "28 steps can fail"
                return
            assert "No space left" in refusal
            assert for_good or world.is_clean(), first
            disk.repaired = True
            if then == "prepare":
                assert len(preparer.prepare(ref)) == 2
                assert world.shining() == {"lamp-0": "u-1", "lamp-1": "u-1"}
            preparer.unprepare(ref)
            assert world.is_clean(), first
            assert world.preparer().held() == []
    pytest.fail("no end of steps")


@pytest.mark.parametrize("for_good", [False, True])
def test_a_disk_that_fails_at_any_step_of_unprepare_loses_nothing(tmp_path: Path, for_good: bool) -> None:
    for first in range(1, 100):
        world = World(tmp_path / str(first))
        disk = Counting(first, for_good=for_good)
        preparer = world.preparer(files=Files(disk))
        ref = world.claim("u-1", "lamp-0")
        preparer.prepare(ref)
        disk.repaired = False
        assert "No space left" in (failure(preparer.unprepare, ref) or "No space left")
        if disk.steps < first:
            assert first == 9, "8 steps can fail"
            return
        disk.repaired = True
        preparer.unprepare(ref)
        assert world.is_clean()
        assert world.preparer().held() == []
    pytest.fail("no end of steps")


@pytest.mark.parametrize("for_good", [False, True])
def test_a_claim_whose_undoing_began_is_never_answered_from_its_state(tmp_path: Path, for_good: bool) -> None:
    for first in range(1, 10):
        world = World(tmp_path / str(first))
        disk = Counting(first, for_good=for_good)
        preparer = world.preparer(files=Files(disk))
        ref = world.claim("u-1", "lamp-0")
        preparer.prepare(ref)
        disk.repaired = False
        with suppress(StateError, ClaimError):
            preparer.unprepare(ref)
        disk.repaired = True
        assert len(preparer.prepare(ref)) == 1
        assert world.shining() == {"lamp-0": "u-1"}, first


def test_a_claim_whose_removal_may_not_have_reached_the_disk_is_removed_again(world: World) -> None:
    """After a power failure its state would be back, and hold the device for nobody."""
    steps: list[str] = []

    def fail_once(step: str, path: Path) -> bool:
        if path != world.claims / "u-1.json" or step not in {"unlink", "fsync-directory"}:
            return False
        steps.append(step)
        return steps == ["unlink", "fsync-directory"]

    disk = FailingDisk(None)
    preparer = world.preparer(files=Files(disk))
    ref = world.claim("u-1", "lamp-0")
    preparer.prepare(ref)
    disk.when = fail_once
    with pytest.raises(StateError, match="cannot remove state file"):
        preparer.unprepare(ref)
    preparer.unprepare(ref)
    assert steps == ["unlink", "fsync-directory", "fsync-directory"]
    assert world.is_clean()


@pytest.mark.parametrize("shared", [False, True])
def test_a_claim_that_was_half_undone_on_a_full_disk_is_not_answered_by_another_process(
    world: World, shared: bool
) -> None:
    disk, driver = FailingDisk(None), Broken(world.lamps)
    old = world.preparer(driver, files=Files(disk), shared=shared)
    ref = world.claim("u-1", "lamp-0", "lamp-1")
    old.prepare(ref)
    disk.when = lambda step, path: step == "create"
    driver.undo_fails = True
    with pytest.raises(HookError, match="switch is stuck"):
        old.unprepare(ref)
    driver.put_out("lamp-0", "u-1")  # that far it came
    disk.when, driver.undo_fails = None, False
    new = world.preparer(driver, shared=shared)
    assert [claim.complete for claim in new.held()] == [False]
    assert len(new.prepare(ref)) == 2
    assert world.shining() == {"lamp-0": "u-1", "lamp-1": "u-1"}
    new.unprepare(ref)
    assert world.is_clean()


def test_nothing_is_undone_where_not_even_that_can_be_remembered(world: World) -> None:
    disk = FailingDisk(None)
    preparer = world.preparer(files=Files(disk))
    ref = world.claim("u-1", "lamp-0")
    answer = preparer.prepare(ref)
    disk.when = lambda step, path: step in {"create", "chmod"}
    with pytest.raises(StateError, match="cannot write state file"):
        preparer.unprepare(ref)
    assert world.driver.undone == []
    assert preparer.prepare(ref) == answer
    disk.when = None
    preparer.unprepare(ref)
    assert world.is_clean()


def test_a_full_disk_does_not_keep_devices_held(world: World) -> None:
    disk = FailingDisk(None)
    preparer = world.preparer(files=Files(disk))
    ref = world.claim("u-1", "lamp-0")
    preparer.prepare(ref)
    disk.when = lambda step, path: step == "create"
    preparer.unprepare(ref)
    assert world.is_clean()


def test_a_broken_state_file_is_its_claims_error_and_stays(world: World) -> None:
    preparer = world.preparer()
    ref = world.claim("u-1", "lamp-0")
    preparer.prepare(ref)
    path = world.claims / "u-1.json"
    path.write_bytes(path.read_bytes()[:-20])
    damaged = path.read_bytes()
    again = world.preparer()
    for call in (again.prepare, again.unprepare):
        with pytest.raises(StateError, match=f"{path} is damaged"):
            call(ref)
    assert len(again.prepare(world.claim("u-2", "lamp-1"))) == 1
    assert path.read_bytes() == damaged
    assert len(world.specs()) == 2, "the spec of a running container was removed"


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
    driver = Broken(world.lamps)
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
    driver = Broken(world.lamps)
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
