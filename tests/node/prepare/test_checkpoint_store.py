"""The store of checkpoints: what survives a restart, what a broken file does, and two processes on one directory."""

from __future__ import annotations

import errno
import logging
import os
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from dra_sdk import HeldClaim, HeldDevice
from dra_sdk.errors import SettingsError, StateError
from dra_sdk.node.files import END, PREFIX, Files, Step, claim_lock, read, safe_id
from dra_sdk.node.locks import NamedLocks
from dra_sdk.node.prepare import checkpoint_store, state_files
from dra_sdk.node.prepare.checkpoint import Checkpoint, encode
from dra_sdk.node.prepare.checkpoint_store import CheckpointStore

HOSTILE = ["", ".", "..", "../x", "/etc/passwd", "a/b", "a\0b", "a\nb", "x" * 253, "-a", "a.", "ä", "*", "a b"]


def state(uid: str, boot_id: str = "boot-1", *, complete: bool = True) -> Checkpoint:
    devices = (HeldDevice("r", "p", "d", data={"uid": "x"}),)
    return Checkpoint(HeldClaim("ns", "n", uid, devices, complete=complete), boot_id)


def opened(directory: Path, files: Files | None = None, *, shared: bool = False) -> CheckpointStore:
    store = CheckpointStore(directory / "claims", files, shared=shared)
    store.open()
    store.read()
    return store


def test_what_was_put_is_there_after_a_restart(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.put(state("u-2"))
    store.put(state("u-1"))
    for each in (store, opened(tmp_path)):
        assert each.get("u-1") == state("u-1")
        assert each.get("u-3") is None
        assert [found.claim.uid for found in each.all()] == ["u-1", "u-2"]
        assert [each.has(uid) for uid in ("u-1", "u-2", "u-3")] == [True, True, False]
    store.delete("u-1")
    assert opened(tmp_path).get("u-1") is None


def test_files_are_the_owners_alone(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.put(state("u-1"))
    assert store.directory.stat().st_mode & 0o777 == 0o700
    assert store.path("u-1").stat().st_mode & 0o777 == 0o600


def test_deleting_what_is_not_there_succeeds(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.delete("u-1")
    assert not store.path("u-1").exists()


@pytest.mark.parametrize("uid", HOSTILE)
def test_hostile_uids_stay_in_the_directory(tmp_path: Path, uid: str) -> None:
    store = opened(tmp_path)
    store.put(state(uid))
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [store.path(uid).name]
    assert store.path(uid).parent == store.directory
    assert opened(tmp_path).get(uid) == state(uid)
    store.delete(uid)
    assert os.listdir(store.directory) == []


def test_safe_ids_are_plain_unique_and_stable() -> None:
    uids = [*HOSTILE, "a", "A", "a-b", "a_b"]
    ids = [safe_id(uid) for uid in uids]
    assert len(set(ids)) == len(uids)
    assert [safe_id(each) for each in ids] == ids
    kept = "0a1b2c3d-0000-4000-8000-000000000000"
    assert safe_id(kept) == kept


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"junk", b"\0" * 100, encode(state("u-1"))[:-10], encode(state("u-9"))]
)
def test_a_broken_file_stays_is_reported_and_others_go_on(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    first = opened(tmp_path)
    first.put(state("u-1"))
    first.put(state("u-2"))
    path = first.path("u-1")
    path.write_bytes(content)
    with caplog.at_level(logging.ERROR):
        store = opened(tmp_path)
    assert str(path) in caplog.text
    for _ in range(2):
        with pytest.raises(StateError) as caught:
            store.get("u-1")
        assert str(path) in str(caught.value)
    assert store.get("u-2") == state("u-2")
    assert [each.claim.uid for each in store.all()] == ["u-2"]
    assert store.has("u-1")
    store.put(state("u-3"))
    assert store.get("u-3") == state("u-3")
    assert path.read_bytes() == content


def test_a_file_that_breaks_while_we_run_is_not_believed_any_longer(tmp_path: Path) -> None:
    store = opened(tmp_path, shared=True)
    store.put(state("u-1"))
    store.path("u-1").write_bytes(b"")
    assert store.all() == []
    with pytest.raises(StateError, match="no readable header"):
        store.get("u-1")


def test_a_restored_file_heals_without_a_restart(tmp_path: Path) -> None:
    opened(tmp_path).put(state("u-1"))
    path = tmp_path / "claims/u-1.json"
    good = path.read_bytes()
    path.write_bytes(b"")
    store = opened(tmp_path)
    with pytest.raises(StateError):
        store.get("u-1")
    path.write_bytes(good)
    assert store.get("u-1") == state("u-1")


def test_a_removed_broken_file_frees_its_claim(tmp_path: Path) -> None:
    opened(tmp_path).put(state("u-1"))
    path = tmp_path / "claims/u-1.json"
    path.write_bytes(b"")
    store = opened(tmp_path)
    path.unlink()
    assert store.get("u-1") is None
    assert not store.has("u-1")


def test_a_file_that_cannot_be_read_at_all_is_reported_and_tried_again(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.put(state("u-2"))
    store.path("u-1").mkdir()
    again = opened(tmp_path)
    with pytest.raises(StateError, match="cannot be read: it is not a regular file"):
        again.get("u-1")
    assert again.get("u-2") == state("u-2")
    store.path("u-1").rmdir()
    assert again.get("u-1") is None


def test_other_files_are_left_alone_and_leftovers_are_swept(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for name in ("README", f"{PREFIX}u-1.json{END}", f"{PREFIX}x.json{END}"):
        (store.directory / name).touch()
    again = opened(tmp_path)
    assert again.all() == []
    assert os.listdir(store.directory) == ["README"]


def test_an_errors_traceback_does_not_grow_with_every_look(tmp_path: Path) -> None:
    opened(tmp_path)
    (tmp_path / "claims/u-1.json").touch()
    store = opened(tmp_path)
    lengths = set()
    for _ in range(3):
        with pytest.raises(StateError) as caught:
            store.get("u-1")
        lengths.add(len(caught.traceback))
    assert len(lengths) == 1


class Failing:
    """Makes one step fail, as a disk does."""

    def __init__(self) -> None:
        self.step = ""
        self.error = OSError(28, "No space left on device")

    def __call__(self, step: str, _path: Path) -> None:
        if step == self.step:
            raise self.error


@pytest.mark.parametrize("step", ["create", "write", "fsync", "rename", "fsync-directory"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), OSError(5, "Input/output error")])
def test_after_a_disk_error_memory_says_what_the_file_says(tmp_path: Path, step: str, error: OSError) -> None:
    failing = Failing()
    failing.error = error
    store = opened(tmp_path, Files(failing))
    store.put(state("u-1", complete=False))
    failing.step = step
    for uid in ("u-1", "u-2"):
        with pytest.raises(StateError, match=f"cannot write state file .*/{uid}.json: {error.strerror}"):
            store.put(state(uid))
        assert store.get(uid) == opened(tmp_path).get(uid)
        assert store.has(uid) == opened(tmp_path).has(uid)
    failing.step = ""
    store.put(state("u-1"))
    assert opened(tmp_path).get("u-1") == state("u-1")


def test_that_a_claim_is_being_undone_is_remembered_on_a_full_disk_as_well(tmp_path: Path) -> None:
    failing = Failing()
    store = opened(tmp_path, Files(failing))
    store.put(state("u-1"))
    failing.step = "create"
    store.begin_undo(state("u-1"))
    for each in (store, opened(tmp_path), opened(tmp_path, shared=True)):
        assert each.get("u-1") == state("u-1", complete=False)
    failing.step = ""
    store.put(state("u-1"))
    assert opened(tmp_path).get("u-1") == state("u-1")


@pytest.mark.parametrize("step", ["unlink", "fsync-directory"])
def test_a_deletion_that_failed_can_be_repeated(tmp_path: Path, step: str) -> None:
    failing = Failing()
    store = opened(tmp_path, Files(failing))
    store.put(state("u-1"))
    failing.step = step
    with pytest.raises(StateError, match="cannot remove state file"):
        store.delete("u-1")
    assert store.get("u-1") == opened(tmp_path).get("u-1")
    failing.step = ""
    store.delete("u-1")
    assert store.get("u-1") is None
    assert os.listdir(store.directory) == []


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "claims").touch()
    with pytest.raises(SettingsError, match=f"{tmp_path}/claims is not a directory but a link or a file"):
        opened(tmp_path)


def test_a_directory_that_went_away_is_an_error_not_an_empty_store(tmp_path: Path) -> None:
    store = opened(tmp_path, shared=True)
    store.put(state("u-1"))
    store.directory.rename(tmp_path / "moved")
    with pytest.raises(StateError, match="cannot read state directory"):
        store.get("u-1")
    with pytest.raises(StateError, match="cannot write state file"):
        store.put(state("u-2"))
    (tmp_path / "moved").rename(store.directory)
    assert store.get("u-1") == state("u-1")


def test_two_stores_on_one_directory_see_each_other(tmp_path: Path) -> None:
    first, second = opened(tmp_path, shared=True), opened(tmp_path, shared=True)
    first.put(state("u-0"))
    assert second.all() == [state("u-0")]
    first.delete("u-0")
    first.put(state("u-1", complete=False))
    assert second.get("u-1") == state("u-1", complete=False)
    second.put(state("u-1"))
    assert first.get("u-1") == state("u-1")
    first.delete("u-1")
    assert second.get("u-1") is None
    assert second.all() == []
    second.put(state("u-1", boot_id="boot-2"))
    assert first.all() == [state("u-1", boot_id="boot-2")]


def test_a_change_in_place_is_noticed_even_within_one_tick_of_the_clock(tmp_path: Path) -> None:
    first, second = opened(tmp_path, shared=True), opened(tmp_path, shared=True)
    for round_ in range(50):
        wanted = state("u-1", boot_id=f"boot-{'x' * (round_ % 7)}")
        first.put(wanted)
        assert second.get("u-1") == wanted


def test_files_that_did_not_change_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(tmp_path, shared=True)
    for index in range(5):
        store.put(state(f"u-{index}"))
    again = opened(tmp_path, shared=True)
    reads: list[str] = []

    def counted(path: Path) -> bytes:
        reads.append(path.name)
        return read(path)

    monkeypatch.setattr(state_files, "read", counted)
    store.put(state("u-3", boot_id="boot-2"))
    again.all()
    assert reads == ["u-3.json"]


def test_a_temporary_file_of_another_process_survives_our_start(tmp_path: Path) -> None:
    store, locks = opened(tmp_path, shared=True), NamedLocks(tmp_path / "locks")
    in_hand, left = (store.directory / f"{PREFIX}u-{number}.json{END}" for number in (1, 2))
    in_hand.touch()
    left.touch()
    others = NamedLocks(tmp_path / "locks")
    with others.hold([claim_lock("u-1")]):
        CheckpointStore(tmp_path / "claims", shared=True).open(locks)
    assert in_hand.exists()
    assert not left.exists()
    locks.close()
    others.close()


def test_an_unreadable_file_holds_its_devices(tmp_path: Path) -> None:
    opened(tmp_path).put(state("u-1"))
    path = tmp_path / "claims/u-1.json"
    path.write_bytes(path.read_bytes()[:-40])
    store = opened(tmp_path)
    (left,) = store.holders(state("u-2"))
    assert (left.claim.uid, [(each.pool, each.name) for each in left.claim.devices]) == ("u-1", [("p", "d")])
    assert store.others("u-2") == []
    ((found, unreadable),) = store.unreadable().items()
    assert (found, unreadable.state) == ("u-1", left)
    assert (unreadable.claim.damaged, unreadable.claim.devices) == (True, left.claim.devices)


def test_the_holders_of_a_device_are_those_of_the_other_claims_that_have_it(tmp_path: Path) -> None:
    """The same as a search in all claims: after each change of ours, of another process, and of a file."""
    draw, store, other = Random(7), opened(tmp_path, shared=True), opened(tmp_path, shared=True)
    uids, names = [f"u-{number}" for number in range(6)], ["d", "e", "f"]
    wanted = Checkpoint(HeldClaim("ns", "n", "u-0", [HeldDevice("r", "p", name) for name in names[:2]]), "boot-1")
    found = 0
    for _ in range(300):
        uid, by = draw.choice(uids), draw.choice([store, other])
        what = draw.choice(["put", "put", "delete", "damage"])
        with suppress(StateError):  # of a damaged file
            if what == "put":
                devices = tuple(HeldDevice("r", "p", name) for name in draw.sample(names, draw.randint(1, 3)))
                by.put(Checkpoint(HeldClaim("ns", "n", uid, devices, complete=draw.choice([False, True])), "boot-1"))
            elif what == "delete":
                by.delete(uid)
            elif store.path(uid).exists():
                store.path(uid).write_bytes(store.path(uid).read_bytes()[:-40])
        for each in (store, other):
            holders = each.holders(wanted)
            assert {held.claim.uid: held for held in holders} == {
                held.claim.uid: held
                for held in (*each.others("u-0"), *(file.state for file in each.unreadable().values() if file.state))
                if {device.name for device in held.claim.devices} & {"d", "e"}
            }
            assert len({held.claim.uid for held in holders}) == len(holders)
            found += len(holders)
    assert found


def test_a_file_that_tells_nothing_is_unreadable_until_it_is_gone(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.path("u-1").write_bytes(b"")
    again = opened(tmp_path)
    assert again.others("u-2") == []
    (found,) = again.unreadable().values()
    assert (found.path, found.state) == (store.path("u-1"), None)
    store.path("u-1").unlink()
    assert again.unreadable() == {}


def test_who_is_refused_a_claim_is_told_the_command(tmp_path: Path) -> None:
    opened(tmp_path).path("u-1").write_bytes(b"")
    command = f"`dra-sdk state {tmp_path.name}` shows, repairs or forgets it"
    with pytest.raises(StateError, match=rf"u-1.json has no readable header; .* or is damaged; {command}$"):
        opened(tmp_path).get("u-1")


@pytest.mark.parametrize("target", ["u-1.json", "missing", "/etc/passwd"])
def test_a_link_among_state_files_is_a_broken_file(tmp_path: Path, target: str) -> None:
    """To itself, to nothing, to a file of the host: it is never "no state"."""
    opened(tmp_path).put(state("u-2"))
    (tmp_path / "claims/u-1.json").symlink_to(target)
    store = opened(tmp_path)
    with pytest.raises(StateError, match=r"u-1.json cannot be read: Too many levels of symbolic links"):
        store.get("u-1")
    assert [each.state for each in store.unreadable().values()] == [None]
    assert store.get("u-2") == state("u-2")


def test_a_directory_that_others_may_write_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).directory.chmod(0o777)
    with pytest.raises(SettingsError, match=f"directory {tmp_path}/claims has owner {os.geteuid()} and mode 0777"):
        opened(tmp_path)


def test_a_link_in_place_of_the_directory_is_refused_and_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious.json").touch()
    (tmp_path / "claims").symlink_to(elsewhere)
    with pytest.raises(SettingsError, match="is not a directory but a link or a file"):
        opened(tmp_path)
    store = CheckpointStore.of(tmp_path, BOOT, Files(), undoable=False, shared=False)
    store.migrate(tmp_path, BOOT)
    assert [path.name for path in elsewhere.iterdir()] == ["precious.json"]


def test_a_link_that_looks_like_state_of_another_boot_is_removed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious.json").touch()
    (tmp_path / "claims-old").symlink_to(elsewhere)
    assert names(opened_store(tmp_path, undoable=True)) == []
    assert not (tmp_path / "claims-old").is_symlink()
    assert [path.name for path in elsewhere.iterdir()] == ["precious.json"]


BOOT = "0a1b2c3d"


def opened_store(
    data: Path,
    *,
    undoable: bool,
    boot: str = BOOT,
    shared: bool = False,
    volatile: bool = False,
    step: Step | None = None,
) -> CheckpointStore:
    store = CheckpointStore.of(data, boot, Files(step), undoable=undoable, shared=shared, volatile=volatile)
    store.migrate(data, boot)
    store.open()
    return store


def names(store: CheckpointStore) -> list[str]:
    return [each.claim.uid for each in store.all()]


def test_a_driver_that_undoes_keeps_its_state_over_reboots(tmp_path: Path) -> None:
    opened_store(tmp_path, undoable=True).put(state("u-1"))
    assert names(opened_store(tmp_path, undoable=True, boot="another")) == ["u-1"]


def test_a_driver_that_undoes_nothing_starts_empty_after_a_reboot(tmp_path: Path) -> None:
    store = opened_store(tmp_path, undoable=False)
    store.put(state("u-1"))
    assert names(opened_store(tmp_path, undoable=False)) == ["u-1"]
    store.path("u-1").write_bytes(b"torn by a power failure")
    assert names(opened_store(tmp_path, undoable=False, boot="another")) == []
    assert [path.name for path in tmp_path.iterdir()] == ["claims-another"]


@pytest.mark.parametrize("shared", [True, False])
def test_a_volatile_driver_waits_for_no_disk_and_starts_empty_after_a_reboot(tmp_path: Path, shared: bool) -> None:
    steps: list[str] = []
    store = opened_store(
        tmp_path, undoable=True, shared=shared, volatile=True, step=lambda step, _path: steps.append(step)
    )
    store.put(state("u-1"))
    store.put(state("u-2"))
    store.delete("u-2")
    assert steps == [*2 * ["create", "write", "rename"], "unlink"]
    assert names(opened_store(tmp_path, undoable=True, shared=shared, volatile=True)) == ["u-1"]
    store.path("u-1").write_bytes(b"torn by a power failure")
    assert names(opened_store(tmp_path, undoable=True, shared=shared, volatile=True, boot="another")) == []


def test_two_instances_of_a_volatile_driver_see_the_claims_of_each_other(tmp_path: Path) -> None:
    old, new = (opened_store(tmp_path, undoable=True, shared=True, volatile=True) for _ in range(2))
    old.put(state("u-1"))
    assert names(new) == ["u-1"]
    new.delete("u-1")
    assert names(old) == []


def test_claims_follow_a_driver_that_becomes_volatile(tmp_path: Path) -> None:
    opened_store(tmp_path, undoable=True).put(state("u-1"))
    assert names(opened_store(tmp_path, undoable=True, volatile=True)) == ["u-1"]
    assert names(opened_store(tmp_path, undoable=True)) == ["u-1"]


def test_claims_follow_a_driver_that_gains_or_loses_the_hook(tmp_path: Path) -> None:
    opened_store(tmp_path, undoable=False).put(state("u-1"))
    gained = opened_store(tmp_path, undoable=True)
    assert names(gained) == ["u-1"]
    gained.put(state("u-2"))
    lost = opened_store(tmp_path, undoable=False)
    assert names(lost) == ["u-1", "u-2"]
    assert [path.name for path in tmp_path.iterdir()] == [f"claims-{BOOT}"]


def test_two_instances_meet_in_the_durable_place_whatever_they_are(tmp_path: Path) -> None:
    old, new = opened_store(tmp_path, undoable=True, shared=True), opened_store(tmp_path, undoable=False, shared=True)
    old.put(state("u-1"))
    assert names(new) == ["u-1"]


@pytest.mark.parametrize("shared", [False, True])
def test_damaged_files_are_read_again_only_when_they_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, shared: bool
) -> None:
    first = opened(tmp_path)
    for number in range(10_000):
        (first.directory / f"damaged-{number}{state_files.SUFFIX}").write_bytes(b"junk")
    store = opened(tmp_path, shared=shared)
    reads = _reads(monkeypatch)
    store.put(state("u-1"))
    assert store.holders(state("u-2")) == [state("u-1")]
    assert len(store.unreadable()) == 10_000
    assert [path.name for path in reads if path.name.startswith("damaged-")] == []
    repaired = store.path("damaged-7")
    repaired.write_bytes(encode(state("damaged-7")))
    assert store.get("damaged-7") == state("damaged-7")
    assert [path for path in reads if path.name.startswith("damaged-")] == [repaired]


def test_a_file_that_the_disk_did_not_give_is_tried_again_once_in_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(tmp_path).put(state("u-1"))
    now = 100.0
    monkeypatch.setattr(checkpoint_store, "monotonic", lambda: now)
    with monkeypatch.context() as broken:
        broken.setattr(state_files, "read", _input_output_error)
        store = opened(tmp_path)
    reads = _reads(monkeypatch)
    for _ in range(3):
        assert set(store.unreadable()) == {"u-1"}
    assert reads == []
    now += 1
    assert store.get("u-1") == state("u-1")
    assert reads == [store.path("u-1")]


def _input_output_error(path: Path) -> bytes:
    raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))


def _reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Record the state files that are read from now on."""
    reads: list[Path] = []

    def counted(path: Path) -> bytes:
        reads.append(path)
        return read(path)

    monkeypatch.setattr(state_files, "read", counted)
    return reads
