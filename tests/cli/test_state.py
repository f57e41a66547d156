"""`dra-sdk state`: what the files of a driver's claims hold, and the commands for a damaged one."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dra_sdk import HeldClaim, HeldDevice
from dra_sdk.node.files import claim_lock
from dra_sdk.node.locks import NamedLocks
from dra_sdk.node.prepare.checkpoint import Checkpoint, ClaimPhase, encode
from dra_sdk.node.prepare.state_files import read_checkpoint, skips
from dra_sdk.node.runtime.instance import InstanceLock
from tests.cli.cards import NAME
from tests.cli.commands import Result, Run, runner

CARDS = "tests.cli.cards:Cards"


class Place:
    """A node whose driver has ended and left its files."""

    def __init__(self, root: Path, run: Run) -> None:
        self.kubelet, self.cdi, self.host = root / "kubelet", root / "cdi", root / "host"
        self.data = self.kubelet / "plugins" / NAME
        self.claims = self.data / "claims"
        self.data.mkdir(parents=True)
        self.data.chmod(0o750)
        self.claims.mkdir(mode=0o700)
        self.cdi.mkdir()
        boot_id = self.host / "proc/sys/kernel/random/boot_id"
        boot_id.parent.mkdir(parents=True)
        boot_id.write_text("boot-1\n")
        self.dra_sdk = run
        self.flags = ["--kubelet-dir", str(self.kubelet), "--cdi-dir", str(self.cdi), "--host-root", str(self.host)]

    def run(self, *words: object, driver: str = NAME) -> Result:
        return self.dra_sdk("state", driver, *words, *self.flags)

    def claim(self, uid: str, *devices: str, cut: int = 0, complete: bool = True, boot_id: str = "boot-1") -> Path:
        """A state file with a CDI spec, without its last bytes."""
        held = tuple(HeldDevice("r", "node-a", device) for device in devices)
        spec = {"kind": f"{NAME}/device"} if complete else None
        content = encode(Checkpoint(HeldClaim("default", f"claim-{uid}", uid, held, complete=complete), boot_id, spec))
        path = self.claims / f"{uid}.json"
        path.write_bytes(content[: len(content) - cut])
        path.chmod(0o600)
        if spec:
            self.spec(uid).write_text(json.dumps(spec))
        return path

    def held_by_undo(self, uid: str, *refused: tuple[str, str]) -> Path:
        """A claim that steps of its undo hold."""
        path = self.claim(uid, "card0", complete=False)
        state = read_checkpoint(path)
        assert isinstance(state, Checkpoint)
        path.write_bytes(encode(replace(state, refused=refused)))
        return path

    def spec(self, uid: str) -> Path:
        return self.cdi / f"{NAME}_claim-{uid}.json"

    @contextmanager
    def driver(self, *, shared: bool = False) -> Iterator[None]:
        """While a driver runs."""
        lock = InstanceLock(self.data / "instance.lock", shared=shared)
        assert lock.try_acquire()
        try:
            yield
        finally:
            lock.release()


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Place:
    for name in ("DRA_SDK_KUBELET_DIR", "DRA_SDK_CDI_DIR", "DRA_SDK_HOST_ROOT", "DRA_SDK_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return Place(tmp_path, runner(capsys))


def test_every_claim_has_a_row(place: Place) -> None:
    place.claim("u-1", "card0")
    place.claim("u-2", "card1", "card2", complete=False)
    place.claim("u-3", "card3", boot_id="boot-0")
    place.spec("u-3").unlink()
    done = place.run()
    assert (done.status, done.err) == (0, "")
    assert done.cells == [
        ["default/claim-u-1", "u-1", "node-a/card0", "prepared", "1", "this", "present"],
        ["default/claim-u-2", "u-2", "node-a/card1, node-a/card2", "preparing", "1", "this", "none"],
        ["default/claim-u-3", "u-3", "node-a/card3", "prepared", "1", "earlier", "missing"],
    ]


def test_nothing_held_is_said(place: Place) -> None:
    done = place.run()
    assert (done.status, done.out) == (0, "")
    assert done.err == f"driver {NAME} has no claim on this node: no state file in {place.data}\n"


def proposed(done: Result) -> list[str]:
    return [line.partition("dra-sdk ")[2] for line in done.out.splitlines() if ":  dra-sdk " in line]


def test_a_damaged_file_tells_what_it_holds_and_its_commands_work(place: Place) -> None:
    path = place.claim("u-1", "card0", cut=9)
    done = place.run()
    assert (done.status, done.err) == (1, "")
    assert done.cells == [["default/claim-u-1", "u-1", "node-a/card0", "damaged", "1", "this", "present"]]
    assert f"\nstate file {path} is damaged: its checksum does not match\n" in done.out
    assert "It belongs to claim default/claim-u-1 (u-1): no other claim gets node-a/card0.\n" in done.out
    flags = shlex.join(place.flags)
    assert proposed(done) == [f"state {NAME} repair u-1 {flags}", f"state {NAME} forget u-1 {flags} --yes"]
    for command in proposed(done):
        assert place.dra_sdk(*shlex.split(command)).status == 0
    assert place.run().status == 0


def test_a_file_that_tells_nothing_has_no_command_to_repair_it(place: Place) -> None:
    (place.claims / "u-1.json").write_bytes(b"junk")
    done = place.run()
    assert done.status == 1
    assert done.cells == [["-", "u-1", "-", "damaged", "-", "-", "none"]]
    assert f"so no claim gets any device of driver {NAME}" in done.out
    assert "It cannot be repaired: it does not say which claim it belongs to and which devices that holds." in done.out
    (command,) = proposed(done)
    assert " forget u-1 " in command
    repaired = place.run("repair", "u-1")
    assert repaired.status == 1
    assert "It cannot be repaired: it does not say which claim" in repaired.out
    assert os.listdir(place.claims) == ["u-1.json"]


def test_a_file_of_a_newer_release_is_better_left_to_it(place: Place) -> None:
    path = place.claim("u-1", "card0")
    path.write_bytes(path.read_bytes().replace(b'"version": 1', b'"version": 2'))
    done = place.run()
    assert (done.status, done.cells[0][3:5]) == (1, ["damaged", "2"])
    assert "A newer release of the driver can read it; a repair would lose what only that release knows." in done.out


def test_json_has_it_all(place: Place) -> None:
    path = place.claim("u-1", "card0")
    damaged = place.claims / "u-2.json"
    damaged.write_bytes(b"")
    done = place.run("-o", "json")
    assert done.status == 1
    state: dict[str, Any] = json.loads(done.out)
    assert (state["driver"], state["directory"]) == (NAME, str(place.data))
    good, bad = state["files"]
    assert good == {
        "file": str(path),
        "damage": "",
        "whyNotRepairable": "",
        "format": 1,
        "namespace": "default",
        "name": "claim-u-1",
        "uid": "u-1",
        "phase": "PrepareCompleted",
        "bootID": "boot-1",
        "thisBoot": True,
        "refusedSteps": [],
        "skippedSteps": [],
        "devices": [{"request": "r", "pool": "node-a", "device": "card0", "shareID": None, "adminAccess": False}],
        "cdiSpec": {"path": str(place.spec("u-1")), "present": True},
    }
    assert bad["damage"].startswith(f"state file {damaged} has no readable header")
    assert bad["whyNotRepairable"].startswith("it does not say")
    assert [bad[key] for key in ("format", "uid", "phase", "bootID", "thisBoot", "devices")] == [None] * 6


def test_repairing_says_what_comes_next_and_keeps_the_damaged_file(place: Place) -> None:
    path = place.claim("u-1", "card0", cut=9)
    damaged = path.read_bytes()
    with place.driver():
        done = place.run("repair", "u-1")
    assert (done.status, done.err) == (0, "")
    assert f"{path} is repaired: it says that claim default/claim-u-1 (u-1) holds node-a/card0" in done.out
    kept = place.claims / ".damaged-u-1-1.json"
    assert f"The damaged file is kept as {kept}." in done.out
    assert kept.read_bytes() == damaged
    checkpoint = read_checkpoint(path)
    assert isinstance(checkpoint, Checkpoint)
    assert (checkpoint.claim.uid, checkpoint.phase) == ("u-1", ClaimPhase.STARTED)
    assert checkpoint.claim.devices == (HeldDevice("r", "node-a", "card0"),)
    again = place.run("repair", "u-1")
    assert (again.status, again.out) == (0, f"state file {path} is not damaged, so there is nothing to repair\n")


def test_without_yes_nothing_is_forgotten_and_the_meaning_is_told(place: Place) -> None:
    path = place.claim("u-1", "card0", cut=9)
    done = place.run("forget", "u-1")
    assert done.status == 2
    assert "Its devices node-a/card0 are free for the next claim" in done.out
    assert "Nothing was changed." in done.out
    assert done.err.startswith(f"dra-sdk: forget needs --yes: dra-sdk state {NAME} forget u-1 ")
    assert path.exists()
    assert place.spec("u-1").exists()


@pytest.mark.parametrize("shared", [False, True])
def test_forgetting_says_what_that_means_while_a_driver_runs(place: Place, *, shared: bool) -> None:
    path = place.claim("u-1", "card0", cut=9)
    damaged = path.read_bytes()
    with place.driver(shared=shared):
        done = place.run("forget", "u-1", "--yes")
    assert (done.status, done.err) == (0, "")
    for sentence in (
        "Its devices node-a/card0 are free for the next claim, though claim default/claim-u-1 (u-1) may still use",
        "A container that still runs keeps them",
        "dra_unprepare is not called",
        f"Its CDI spec {place.spec('u-1')} is removed",
        f"The file is kept as {place.claims}/.forgotten-u-1-1.json.",
    ):
        assert sentence in done.out
    assert not place.spec("u-1").exists()
    assert [path.name for path in place.claims.iterdir()] == [".forgotten-u-1-1.json"]
    assert (place.claims / ".forgotten-u-1-1.json").read_bytes() == damaged


def test_forgetting_what_has_no_spec_says_so(place: Place) -> None:
    (place.claims / "u-1.json").write_bytes(b"")
    done = place.run("forget", "u-1", "--yes")
    assert done.status == 0
    assert "All devices that it held are free for the next claim, though the claim of u-1.json may" in done.out
    assert f"There is no CDI spec {place.spec('u-1')} to remove." in done.out


def test_a_good_file_is_forgotten_only_while_no_driver_runs(place: Place) -> None:
    path = place.claim("u-1", "card0")
    for shared in (False, True):
        with place.driver(shared=shared):
            done = place.run("forget", "u-1", "--yes")
        assert done.status == 2
        assert f"state file {path} is not damaged, and a driver works with it" in done.err
        assert f"its process holds {place.data}/instance.lock; end the claim's pods" in done.err
        assert path.exists()
        assert place.spec("u-1").exists()
    assert place.run("forget", "u-1", "--yes").status == 0
    assert not path.exists()


@pytest.mark.parametrize("action", [("repair", "u-1"), ("forget", "u-1", "--yes")])
def test_a_claim_that_another_process_works_on_is_left_alone(place: Place, action: tuple[str, ...]) -> None:
    path = place.claim("u-1", "card0", cut=9)
    damaged = path.read_bytes()
    locks = NamedLocks(place.data / "locks")
    with locks.hold([claim_lock("u-1")]):
        done = place.run(*action)
    locks.close()
    assert done.status == 2
    assert f"it holds claim/u-1 in {place.data}/locks; try again" in done.err
    assert path.read_bytes() == damaged


def test_a_driver_that_starts_waits_until_the_file_is_changed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.claim("u-1", "card0", cut=9)
    free: list[bool] = []

    def watched(*_: object) -> Path:
        lock = InstanceLock(place.data / "instance.lock")
        free.append(lock.try_acquire())
        lock.release()
        return place.claims

    monkeypatch.setattr("dra_sdk.cli.state.repair", watched)
    assert place.run("repair", "u-1").status == 0
    assert free == [False]
    with place.driver():
        pass


@pytest.mark.parametrize("word", ["u-1", "u-1.json", "{claims}/u-1.json"])
def test_a_file_is_named_by_uid_name_or_path(place: Place, word: str) -> None:
    place.claim("u-1", "card0", cut=9)
    assert place.run("repair", word.format(claims=place.claims)).status == 0


def test_a_uid_that_is_no_name_of_a_file_is_found(place: Place) -> None:
    path = place.claim("u-1", "card0")
    held = (HeldDevice("r", "node-a", "card0"),)
    odd = Checkpoint(HeldClaim("default", "odd", "a/b", held), "boot-1")
    path.write_bytes(encode(odd))
    path.rename(place.claims / "c14cddc033f64b9dea80ea675cf280a015e672516090a5626781153dc68fea11.json")
    done = place.run("repair", "a/b")
    assert (done.status, done.err) == (0, "")


def test_a_file_that_is_not_there_is_told_with_those_that_are(place: Place) -> None:
    place.claim("u-1", "card0")
    done = place.run("repair", "u-2")
    assert done.status == 2
    assert done.err == f"dra-sdk: there is no state file u-2 under {place.data}; there are: u-1.json\n"


def test_two_files_of_one_name_are_told_apart_by_their_paths(place: Place) -> None:
    path = place.claim("u-1", "card0", cut=9)
    other = place.data / "claims-boot-1"
    other.mkdir(mode=0o700)
    (other / "u-1.json").write_bytes(path.read_bytes())
    done = place.run("repair", "u-1")
    assert done.status == 2
    assert f"u-1 may be {path} or {other}/u-1.json; give the path" in done.err
    commands = proposed(place.run())
    assert place.dra_sdk(*shlex.split(commands[-1])).status == 0
    assert [path.name for path in other.iterdir()] == [".forgotten-u-1-1.json"]


def test_a_driver_is_named_as_run_takes_it_too(place: Place) -> None:
    place.claim("u-1", "card0")
    assert place.run(driver=CARDS).cells == place.run().cells


def test_a_driver_without_a_directory_is_told(place: Place) -> None:
    place.claims.rmdir()
    place.data.rmdir()
    done = place.run(driver=CARDS)
    assert (done.status, done.err) == (
        2,
        (
            f"dra-sdk: there is no directory {place.data}: driver {NAME} never ran here, or the kubelet "
            "has another directory (--kubelet-dir)\n"
        ),
    )
    unknown = place.run(driver="nobody")
    assert unknown.status == 2
    assert f"there is no directory {place.kubelet}/plugins/nobody, and unknown driver 'nobody'" in unknown.err
    assert place.run(driver="../plugins").status == 2


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["mend", "u-1"], "'mend' is none of repair, forget, skip"),
        (["repair"], "repair takes one FILE_OR_UID, not 0 arguments"),
        (["forget", "u-1", "u-2"], "forget takes one FILE_OR_UID, not 2 arguments"),
        (["repair", "u-1", "--yes"], "--yes goes with forget and skip"),
    ],
)
def test_wrong_usage_is_one_sentence(place: Place, words: list[str], wrong: str) -> None:
    done = place.run(*words)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"dra-sdk: {wrong}; it is `dra-sdk state DRIVER [repair FILE_OR_UID | ")


def test_a_directory_that_others_may_write_is_refused(place: Place) -> None:
    place.claims.chmod(0o777)
    done = place.run()
    assert done.status == 2
    assert f"directory {place.claims} has owner {os.geteuid()} and mode 0777" in done.err


def test_odd_names_reach_no_terminal(place: Place) -> None:
    (place.claims / "\x1b[2J.json").write_bytes(b"")
    done = place.run()
    assert done.status == 1
    assert "\x1b" not in done.out
    assert "\\x1b[2J" in done.out


# --- steps that hold a claim

FAN, LAMP = ("fan of card 0", "it turns"), ("lamp of card 0", "it shines")


def test_a_claim_that_is_held_by_its_undo_says_by_which_steps_and_the_commands_work(place: Place) -> None:
    path = place.held_by_undo("u-1", FAN, LAMP)
    done = place.run()
    assert (done.status, done.err) == (0, "")
    assert done.cells[0] == ["default/claim-u-1", "u-1", "node-a/card0", "held by undo", "1", "this", "none"]
    assert "The undo of claim default/claim-u-1 (u-1) is refused, so node-a/card0 stay held." in done.out
    assert "  fan of card 0 waits: it turns\n" in done.out
    flags = shlex.join(place.flags)
    first, second = proposed(done)
    assert first == f"state {NAME} skip u-1 'fan of card 0' {flags} --yes"
    with place.driver():
        assert place.dra_sdk(*shlex.split(first)).status == 0
    assert skips(path) == {"fan of card 0"}
    assert proposed(place.run()) == [second]
    assert "It is skipped when the kubelet calls next." in place.run().out
    assert place.dra_sdk(*shlex.split(second)).status == 0
    (entry,) = json.loads(place.run("-o", "json").out)["files"]
    assert entry["refusedSteps"] == [{"step": step, "reason": reason} for step, reason in (FAN, LAMP)]
    assert entry["skippedSteps"] == ["fan of card 0", "lamp of card 0"]


def test_doctor_names_what_is_damaged_and_what_is_held_by_an_undo_with_commands_that_work(place: Place) -> None:
    def examined() -> list[list[str]]:
        findings = json.loads(place.dra_sdk("doctor", NAME, "-o", "json", *place.flags).out)
        return [list(finding.values()) for finding in findings if "claim" in finding["subject"]]

    place.claim("u-0", "card1")
    subject = f"claims of {NAME}"
    assert examined() == [["ok", subject, "1 claim, no file is damaged and no undo refused", ""]]
    place.claim("u-1", "card2", cut=4)
    path = place.held_by_undo("u-2", FAN)
    show = shlex.join(["dra-sdk", "state", NAME, *place.flags])
    damaged, held = examined()
    assert damaged[:2] == ["missing", f"claim default/claim-u-1 (u-1) of {NAME}"]
    assert damaged[3] == f"{show} shows, repairs or forgets it"
    assert held[:2] == ["missing", f"claim default/claim-u-2 (u-2) of {NAME}"]
    assert held[2] == "its undo is refused, so it holds node-a/card0: fan of card 0: it turns"
    skip = held[3].partition("without this step: dra-sdk ")[2].partition(";")[0]
    assert place.dra_sdk(*shlex.split(skip)).status == 0
    assert skips(path) == {"fan of card 0"}
    assert examined()[1][0] == "ok"


def test_skip_without_yes_says_what_it_means_and_changes_nothing(place: Place) -> None:
    path = place.held_by_undo("u-1", FAN)
    done = place.run("skip", "u-1", "fan of card 0")
    assert done.status == 2
    assert "- It was refused: it turns.\n" in done.out
    assert f"skip needs --yes: dra-sdk state {NAME} skip u-1 'fan of card 0'" in done.err
    assert skips(path) == frozenset()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("skip", "u-1"), "skip takes FILE_OR_UID and STEP, not 1 arguments"),
        (("skip", "u-1", "fan of card 0", "more"), "skip takes FILE_OR_UID and STEP, not 3 arguments"),
        (("skip", "u-1", "the fan", "--yes"), "'the fan' is no step that holds claim default/claim-u-1 (u-1); there"),
        (("skip", "u-2", "fan of card 0", "--yes"), "there are: none"),
    ],
)
def test_only_a_step_that_holds_a_claim_can_be_skipped(place: Place, words: tuple[str, ...], reason: str) -> None:
    path = place.held_by_undo("u-1", FAN)
    place.claim("u-2", "card1")
    done = place.run(*words)
    assert (done.status, reason in done.err) == (2, True), done.err
    assert skips(path) == frozenset()
