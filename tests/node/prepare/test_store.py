"""The claim store: what survives a restart, what a broken file does, and two processes on one directory."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from dra_sdk.errors import StateError
from dra_sdk.node.prepare.files import PREFIX, Files
from dra_sdk.node.prepare.store import ClaimStore, safe_id
from dra_sdk.wire.state import ClaimState, DeviceState, Phase, encode

HOSTILE = ["", ".", "..", "../x", "/etc/passwd", "a/b", "a\0b", "a\nb", "x" * 253, "-a", "a.", "ä", "*", "a b"]


def state(uid: str, boot_id: str = "boot-1", phase: Phase = Phase.COMPLETED) -> ClaimState:
    device = DeviceState(request="r", pool="p", name="d", data={"uid": "x"})
    return ClaimState(namespace="ns", name="n", uid=uid, boot_id=boot_id, phase=phase, devices=[device])


def opened(directory: Path, files: Files | None = None, *, shared: bool = False) -> ClaimStore:
    store = ClaimStore(directory / "claims", files, shared=shared)
    store.open()
    return store


def test_what_was_put_is_there_after_a_restart(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.put(state("u-2"))
    store.put(state("u-1"))
    for each in (store, opened(tmp_path)):
        assert each.get("u-1") == state("u-1")
        assert each.get("u-3") is None
        assert [found.uid for found in each.all()] == ["u-1", "u-2"]
        assert each.ids() == {"u-1", "u-2"}
    store.delete("u-1")
    assert opened(tmp_path).get("u-1") is None


def test_files_are_the_owners_alone(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.put(state("u-1"))
    assert store.directory.stat().st_mode & 0o777 == 0o700
    assert store.path("u-1").stat().st_mode & 0o777 == 0o600


def test_deleting_what_is_not_there_succeeds(tmp_path: Path) -> None:
    opened(tmp_path).delete("u-1")


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
    assert [each.uid for each in store.all()] == ["u-2"]
    assert store.ids() == {"u-1", "u-2"}
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
    assert store.ids() == set()


def test_a_file_that_cannot_be_read_at_all_is_reported_and_tried_again(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.put(state("u-2"))
    store.path("u-1").mkdir()
    again = opened(tmp_path)
    with pytest.raises(StateError, match="cannot be read: Is a directory"):
        again.get("u-1")
    assert again.get("u-2") == state("u-2")
    store.path("u-1").rmdir()
    assert again.get("u-1") is None


def test_other_files_are_left_alone_and_leftovers_are_swept(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for name in ("README", f"{PREFIX}u-1.json-abc", f"{PREFIX}x.json"):
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
    store.put(state("u-1", phase=Phase.STARTED))
    failing.step = step
    for uid in ("u-1", "u-2"):
        with pytest.raises(StateError, match=f"cannot write state file .*/{uid}.json: {error.strerror}"):
            store.put(state(uid))
        assert store.get(uid) == opened(tmp_path).get(uid)
        assert store.ids() == opened(tmp_path).ids()
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
    with pytest.raises(StateError, match=f"cannot use state directory {tmp_path}/claims"):
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
    first.put(state("u-1", phase=Phase.STARTED))
    assert second.get("u-1") == state("u-1", phase=Phase.STARTED)
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
    real = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: (reads.append(path.name), real(path))[1])
    store.put(state("u-3", boot_id="boot-2"))
    again.all()
    assert reads == ["u-3.json"]


def test_a_temporary_file_of_the_other_process_survives_our_start(tmp_path: Path) -> None:
    store = opened(tmp_path, shared=True)
    young, old = store.directory / f"{PREFIX}u-1.json-a", store.directory / f"{PREFIX}u-2.json-b"
    young.touch()
    old.touch()
    os.utime(old, (1, 1))
    opened(tmp_path, shared=True)
    assert young.exists()
    assert not old.exists()
