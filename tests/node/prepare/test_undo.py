"""The steps of an undo: all are tried; only a dangerous refusal holds the claim, until it succeeds or is skipped."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest

from dra_sdk import HeldClaim, Node, NotNeededError, RetriableError
from dra_sdk.errors import HookError
from dra_sdk.extensions import UndoStep, Verdict
from dra_sdk.model.claim import ClaimRef
from dra_sdk.model.undo import Undo
from dra_sdk.node.audit import VARIABLE, AuditLog
from dra_sdk.node.files import Files
from dra_sdk.node.prepare.state_files import read_checkpoint, skip
from tests.lamps import LampDriver
from tests.node.prepare.world import FailingDisk, World

PAGE = Path(__file__).parents[3] / "docs/driver.md"


class StepDriver(LampDriver):
    """Puts each lamp out in a step of its own, and then wipes its glass, which does not matter.

    stuck: lamps that cannot be put out, and why.
    dirty: lamps that cannot be wiped.
    """

    def __init__(self, lamps: Path) -> None:
        super().__init__(lamps)
        self.stuck: dict[str, Exception] = {}
        self.dirty: set[str] = set()

    def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
        for device in claim.devices:
            with claim.undoing(f"light of {device.name}"):
                if device.name in self.stuck:
                    raise self.stuck[device.name]
                self.put_out(device.name, claim.uid)
                with claim.undoing(f"glass of {device.name}", harmless=True):
                    if device.name in self.dirty:
                        raise OSError(5, "no cloth")


@pytest.fixture
def driver(world: World) -> StepDriver:
    return StepDriver(world.lamps)


def prepared(world: World, driver: StepDriver) -> ClaimRef:
    ref = world.claim("u-1", "lamp-0", "lamp-1", "lamp-2")
    world.preparer(driver).prepare(ref)
    return ref


def test_a_harmless_refusal_is_a_warning_and_the_claim_ends(
    world: World, driver: StepDriver, caplog: pytest.LogCaptureFixture
) -> None:
    ref = prepared(world, driver)
    driver.dirty = {"lamp-1"}
    world.preparer(driver).unprepare(ref)
    assert world.is_clean()
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.message.startswith("claim default/claim-u-1 (u-1): a step of its undo is refused, which does no harm")
    assert "glass of lamp-1: OSError: [Errno 5] no cloth (test_undo.py, line " in record.message


def test_a_dangerous_refusal_keeps_no_other_step_from_being_tried_and_holds_the_claim(
    world: World, driver: StepDriver
) -> None:
    ref = prepared(world, driver)
    driver.stuck = {"lamp-0": RetriableError("the switch is hot"), "lamp-2": RetriableError("no ladder")}
    wanted = "light of lamp-0: the switch is hot; light of lamp-2: no ladder"
    for _ in range(2):
        with pytest.raises(RetriableError, match=f"^{wanted}$"):
            world.preparer(driver).unprepare(ref)
        assert world.shining() == {"lamp-0": "u-1", "lamp-2": "u-1"}
        assert [claim.uid for claim in world.preparer(driver).held()] == ["u-1"]
    assert world.preparer(driver).held_by_undo() == [ref]
    driver.stuck = {}
    world.preparer(driver).unprepare(ref)
    assert world.is_clean()


def test_nothing_left_to_undo_is_no_refusal(world: World, driver: StepDriver) -> None:
    ref = prepared(world, driver)
    driver.stuck = {"lamp-0": NotNeededError("the lamp was stolen")}
    world.preparer(driver).unprepare(ref)
    assert (world.states(), world.shining()) == ([], {"lamp-0": "u-1"})


def test_a_mistake_in_a_step_is_dangerous_and_has_its_line(
    world: World, driver: StepDriver, caplog: pytest.LogCaptureFixture
) -> None:
    ref = prepared(world, driver)
    driver.stuck = {"lamp-1": KeyError("bulb")}
    with pytest.raises(RetriableError, match=r"^light of lamp-1: KeyError: 'bulb' \(test_undo.py, line \d+\)$"):
        world.preparer(driver).unprepare(ref)
    assert [record.exc_info is not None for record in caplog.records if "light of lamp-1" in record.message] == [True]
    assert world.shining() == {"lamp-1": "u-1"}


def test_what_is_raised_outside_of_a_step_holds_the_claim_as_it_is(world: World) -> None:
    class Plain(LampDriver):
        def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
            raise NotNeededError("all lamps were stolen")  # said of no step, so nobody knows of what

    driver = Plain(world.lamps)
    ref = world.claim("u-1", "lamp-0")
    world.preparer(driver).prepare(ref)
    with pytest.raises(NotNeededError, match=r"^all lamps were stolen$"):
        world.preparer(driver).unprepare(ref)
    assert world.states() == ["u-1.json"]


def test_a_refused_step_fails_a_hook_that_is_called_without_the_sdk(world: World, driver: StepDriver) -> None:
    ref = prepared(world, driver)
    (held,) = world.preparer(driver).held()
    driver.stuck = {"lamp-0": RetriableError("the switch is hot")}
    driver.dirty = {"lamp-1"}
    with pytest.raises(RetriableError, match="hot"):
        driver.dra_unprepare(held, Node("node-a", world.root))
    driver.stuck = {}
    driver.dra_unprepare(held, Node("node-a", world.root))
    assert (world.shining(), ref.uid) == ({}, held.uid)


def test_a_prepare_undoes_what_is_left_before_and_is_held_by_what_is_dangerous(
    world: World, driver: StepDriver
) -> None:
    ref = prepared(world, driver)
    driver.stuck = {"lamp-0": RetriableError("the switch is hot")}
    with pytest.raises(RetriableError, match="hot"):
        world.preparer(driver).unprepare(ref)
    with pytest.raises(RetriableError, match=r"^light of lamp-0: the switch is hot$"):
        world.preparer(driver).prepare(ref)
    driver.stuck, driver.dirty = {}, {"lamp-0"}
    world.preparer(driver).prepare(ref)
    assert sorted(world.shining()) == ["lamp-0", "lamp-1", "lamp-2"]
    assert world.preparer(driver).held_by_undo() == []


def test_what_became_of_each_step_is_reported(world: World, driver: StepDriver) -> None:
    ref = prepared(world, driver)
    seen: list[UndoStep] = []
    preparer = world.preparer(driver, undone=lambda _ref, steps: seen.extend(steps))
    driver.stuck, driver.dirty = {"lamp-1": NotNeededError("stolen"), "lamp-2": RetriableError("hot")}, {"lamp-0"}
    with pytest.raises(RetriableError):
        preparer.unprepare(ref)
    assert [(step.name, step.verdict) for step in seen] == [
        ("glass of lamp-0", Verdict.HARMLESS),
        ("light of lamp-0", Verdict.DONE),
        ("light of lamp-1", Verdict.NOT_NEEDED),
        ("light of lamp-2", Verdict.DANGEROUS),
    ]


def test_the_hook_of_the_page_undoes_in_steps(tmp_path: Path) -> None:
    (block,) = [text for text in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "undoing" in text]
    done: list[tuple[str, str]] = []
    names = {
        "HeldClaim": HeldClaim,
        "NotNeededError": NotNeededError,
        "Path": Path,
        "bind": lambda device, driver: done.append((device, driver)),
        "set_led": lambda device, _led: (tmp_path / device / "led").write_text("on"),
    }
    exec(block, names)
    (tmp_path / "card").mkdir()
    journal = [{"device": str(tmp_path / name), "driver": "fpga", "led": "on"} for name in ("card", "unplugged")]
    undo = Undo()
    names["dra_unprepare"](None, HeldClaim("ns", "c", "u", journal=journal, undo=undo))  # type: ignore[operator]
    assert done == [(str(tmp_path / "card"), "fpga")]
    assert [step.verdict for step in undo.steps] == [Verdict.NOT_NEEDED, Verdict.DONE, Verdict.DONE]


# --- an operator skips a step


def held_by(world: World, driver: StepDriver, *lamps: str) -> ClaimRef:
    ref = prepared(world, driver)
    driver.stuck = {lamp: RetriableError("the switch is hot") for lamp in lamps}
    with pytest.raises(RetriableError, match="hot"):
        world.preparer(driver).unprepare(ref)
    return ref


def test_the_state_file_says_what_holds_the_claim(world: World, driver: StepDriver) -> None:
    held_by(world, driver, "lamp-0", "lamp-2")
    state = read_checkpoint(world.claims / "u-1.json")
    assert state.refused == (  # type: ignore[union-attr]
        ("light of lamp-0", "the switch is hot"),
        ("light of lamp-2", "the switch is hot"),
    )


def test_a_skipped_step_is_tried_once_more_and_holds_the_claim_no_longer(
    world: World, driver: StepDriver, caplog: pytest.LogCaptureFixture
) -> None:
    ref = held_by(world, driver, "lamp-0")
    content = (world.claims / "u-1.json").read_bytes()
    running = world.preparer(driver)
    skip(world.claims / "u-1.json", "light of lamp-0", Files())
    running.unprepare(ref)
    assert world.states() == [".skipped-u-1-1.json"], "what the driver had noted is kept"
    assert (world.claims / ".skipped-u-1-1.json").read_bytes() == content
    assert running.held() == world.preparer(driver).held() == []
    assert "skipped as an operator wants it: light of lamp-0: the switch is hot" in caplog.text


def test_a_skipped_step_that_succeeds_leaves_nothing(world: World, driver: StepDriver) -> None:
    ref = held_by(world, driver, "lamp-0")
    skip(world.claims / "u-1.json", "light of lamp-0", Files())
    driver.stuck = {}
    world.preparer(driver).unprepare(ref)
    world.preparer(driver)
    assert world.is_clean()


def test_a_skip_is_for_its_step_alone(world: World, driver: StepDriver) -> None:
    ref = held_by(world, driver, "lamp-0", "lamp-2")
    skip(world.claims / "u-1.json", "light of lamp-2", Files())
    with pytest.raises(RetriableError, match=r"^light of lamp-0: the switch is hot$"):
        world.preparer(driver).unprepare(ref)
    skip(world.claims / "u-1.json", "light of lamp-0", Files())
    world.preparer(driver).unprepare(ref)
    assert world.preparer(driver).held() == []


def test_a_hook_without_steps_can_be_skipped_as_a_whole(world: World) -> None:
    class Plain(LampDriver):
        def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
            raise OSError(5, "dark")

    driver = Plain(world.lamps)
    ref = world.claim("u-1", "lamp-0")
    world.preparer(driver).prepare(ref)
    with pytest.raises(HookError, match=r"^dra_unprepare of driver lamps.example.com failed: OSError: .* dark"):
        world.preparer(driver).unprepare(ref)
    ((step, _),) = read_checkpoint(world.claims / "u-1.json").refused  # type: ignore[union-attr]
    skip(world.claims / "u-1.json", step, Files())
    world.preparer(driver).unprepare(ref)
    assert world.preparer(driver).held() == []


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"7", b"\xff"])
def test_a_damaged_file_of_skips_skips_nothing(world: World, driver: StepDriver, content: bytes) -> None:
    ref = held_by(world, driver, "lamp-0")
    (world.claims / ".skips-u-1.json").write_bytes(content)
    with pytest.raises(RetriableError, match="hot"):
        world.preparer(driver).unprepare(ref)
    driver.stuck = {}
    world.preparer(driver).unprepare(ref)
    world.preparer(driver)
    assert world.is_clean()


def test_a_skip_is_in_the_audit_log(world: World, driver: StepDriver) -> None:
    ref = held_by(world, driver, "lamp-0")
    skip(world.claims / "u-1.json", "light of lamp-0", Files())
    audit = world.root / "audit.log"
    preparer = world.preparer(driver, extensions=[AuditLog({VARIABLE: str(audit)})])
    preparer.unprepare(ref)
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(line["event"], line.get("step")) for line in lines] == [
        ("skipped", "light of lamp-0"),
        *[("unprepared", None)] * 3,
    ]


def test_a_claim_that_stays_held_is_not_unprepared_for_the_audit_log(world: World, driver: StepDriver) -> None:
    ref = prepared(world, driver)
    driver.stuck = {"lamp-0": RetriableError("the switch is hot")}
    audit = world.root / "audit.log"
    preparer = world.preparer(driver, extensions=[AuditLog({VARIABLE: str(audit)})])
    with pytest.raises(RetriableError, match="hot"):
        preparer.unprepare(ref)
    assert not audit.exists()


class Killed(BaseException):
    """The process ends at a step of the disk."""


def test_a_process_that_is_killed_at_any_step_of_a_skipped_undo_loses_nothing(tmp_path: Path) -> None:
    for number in range(100):
        world = World(tmp_path / str(number))
        driver = StepDriver(world.lamps)
        ref = held_by(world, driver, "lamp-0")
        seen: list[str] = []

        def kill(step: str, path: Path, seen: list[str] = seen, number: int = number) -> None:
            seen.append(f"{step} {path.name}")
            if len(seen) > number:
                raise Killed

        killed = False
        try:
            skip(world.claims / "u-1.json", "light of lamp-0", Files(kill))
            world.preparer(driver, files=Files(kill)).unprepare(ref)
        except Killed:
            killed = True
        if (world.claims / "u-1.json").exists():
            assert [claim.uid for claim in world.preparer(driver).held()] == ["u-1"]
            skip(world.claims / "u-1.json", "light of lamp-0", Files())  # the operator types it again
        world.preparer(driver).unprepare(ref)
        world.preparer(driver)
        assert world.states() == [".skipped-u-1-1.json"], seen
        if not killed:
            assert number > 8
            return
    raise AssertionError("it never ends")


def test_a_full_disk_does_not_change_what_an_undo_answers(world: World, driver: StepDriver) -> None:
    ref = prepared(world, driver)
    driver.stuck = {"lamp-0": RetriableError("the switch is hot")}
    full = Files(FailingDisk(lambda step, path: step == "create" and re.fullmatch(r"u-1\.json", path.name)))
    preparer = world.preparer(driver, files=full)
    with pytest.raises(RetriableError, match=r"^light of lamp-0: the switch is hot$"):
        preparer.unprepare(ref)
    driver.stuck = {}
    preparer.unprepare(ref)
    assert world.is_clean()
